"""Every state of the protocol, by the rules as they are: the cap holds in each, and from each it converges.

The larger worlds are searched by `make explore`; docs/explorer.md has their figures.
"""

from __future__ import annotations

import pytest

from rota.chaos.explorer import explore
from rota.chaos.searches import IN_TESTS

ROUNDS = 5
FEWEST = 100_000
"""Fewer states than any of these worlds has: a search that ends early has lost an event on the way."""


@pytest.mark.parametrize("name", IN_TESTS)
def test_no_state_breaks_a_promise_and_all_converge(name: str) -> None:
    result = explore(IN_TESTS[name])

    print(f"\n{name}: {result}")
    assert not result.broken, str(result)
    assert result.states > FEWEST
    assert result.rounds <= ROUNDS
