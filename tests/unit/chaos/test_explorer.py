"""Every rule of the protocol that was simpler once is broken on purpose, and the search catches it.

The quick ones; `make explore` runs the rest, and the searches of the rules as they are.
"""

from __future__ import annotations

import pytest

from rota.chaos.searches import caught
from rota.chaos.variants import VARIANTS

QUICK = (
    "reported-use",
    "grant-first",
    "blind-share",
    "any-answer-lowers",
    "notice",
    "uncounted-claim",
    "busy-slots",
    "unsaid-flight",
    "unnamed-boot",
    "no-epoch",
    "no-timeline",
    "no-settling",
)


@pytest.mark.parametrize("name", QUICK)
def test_a_broken_rule_is_caught_with_its_shortest_script(name: str) -> None:
    variant = VARIANTS[name]
    result = caught(variant)
    print(f"{variant.words}\n{result}")
    assert result.broken == variant.breaks
    assert len(result.script) > 1
