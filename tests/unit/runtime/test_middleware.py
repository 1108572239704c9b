"""The onion around every run."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rota import Context, Dead
from rota.runtime.middleware import Call, Middleware, wrap

CTX = cast("Context", object())


def layer(name: str, diary: list[str]) -> Middleware:
    async def around(ctx: Context, payload: Any, call: Call) -> Any:
        diary.append(f"into {name}")
        try:
            return f"{name}({await call(ctx, payload)})"
        finally:
            diary.append(f"out of {name}")

    return around


async def handler(ctx: Context, payload: Any) -> Any:
    assert ctx is CTX
    return payload


async def failing(ctx: Context, payload: Any) -> Any:
    raise ValueError(payload)


async def test_the_first_registered_is_outermost() -> None:
    diary: list[str] = []
    call = wrap(handler, [layer("a", diary), layer("b", diary), layer("c", diary)])
    assert await call(CTX, "x") == "a(b(c(x)))"
    assert diary == ["into a", "into b", "into c", "out of c", "out of b", "out of a"]


def test_without_middleware_the_call_is_the_handler_itself() -> None:
    assert wrap(handler, []) is handler


async def test_one_that_does_not_call_on_short_circuits_all_inside() -> None:
    diary: list[str] = []

    async def cached(ctx: Context, payload: Any, call: Call) -> Any:
        return "from the cache"

    call = wrap(failing, [layer("a", diary), cached, layer("b", diary)])
    assert await call(CTX, "x") == "a(from the cache)"
    assert diary == ["into a", "out of a"]


async def test_an_error_passes_outward_and_may_be_turned_into_an_outcome() -> None:
    diary: list[str] = []

    async def strict(ctx: Context, payload: Any, call: Call) -> Any:
        try:
            return await call(ctx, payload)
        except ValueError as error:
            raise Dead("strict") from error

    call = wrap(failing, [layer("a", diary), strict, layer("b", diary)])
    with pytest.raises(Dead, match="strict"):
        await call(CTX, "x")
    assert diary == ["into a", "into b", "out of b", "out of a"]


async def test_one_may_pass_on_another_payload_and_call_more_than_once() -> None:
    async def twice(ctx: Context, payload: Any, call: Call) -> Any:
        return [await call(ctx, payload + 1), await call(ctx, payload + 2)]

    assert await wrap(handler, [twice])(CTX, 1) == [2, 3]


async def test_layers_of_two_calls_do_not_mix() -> None:
    diary: list[str] = []
    a, b = layer("a", diary), layer("b", diary)
    one, other = wrap(handler, [a]), wrap(handler, [b])
    assert [await one(CTX, 1), await other(CTX, 2)] == ["a(1)", "b(2)"]
