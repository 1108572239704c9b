"""A user's function as a handler: what it takes, what it is called, what may be said of its jobs."""

from __future__ import annotations

import functools
import math
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from rota import App, BadInput, BadName, BadOption, BadPayload, Context, HandlerConflict, Settings, by_prefix
from rota.runtime.handlers import LONGEST_DELAY
from rota.storage.rows import Request


class Email(BaseModel):
    to: str


@pytest.fixture
def app() -> App:
    return App(Settings(), queues=["emails"])


async def both(ctx: Context, email: Email) -> str:
    return f"{ctx} {email.to}"


async def context_only(ctx: Context) -> str:
    return f"{ctx}"


async def context_by_another_name(run: Context, email: Email) -> str:
    return f"{run} {email.to}"


async def payload_only(email: Email) -> str:
    return email.to


async def nothing() -> str:
    return "nothing"


async def bare(ctx, anything):  # type: ignore[no-untyped-def]
    return f"{ctx} {anything}"


@pytest.mark.parametrize(
    ("function", "given", "said"),
    [
        (both, Email(to="a"), "here a"),
        (context_only, None, "here"),
        (context_by_another_name, Email(to="a"), "here a"),
        (payload_only, Email(to="a"), "a"),
        (nothing, None, "nothing"),
        (bare, {"x": 1}, "here {'x': 1}"),
    ],
)
async def test_a_function_is_called_with_what_it_takes(
    app: App, function: Callable[..., Any], given: Any, said: str
) -> None:
    handler = app.job()(function)
    payload = handler.codec.decode(handler.request(given).payload) if handler.takes_payload else None
    assert await handler.call()("here", payload) == said  # type: ignore[arg-type]


async def test_a_handler_is_still_the_function(app: App) -> None:
    handler = app.job()(payload_only)
    assert await handler(Email(to="a")) == "a"
    assert handler.__wrapped__ is payload_only
    assert handler.__name__ == "payload_only"


def test_the_kind_is_the_functions_name_unless_given(app: App) -> None:
    assert app.job()(nothing).kind == "nothing"
    assert app.job(kind="mail.send")(nothing).kind == "mail.send"


def two_payloads(ctx: Context, one: int, two: int) -> None: ...
def context_last(email: Email, ctx: Context) -> None: ...
def any_number(*payloads: int) -> None: ...
def by_name_only(ctx: Context, *, email: Email) -> None: ...
def all_names(**named: int) -> None: ...


@pytest.mark.parametrize("function", [two_payloads, context_last, any_number, by_name_only, all_names])
def test_a_signature_that_cannot_be_served_is_refused(app: App, function: Callable[..., Any]) -> None:
    with pytest.raises(BadInput, match=rf"{function.__name__} must take a Context, a payload, both"):
        app.job()(function)
    assert not app.handlers


def test_an_annotation_that_cannot_be_read_is_refused(app: App) -> None:
    def send(email: Unheard) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(BadInput, match=r"annotations of .*send cannot be read: name 'Unheard'"):
        app.job()(send)


def test_a_payload_type_that_has_no_json_form_is_refused(app: App) -> None:
    def send(handle: Iterator[bytes] | threading_lock) -> None: ...

    with pytest.raises(BadInput, match="payload type of send cannot be used"):
        app.job()(send)


class threading_lock:  # noqa: N801 - stands for any class pydantic knows nothing of
    pass


def yields() -> Iterator[int]:
    yield 1


async def yields_async() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("function", [yields, yields_async])
def test_a_generator_is_no_handler(app: App, function: Callable[..., Any]) -> None:
    with pytest.raises(BadInput, match="yields"):
        app.job()(function)


def test_a_process_runs_only_plain_functions_that_take_no_context(app: App) -> None:
    with pytest.raises(BadInput, match="is async and process=True"):
        app.job(process=True)(nothing)

    def with_context(ctx: Context) -> None: ...

    with pytest.raises(BadInput, match="cannot take a Context"):
        app.job(process=True)(with_context)


@pytest.mark.parametrize("thing", [functools.partial(payload_only, Email(to="a")), Email, 5, None])
def test_what_is_not_a_function_is_refused(app: App, thing: Any) -> None:
    with pytest.raises(BadInput, match="cannot be a handler; give a function"):
        app.job()(thing)


async def test_a_method_is_a_function(app: App) -> None:
    class Mailer:
        async def send(self, email: Email) -> str:
            return email.to

    handler = app.job()(Mailer().send)
    assert handler.kind == "send"
    assert await handler(Email(to="a")) == "a"


def test_a_kind_has_one_handler_and_a_second_names_both(app: App) -> None:
    app.job(kind="send")(nothing)
    with pytest.raises(
        HandlerConflict, match=r'"send" has two handlers, .*\.nothing and .*\.payload_only; .*replace=True'
    ):
        app.job(kind="send")(payload_only)
    assert app.handlers["send"].function is nothing


def test_a_second_handler_may_replace_the_first_when_told_so(app: App) -> None:
    app.job(kind="send")(nothing)
    app.job(kind="send", replace=True)(payload_only)
    assert app.handlers["send"].function is payload_only


@pytest.mark.parametrize(
    "name", ["", " ", "a\x00b", "a\nb", "\x7f", " send", "send ", "x" * 129, "\ud800", 5, b"send"]
)
def test_a_name_that_cannot_be_used_is_refused(app: App, name: Any) -> None:
    with pytest.raises(BadName, match="queue name"):
        app.job(queue=name)(nothing)
    with pytest.raises(BadName, match="queue name"):
        app.queue(name)
    with pytest.raises(BadName, match="kind name"):
        app.job(kind=name)(nothing)


@pytest.mark.parametrize("name", ["e", "x" * 128, "mail.send/now", "größer", "two words", "😀"])
def test_any_other_name_will_do(app: App, name: str) -> None:
    assert app.job(queue=name, kind=name)(nothing).queue == name


ODD_NUMBERS: list[Any] = [math.nan, math.inf, -math.inf, 1e300, True, "5", [5]]
OUT_OF_RANGE: list[tuple[str, list[Any]]] = [
    ("delay", [-1, -0.001, LONGEST_DELAY * 1.01, None]),
    ("priority", [-32_001, 32_001, 1.5, None]),
    ("max_attempts", [0, -1, 32_001, 2.5, None]),
    ("timeout", [0, -1, 0.0001, LONGEST_DELAY * 1.01]),
]


@pytest.mark.parametrize(
    ("option", "value"), [(option, value) for option, odd in OUT_OF_RANGE for value in odd + ODD_NUMBERS]
)
def test_a_number_out_of_range_is_refused_with_its_name(app: App, option: str, value: Any) -> None:
    handler = app.job()(payload_only)
    with pytest.raises(BadOption, match=rf"^{option} is "):
        handler.request(Email(to="a"), **{option: value})
    if option != "delay" and value is not None:
        with pytest.raises(BadOption, match=rf"^{option} is "):
            app.job(kind="other", **{option: value})(nothing)


def test_numbers_at_the_edge_are_taken(app: App) -> None:
    request = app.job()(nothing).request(
        delay=LONGEST_DELAY, priority=-32_000, max_attempts=32_000, timeout=0.001
    )
    shape = request.shape
    assert (shape.delay, shape.priority, shape.max_attempts, shape.timeout) == (
        LONGEST_DELAY,
        -32_000,
        32_000,
        0.001,
    )


@pytest.mark.parametrize("tags", ["urgent", [""], ["x" * 129], [5], ["a\x00"], ["\ud800"], [None]])
def test_tags_are_several_texts(app: App, tags: Any) -> None:
    with pytest.raises(BadOption, match=r"^tags must be"):
        app.job()(nothing).request(tags=tags)


@pytest.mark.parametrize("note", ["", 5, "a\x00", "\ud800", "x" * 10_001])
def test_a_note_is_text_that_postgres_takes(app: App, note: Any) -> None:
    with pytest.raises(BadOption, match=r"^note must be"):
        app.job()(nothing).request(note=note)


@pytest.mark.parametrize("key", ["", "x" * 513, 5, "a\x00", "\ud800"])
def test_a_dedupe_key_is_text_that_postgres_takes(app: App, key: Any) -> None:
    with pytest.raises(BadOption, match=r"^dedupe must be"):
        app.job()(nothing).request(dedupe=key)


@pytest.mark.parametrize("run_at", [datetime(2026, 1, 1), "2026-01-01", 5])  # noqa: DTZ001
def test_run_at_is_a_time_in_a_zone(app: App, run_at: Any) -> None:
    with pytest.raises(BadOption, match=r"^run_at is .*time zone"):
        app.job()(nothing).request(run_at=run_at)


def test_delay_and_run_at_exclude_each_other(app: App) -> None:
    with pytest.raises(BadOption, match="exclude each other"):
        app.job()(nothing).request(delay=5, run_at=datetime(2026, 1, 1, tzinfo=UTC))


def test_an_option_that_does_not_exist_is_a_typing_error_and_not_ignored(app: App) -> None:
    with pytest.raises(BadOption, match=r"^dealy is no option of a job; take .*delay"):
        app.job()(nothing).request(dealy=60)  # type: ignore[call-arg]


@pytest.mark.parametrize("fatal", [ValueError, [ValueError], ("ValueError",), (int,), None])
def test_fatal_errors_are_a_tuple_of_types(app: App, fatal: Any) -> None:
    with pytest.raises(BadOption, match=r"^fatal of "):
        app.job(fatal=fatal)(nothing)


def test_a_payload_is_checked_when_the_request_is_made(app: App) -> None:
    with pytest.raises(BadPayload, match="to: Field required"):
        app.job()(payload_only).request({})


def test_what_the_call_says_goes_before_what_the_kind_says_before_the_settings() -> None:
    app = App(Settings(job={"queue": "anything", "max_attempts": 7}))  # type: ignore[arg-type]
    plain = app.job(kind="plain")(nothing)
    special = app.job(kind="special", queue="mails", priority=3, max_attempts=2)(nothing)
    assert facts(plain.request()) == ("anything", 0, 7)
    assert facts(special.request()) == ("mails", 3, 2)
    assert facts(special.request(queue="now", priority=9, max_attempts=1)) == ("now", 9, 1)


def facts(request: Request) -> tuple[str, int, int]:
    return request.shape.queue, request.shape.priority, request.shape.max_attempts


def test_the_router_says_the_queue_of_a_kind_that_names_none() -> None:
    app = App(Settings(), router=by_prefix({"mail.": "mails"}, default="rest"))
    assert app.job(kind="mail.send")(nothing).queue == "mails"
    assert app.job(kind="send")(nothing).queue == "rest"
    assert app.job(kind="mail.urgent", queue="own")(nothing).queue == "own"


def test_a_router_that_gives_no_queue_name_is_noticed() -> None:
    app = App(Settings(), router=lambda kind: "")
    with pytest.raises(BadName, match="queue name ''"):
        app.job()(nothing).request()


@pytest.mark.parametrize("workers", [-1, 1.5, True, "5", None])
def test_a_queue_has_a_whole_number_of_workers(app: App, workers: Any) -> None:
    with pytest.raises(BadOption, match="max_workers of 'emails'"):
        app.queue("emails", max_workers=workers)


def test_one_queue_name_is_not_taken_for_its_letters() -> None:
    with pytest.raises(BadInput, match="queues"):
        App(Settings(), queues="emails")
