"""Scratch directories of the tests themselves: two runs must not fill a disk, or each other's way."""

from __future__ import annotations

from pathlib import Path

from tests.support.scratch import PREFIX, scratch_directory


def test_it_is_open_to_every_account_and_gone_in_the_end() -> None:
    with scratch_directory() as directory:
        assert directory.stat().st_mode & 0o777 == 0o755
    assert not directory.exists()


def test_what_a_killed_run_left_is_swept_away_and_what_is_in_use_is_not() -> None:
    with scratch_directory() as used:
        left = Path(f"{used.parent}/{PREFIX}left-by-a-killed-run")
        left.mkdir()
        (left / "in-use").touch()
        with scratch_directory():
            assert not left.exists()
            assert used.exists()
