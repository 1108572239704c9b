"""docs/settings.md says what settings.py says."""

from __future__ import annotations

from tests.support.settings_doc import DOC, written


def test_the_page_lists_every_setting_as_it_is() -> None:
    assert DOC.read_text() == written(), "run python -m tests.support.settings_doc"
