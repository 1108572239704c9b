"""What may be asked of a queue, and when waiting for it is over."""

from __future__ import annotations

from itertools import islice
from typing import Any
from uuid import UUID

import pytest

from rota import App
from rota.cluster.handover import Holder, Standing
from rota.cluster.view import ClusterView, PodView, QueueView
from rota.errors import BadName, BadOption
from rota.runtime.queues import MOST_WORKERS, Change, HandOver, check_max_workers, pauses
from rota.words import PodId, QueueName

POD = PodId(UUID(int=1))


@pytest.mark.parametrize("value", [-1, 2**31, True, False, 1.5, "3", None])
def test_a_cap_that_no_queue_can_have_is_refused_in_one_sentence(value: Any) -> None:
    with pytest.raises(BadOption, match=r"^max_workers of 'emails' is .*; it must be .*\.$"):
        check_max_workers("emails", value)
    with pytest.raises(BadOption):
        App().queue("emails", max_workers=value)


@pytest.mark.parametrize("value", [0, 1, MOST_WORKERS])
def test_the_ends_of_the_range_are_caps(value: int) -> None:
    app = App()
    app.queue("emails", max_workers=value)
    assert app.declared_queues["emails"].max_workers == check_max_workers("emails", value) == value


def test_a_name_that_no_queue_can_have_is_refused_before_its_cap() -> None:
    with pytest.raises(BadName):
        App().queue(" ", max_workers=-1)


def hand_over(
    *, in_force: bool, overtaken: bool = False, target: int = 2, held: int = 2, live: bool = True
) -> HandOver:
    """One pod that can have 2 slots."""
    queue = QueueView(QueueName("emails"), 2)
    pods = (PodView(POD, frozenset({queue.name}), capacity=9),) if live else ()
    holders = (Holder(POD, "rota-a", target, held, silent=not live),) if held else ()
    standing = Standing(queue, holders, len(pods), ClusterView((queue,), pods))
    return HandOver(Change("emails", 2, 1, in_force), in_force, overtaken, standing)


@pytest.mark.parametrize(
    ("now", "force", "settled"),
    [
        (hand_over(in_force=False, target=0, held=9), False, False),
        (hand_over(in_force=True, target=0, held=9), True, False),
        (hand_over(in_force=True, target=1, held=1), True, False),
        (hand_over(in_force=True), True, True),
        (hand_over(in_force=False, overtaken=True), True, True),
        (hand_over(in_force=True, overtaken=True, held=9), True, True),
        (hand_over(in_force=False, held=9, live=False), True, True),
        (hand_over(in_force=True, held=0, live=False), True, True),
    ],
)
def test_waiting_is_over_when_it_is_reached_or_cannot_be(now: HandOver, force: bool, settled: bool) -> None:
    assert (now.over(settled=False), now.over(settled=True)) == (force, settled)


def test_looks_come_quickly_first_and_then_twice_a_second() -> None:
    first, *_, last = islice(pauses(), 100)
    assert (first, last) == (0.01, 0.5)
