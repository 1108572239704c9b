"""The onion around every run: registered first is outermost; each may short-circuit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .context import Context

Call = Callable[["Context", Any], Awaitable[Any]]
Middleware = Callable[["Context", Any, Call], Awaitable[Any]]


def wrap(call: Call, stack: Sequence[Middleware]) -> Call:
    """The call inside its middlewares; with none, the call itself, at no cost."""
    for middleware in reversed(stack):
        call = _layer(middleware, call)
    return call


def _layer(middleware: Middleware, inner: Call) -> Call:
    async def layer(ctx: Context, payload: Any) -> Any:
        return await middleware(ctx, payload, inner)

    return layer
