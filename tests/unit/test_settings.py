"""Settings from the environment: taken as meant, or refused in one sentence."""

from __future__ import annotations

import os
from typing import Any

import pytest

from rota import BadName, BadSettings, Settings
from rota.settings import PodSettings, check_name


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("ROTA_"):
            monkeypatch.delenv(name)


def load(monkeypatch: pytest.MonkeyPatch, **environment: str) -> Settings:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return Settings.load()


def test_there_is_no_default_database(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch).database.url is None


@pytest.mark.parametrize(
    ("name", "value", "section", "field", "taken"),
    [
        ("ROTA_DATABASE_URL", "postgresql://h/d", "database", "url", "postgresql://h/d"),
        ("ROTA_DATABASE_DIRECT_URL", "postgresql://h/d", "database", "direct_url", "postgresql://h/d"),
        ("ROTA_DATABASE_POOL_SIZE", "9", "database", "pool_size", 9),
        ("ROTA_DATABASE_STATEMENT_CACHE", "0", "database", "statement_cache", 0),
        ("ROTA_POD_CAPACITY", "12", "pod", "capacity", 12),
        ("ROTA_POD_UID", "u-1", "pod", "uid", "u-1"),
        ("ROTA_POD_GRACE", "0", "pod", "grace", 0.0),
        ("ROTA_JOB_MAX_ATTEMPTS", "3", "job", "max_attempts", 3),
        ("ROTA_JOB_MAX_PAYLOAD", "100", "job", "max_payload", 100),
        ("ROTA_LOG_FORMAT", "json", "log", "format", "json"),
        ("rota_pod_zone", "b", "pod", "zone", "b"),
    ],
)
def test_a_variable_is_named_after_its_section_and_field(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, section: str, field: str, taken: Any
) -> None:
    assert getattr(getattr(load(monkeypatch, **{name: value}), section), field) == taken


@pytest.mark.parametrize(
    ("text", "queues"),
    [
        ("emails", ("emails",)),
        ("emails,reports", ("emails", "reports")),
        (" emails , reports ,", ("emails", "reports")),
        ("emails,emails,reports", ("emails", "reports")),
        ("two words", ("two words",)),
        ("", ()),
        (" , ", ()),
    ],
)
def test_queues_are_a_list_between_commas(
    monkeypatch: pytest.MonkeyPatch, text: str, queues: tuple[str, ...]
) -> None:
    assert load(monkeypatch, ROTA_QUEUES=text).queues == queues


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ROTA_POD_CAPACITY", "many", "ROTA_POD_CAPACITY cannot be used: input should be a valid integer"),
        (
            "ROTA_POD_CAPACITY",
            "0",
            "ROTA_POD_CAPACITY cannot be used: input should be greater than or equal to 1",
        ),
        ("ROTA_POD_BEAT", "-1", "ROTA_POD_BEAT cannot be used: input should be greater than 0"),
        ("ROTA_POD_BEAT", "nan", "ROTA_POD_BEAT cannot be used: input should be"),
        ("ROTA_POD_TTL", "inf", "ROTA_POD_TTL cannot be used: input should be"),
        ("ROTA_JOB_MAX_PAYLOAD", "1", "ROTA_JOB_MAX_PAYLOAD cannot be used"),
        ("ROTA_DATABASE_POOL_SIZE", "101", "ROTA_DATABASE_POOL_SIZE cannot be used"),
        ("ROTA_LOG_LEVEL", "loud", "ROTA_LOG_LEVEL cannot be used: input should be 'debug', 'info'"),
    ],
)
def test_a_bad_value_is_refused_in_one_sentence_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    with pytest.raises(BadSettings) as refused:
        load(monkeypatch, **{name: value})
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)
    assert "pydantic" not in str(refused.value)


@pytest.mark.parametrize("name", ["ROTA_POD_CAPACTIY", "ROTA_DATABASE_URI", "ROTA_JOB_"])
def test_a_variable_that_is_no_setting_is_a_typing_error_and_not_ignored(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with pytest.raises(BadSettings, match=f"^{name} is not a setting of Rota; look for a typing error"):
        load(monkeypatch, **{name: "5"})


@pytest.mark.parametrize("name", ["ROTA_TEST_DSN", "ROTA_TEST_POSTGRES", "ROTA_REQUIRE_ALL"])
def test_variables_of_the_test_suite_are_none_of_its_business(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    load(monkeypatch, **{name: "1"})


def test_a_ttl_spans_at_least_three_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch, ROTA_POD_TTL="6", ROTA_POD_BEAT="2").pod.ttl == 6
    with pytest.raises(BadSettings, match=r"TTL \(5.9 s\) must be at least three beats \(2 s each\)"):
        load(monkeypatch, ROTA_POD_TTL="5.9", ROTA_POD_BEAT="2")


def test_the_rule_between_ttl_and_beat_holds_for_settings_made_in_code_too() -> None:
    with pytest.raises(ValueError, match="three beats"):
        PodSettings(ttl=5, beat=2)


def test_settings_cannot_be_changed() -> None:
    settings = Settings()
    with pytest.raises(ValueError, match="frozen"):
        settings.app = "x"
    with pytest.raises(AttributeError):
        settings.pod.ttl = 5  # type: ignore[misc]


def test_a_dsn_is_not_shown_with_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(
        monkeypatch,
        ROTA_DATABASE_URL="postgresql://u:secret@h/d",
        ROTA_DATABASE_DIRECT_URL="postgresql://u:secret@h/e",
    )
    assert "secret" not in repr(settings)
    assert "secret" not in str(settings)


def test_another_database_leaves_the_rest_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, ROTA_POD_ZONE="b", ROTA_DATABASE_SCHEMA="other")
    changed = settings.with_database(url="postgresql://h/d")
    assert (changed.database.url, changed.database.schema, changed.pod.zone) == (
        "postgresql://h/d",
        "other",
        "b",
    )
    assert settings.database.url is None


def test_the_profile_for_tests_beats_quickly_and_keeps_the_rules() -> None:
    pod = Settings.for_tests().pod
    assert pod.beat < 1
    assert pod.ttl >= 3 * pod.beat
    assert pod.grace < 5


@pytest.mark.parametrize("name", ["a", "x" * 128, "a b", "ü", "a\u2028b"])
def test_a_name_may_be_any_plain_text(name: str) -> None:
    assert check_name("queue", name) == name


@pytest.mark.parametrize(
    "name", ["", "x" * 129, " a", "a ", "\ta", "a\nb", "\x85", "\x00", "\udc00", None, 1]
)
def test_a_name_without_plain_text_is_refused(name: Any) -> None:
    with pytest.raises(BadName, match="1 to 128 characters"):
        check_name("queue", name)
