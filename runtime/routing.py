"""Which queue a kind goes to when neither the call nor the kind says."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Router = Callable[[str], str]


def to_queue(name: str) -> Router:
    """Every kind to one queue."""
    return lambda kind: name


def by_prefix(routes: Mapping[str, str], default: str) -> Router:
    """By the longest prefix of the kind that is in `routes`, else the default."""
    prefixes = sorted(routes, key=len, reverse=True)

    def route(kind: str) -> str:
        return next((routes[prefix] for prefix in prefixes if kind.startswith(prefix)), default)

    return route
