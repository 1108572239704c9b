"""Options that typer alone cannot have."""

from __future__ import annotations

import pytest

from rota.cli.options import spelled_out


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        (["emails", "40"], ["emails", "40"]),
        (["emails", "40", "--wait"], ["emails", "40", "--wait=in-force"]),
        (["--wait", "emails", "40"], ["--wait=in-force", "emails", "40"]),
        (["emails", "40", "--wait=settled"], ["emails", "40", "--wait=settled"]),
        (["emails", "-5", "--wait"], ["emails", "--wait=in-force", "--", "-5"]),
        (["emails", "--timeout", "-5"], ["emails", "--timeout", "-5"]),
        (["--json", "--", "--wait", "-5"], ["--json", "--", "--wait", "-5"]),
        (["emails", "40", "--"], ["emails", "40"]),
        ([], []),
    ],
)
def test_a_lone_wait_and_a_negative_number_are_spelled_out(typed: list[str], read: list[str]) -> None:
    assert spelled_out(typed) == read
