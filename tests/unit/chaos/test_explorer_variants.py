"""Every rule that was learnt the hard way: its simpler form is caught, with the shortest script."""

import pytest

from rota.chaos.protocol import CAP_BROKEN, LEADER_BROKEN
from rota.chaos.searches import caught
from rota.chaos.variants import VARIANTS

FLAGGED = {
    "reported-use",
    "grant-first",
    "blind-share",
    "any-answer-lowers",
    "uncounted-claim",
    "busy-slots",
    "notice",
    "earlier-boot",
    "no-timeline",
    "no-settling",
    "no-epoch",
    "unsaid-flight",
    "unnamed-boot",
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_simpler_rule_is_caught(name: str) -> None:
    variant = VARIANTS[name]

    result = caught(variant)

    print(f"\n{name}: {variant.words}\n{result}")
    assert result.broken == variant.breaks
    assert result.broken in (CAP_BROKEN, LEADER_BROKEN)
    assert 5 <= len(result.script) <= 25


def test_every_rule_the_design_marks_has_its_simpler_form() -> None:
    assert VARIANTS.keys() >= FLAGGED
