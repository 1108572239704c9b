"""Small clusters for the planner's tests: strategies, and the words its claims are made in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from hypothesis import strategies as st

from rota.cluster.planner import Plan
from rota.cluster.view import Assignment, ClusterView, PodView, QueueView
from rota.words import PodId, QueueName


def queue_name(number: int) -> QueueName:
    return QueueName(f"queue-{number:03}")


def pod_id(number: int) -> PodId:
    return PodId(UUID(int=number + 1))


@st.composite
def views(
    draw: st.DrawFn, *, queues: int = 4, pods: int = 5, capacity: int = 6, caps: tuple[int, int] = (0, 12)
) -> ClusterView:
    """Any cluster: sizes, bounds, drains and pauses, and targets that no planner would have set.

    Pods are of a few kinds, so that some of them are alike.
    """
    names = [queue_name(number) for number in range(draw(st.integers(1, queues)))]
    amounts = st.integers(0, capacity)
    kinds = st.tuples(
        st.one_of(st.just(frozenset(names)), st.frozensets(st.sampled_from(names))),
        st.one_of(st.just(capacity), amounts),
        st.one_of(st.just({}), st.dictionaries(st.sampled_from(names), amounts, max_size=2)),
    )
    chosen = draw(st.lists(st.tuples(kinds, st.integers(1, 3)), min_size=1, max_size=3))
    drained = draw(st.sets(st.integers(0, 2 * pods), max_size=1))
    newer = draw(st.sets(st.integers(0, pods)))
    members = [
        PodView(pod_id(number), served, slots, number in drained, "12"[number in newer], number, bounds)
        for number, (served, slots, bounds) in enumerate(
            [kind for kind, times in chosen for _ in range(times)][:pods]
        )
    ]
    numbers = draw(st.lists(st.integers(*caps), min_size=len(names), max_size=len(names)))
    paused = draw(st.sets(st.integers(0, 2 * queues), max_size=1))
    return ClusterView(
        tuple(QueueView(name, numbers[place], place in paused) for place, name in enumerate(names)),
        tuple(members),
        draw(
            st.dictionaries(
                st.tuples(st.sampled_from(names), st.sampled_from([pod.id for pod in members])),
                rows(capacity),
                max_size=12,
            )
        ),
    )


def rows(most: int) -> st.SearchStrategy[Assignment]:
    """Any assignment that the database would allow: target <= acting <= held."""
    return st.tuples(*[st.integers(0, most)] * 2).map(
        lambda two: Assignment(target=min(two), held=max(two), acting=max(two))
    )


@st.composite
def changed(draw: st.DrawFn, view: ClusterView, *, cap: int = 12) -> ClusterView:
    """The view after something happened: a pod joined, left or drains, or a queue was resized or paused."""
    pods, queues = list(view.pods), list(view.queues)
    place = draw(st.integers(0, len(pods) - 1))
    match draw(st.sampled_from(["join", "leave", "drain", "resize", "pause"])):
        case "join":
            pods.append(replace(pods[place], id=pod_id(99), joined=99, draining=False))
        case "leave":
            del pods[place]
        case "drain":
            pods[place] = replace(pods[place], draining=True)
        case "resize":
            queues[0] = replace(queues[0], max_workers=draw(st.integers(0, cap)))
        case _:
            queues[0] = replace(queues[0], paused=not queues[0].paused)
    return replace(view, queues=tuple(queues), pods=tuple(pods))


def with_targets(view: ClusterView, plan: Plan) -> ClusterView:
    """The view once this plan has been carried out."""
    return replace(
        view,
        assignments={
            (queue, pod): Assignment(slots, slots, slots)
            for queue, row in plan.items()
            for pod, slots in row.items()
        },
    )


def targets(view: ClusterView) -> dict[QueueName, dict[PodId, int]]:
    """The targets now, by queue and pod."""
    found: dict[QueueName, dict[PodId, int]] = {queue.name: {} for queue in view.queues}
    for (queue, pod), row in view.assignments.items():
        if row.target:
            found[queue][pod] = row.target
    return found


def revoked(before: Plan, after: Plan) -> int:
    """How many slots pods have before and not after."""
    return sum(
        max(0, slots - after.get(queue, {}).get(pod, 0))
        for queue, row in before.items()
        for pod, slots in row.items()
    )


def in_all(plan: Plan, pod: PodId) -> int:
    return sum(row.get(pod, 0) for row in plan.values())


def uniform(
    caps: Mapping[str, int] | list[int], pods: int, *, capacity: int = 100, version: str = "1"
) -> ClusterView:
    """Like pods that serve every queue."""
    named = caps if isinstance(caps, Mapping) else {queue_name(n): cap for n, cap in enumerate(caps)}
    served = frozenset(map(QueueName, named))
    return ClusterView(
        tuple(QueueView(QueueName(name), cap) for name, cap in named.items()),
        tuple(PodView(pod_id(n), served, capacity, joined=n, version=version) for n in range(pods)),
    )
