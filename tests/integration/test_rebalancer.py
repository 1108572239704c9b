"""The leader's loop on a real database: when it plans, what it writes, and whom it tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from rota.clock import SystemClock
from rota.cluster.leader import Lead
from rota.cluster.lease import Lease
from rota.cluster.rebalancer import Rebalancer
from rota.events import QueuePlanned
from rota.storage.assignments import Assignments, Written
from rota.storage.pool import Database
from rota.storage.rows import Report, Tenure
from rota.testing import Recorder
from rota.words import PodId
from tests.integration.storage.stage import Pod, Stage
from tests.support.until import until

PATIENCE = 10.0
NEVER = 3600.0


class Noted(Assignments):
    """Assignments that note which queues' plans were written."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.queues: list[str] = []

    async def plan_queue(
        self,
        tenure: Tenure,
        queue: str,
        wanted: Mapping[PodId, int],
        *,
        cause: str,
        sentence: str,
        also: Iterable[PodId] = (),
        tell: bool = True,
    ) -> Written | None:
        self.queues.append(queue)
        return await super().plan_queue(
            tenure, queue, wanted, cause=cause, sentence=sentence, also=also, tell=tell
        )


class Scene:
    """A stage with a leader on it, and pods that beat only when the test has them beat."""

    def __init__(self, stage: Stage, lead: Lead, told: Recorder) -> None:
        self.stage = stage
        self.lead = lead
        self.told = told
        self.written = Noted(stage.database)
        self.rebalancer = Rebalancer(lead, self.written, every=NEVER, tell=told)
        self._answers: dict[PodId, tuple[int, int]] = {}

    async def queue(self, **caps: int) -> None:
        await self.stage.queues.declare_queues({name: (cap, None) for name, cap in caps.items()})

    async def pods(self, count: int, *queues: str) -> list[Pod]:
        return [await self.stage.boot(queues=queues or ("q",), ttl=1_000.0) for _ in range(count)]

    async def beat(self, pod: Pod, **uses: int) -> None:
        """The pod hears its targets, acts on them, and says so; it uses what the test says."""
        for _ in range(2):
            timeline, heard = self._answers.get(pod.id, (0, 0))
            acting = {
                row.queue: row.target
                for row in await self.written.list_assignments()
                if row.pod == pod.id and heard
            }
            names = sorted({*acting, *uses})
            answer = await self.stage.beat(
                pod,
                Report(
                    timeline,
                    heard,
                    names,
                    [acting.get(name, 0) for name in names],
                    [uses.get(name, 0) for name in names],
                ),
            )
            assert answer is not None
            self._answers[pod.id] = (answer.timeline, answer.answer)

    async def targets(self, queue: str = "q") -> list[int]:
        """What the pods should have, the oldest first."""
        return [row.target for row in await self.written.list_assignments() if row.queue == queue]

    async def plans(self, *queues: str) -> None:
        """Plan once and see that just these queues were written."""
        self.written.queues.clear()
        await self.rebalancer.rebalance("a test")
        assert sorted(self.written.queues) == sorted(queues)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.rebalancer.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def planned(self, queue: str = "q", times: int = 1) -> QueuePlanned:
        """The first or a later plan of a queue that moved anything."""
        seen: list[QueuePlanned] = []

        def counted(event: QueuePlanned) -> bool:
            if event.queue == queue:
                seen.append(event)
            return len(seen) >= times

        async with asyncio.timeout(PATIENCE):
            await self.told.wait_for(QueuePlanned, counted)
        return seen[-1]


@pytest.fixture
async def scene(dsn: str) -> AsyncIterator[Scene]:
    async with Stage.on(dsn) as stage:
        lease = Lease(await stage.lead(), float("inf"))
        yield Scene(stage, Lead(lease, SystemClock()), Recorder())


async def causes(scene: Scene) -> list[str]:
    return [plan.cause for plan in await scene.written.list_plans()][::-1]


async def test_a_leader_plans_when_it_takes_over(scene: Scene) -> None:
    await scene.queue(q=5)
    await scene.pods(2)
    async with scene.at_work():
        event = await scene.planned()
    assert sorted(await scene.targets()) == [2, 3]
    assert (event.granted, event.revoked) == (5, 0)
    (plan,) = await scene.written.list_plans()
    assert (plan.queue, plan.granted, plan.revoked, plan.cause) == ("q", 5, 0, "a leader took over")
    assert plan.sentence == event.sentence


async def test_a_leader_plans_at_once_when_it_hears_of_something(scene: Scene) -> None:
    await scene.queue(q=4)
    await scene.pods(1)
    async with scene.at_work():
        await scene.planned()
        await scene.stage.queues.change_queue("q", max_workers=7)
        scene.rebalancer.hear("q was resized")
        await scene.planned(times=2)
    assert await scene.targets() == [7]
    assert await causes(scene) == ["a leader took over", "q was resized"]


async def test_a_burst_of_news_is_one_plan_that_names_its_causes(scene: Scene) -> None:
    await scene.queue(q=4)
    await scene.pods(1)
    async with scene.at_work():
        await scene.planned()
        await scene.stage.queues.change_queue("q", max_workers=7)
        for cause in ("one joined", "two joined", "two joined", "q was resized", "three left"):
            scene.rebalancer.hear(cause)
        await scene.planned(times=2)
    assert await causes(scene) == [
        "a leader took over",
        "two joined, one joined, q was resized and 1 more",
    ]


async def test_what_is_heard_while_a_plan_is_written_is_planned_next(scene: Scene) -> None:
    await scene.queue(q=4)
    await scene.pods(1)
    holder = await scene.stage.connect()
    held = holder.transaction()
    await held.start()
    await holder.execute("SELECT FROM rota.queue FOR UPDATE")
    async with scene.at_work():
        await scene.stage.until_in_the_way(holder)
        await holder.execute("UPDATE rota.queue SET max_workers = 9")
        scene.rebalancer.hear("q was resized")
        await held.commit()
        await scene.planned(times=2)
    assert await scene.targets() == [9]


async def test_without_any_news_a_leader_looks_every_so_often(scene: Scene) -> None:
    await scene.queue(q=4)
    await scene.pods(1)
    scene.rebalancer.every = 0.02
    async with scene.at_work():
        await scene.planned()
        await scene.stage.queues.change_queue("q", max_workers=7)
        await scene.planned(times=2)
    assert await causes(scene) == ["a leader took over", "the regular look"]


async def test_only_what_changes_is_written(scene: Scene) -> None:
    await scene.queue(a=2, b=2, c=2)
    first, second = await scene.pods(2, "a", "b", "c")
    await scene.plans("a", "b", "c")
    await scene.plans()
    for pod in (first, second):
        await scene.beat(pod)
    await scene.plans()
    await scene.stage.queues.change_queue("b", max_workers=4)
    await scene.plans("b")
    await scene.plans()


async def test_a_queue_that_nobody_serves_costs_nothing(scene: Scene) -> None:
    await scene.queue(q=4, elsewhere=4)
    await scene.pods(1)
    await scene.plans("q")


async def test_without_pods_or_queues_there_is_nothing_to_do(scene: Scene) -> None:
    await scene.plans()
    await scene.queue(q=4)
    await scene.plans()


async def test_slots_are_taken_back_before_they_are_given(scene: Scene) -> None:
    await scene.queue(q=4)
    (first,) = await scene.pods(1)
    await scene.plans("q")
    await scene.beat(first, q=4)
    await scene.pods(1)
    await scene.plans("q")
    assert await scene.targets() == [2, 0]
    await scene.beat(first, q=4)
    await scene.plans()
    await scene.beat(first, q=3)
    await scene.plans("q")
    assert await scene.targets() == [2, 1], "what the first gave back, and no more"
    await scene.beat(first, q=2)
    await scene.plans("q")
    assert await scene.targets() == [2, 2]


async def test_a_lowered_cap_is_written_until_it_is_in_force(scene: Scene) -> None:
    await scene.queue(q=4)
    (pod,) = await scene.pods(1)
    await scene.plans("q")
    await scene.beat(pod, q=4)
    change = await scene.stage.queues.change_queue("q", max_workers=1)
    assert change is not None
    assert change.change is not None
    assert not change.in_force
    await scene.plans("q")
    assert await scene.targets() == [1]
    await scene.beat(pod, q=4)
    await scene.plans("q")
    assert await scene.targets() == [0], "busy slots hold too many: nobody starts anything"
    await scene.beat(pod, q=4)
    await scene.plans("q")
    status = await scene.stage.queues.read_cap_change(change.change)
    assert status is not None
    assert status.in_force
    await scene.beat(pod, q=1)
    await scene.plans("q")
    assert await scene.targets() == [1]


async def test_all_pods_that_a_plan_changes_are_told_in_one_notice(scene: Scene) -> None:
    await scene.queue(a=2, b=2, c=2)
    one, two = await scene.pods(1, "a"), await scene.pods(2, "b", "c")
    ear = await scene.stage.listen()
    await scene.plans("a", "b", "c")
    (notice,) = await ear.heard()
    word, _, subjects = notice.partition(":")
    assert word == "beat"
    assert sorted(subjects.split(",")) == sorted(str(pod.id)[:13] for pod in (*one, *two))
    await scene.plans()
    assert await ear.heard() == []


async def test_a_refused_write_ends_the_round_and_several_the_tenure(scene: Scene) -> None:
    await scene.queue(a=2, b=2, c=2)
    await scene.pods(1, "a", "b", "c")
    assert await scene.stage.leases.resign_lease(scene.lead.tenure)
    ear = await scene.stage.listen()
    for round in range(1, 4):
        assert not scene.lead.over.is_set()
        await scene.rebalancer.rebalance("a test")
        assert len(scene.written.queues) == round
    assert scene.lead.over.is_set()
    for queue in "abc":
        assert await scene.targets(queue) == [0]
    assert await scene.written.list_plans() == []
    assert await ear.heard() == []
    assert scene.told.all(QueuePlanned) == []


async def test_a_lease_that_passes_on_between_two_queues_ends_the_round_there(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.queue(a=2, b=2, c=2)
    await scene.pods(1, "a", "b", "c")
    plan_queue = Noted.plan_queue

    async def resigns_first(self: Noted, tenure: Tenure, queue: str, *given: Any, **more: Any) -> Any:
        if len(self.queues) == 1:
            await scene.stage.leases.resign_lease(tenure)
        return await plan_queue(self, tenure, queue, *given, **more)

    monkeypatch.setattr(Noted, "plan_queue", resigns_first)
    await scene.rebalancer.rebalance("a test")
    assert len(scene.written.queues) == 2
    assert [event.queue for event in scene.told.all(QueuePlanned)] == scene.written.queues[:1]
    targets = [await scene.targets(queue) for queue in scene.written.queues]
    assert targets == [[2], [0]]


async def test_pods_that_drain_lose_their_slots_to_the_others(scene: Scene) -> None:
    await scene.queue(q=4)
    first, second = await scene.pods(2)
    await scene.plans("q")
    for pod in (first, second):
        await scene.beat(pod)
    await scene.stage.pods.drain_pod(first.id, first.incarnation)
    await scene.plans("q")
    assert await scene.targets() == [0, 2]
    await scene.beat(first)
    await scene.plans("q")
    assert await scene.targets() == [0, 4]


async def test_a_pod_that_is_gone_before_its_plan_is_written_gets_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.queue(q=4)
    first, second = await scene.pods(2)
    plan_queue = Noted.plan_queue

    async def leaves_first(self: Noted, *given: Any, **more: Any) -> Any:
        await scene.stage.pods.leave_pod(second.id, second.incarnation)
        return await plan_queue(self, *given, **more)

    monkeypatch.setattr(Noted, "plan_queue", leaves_first)
    await scene.rebalancer.rebalance("a test")
    assert await scene.targets() == [2]
    await scene.rebalancer.rebalance("a test")
    assert await scene.targets() == [4]
    assert first.id != second.id


async def test_a_conflict_is_tried_again(scene: Scene) -> None:
    """A plan waits two seconds for a lock, and then again."""
    await scene.queue(q=4)
    await scene.pods(1)
    holder = await scene.stage.connect()
    held = holder.transaction()
    await held.start()
    await holder.execute("SELECT FROM rota.queue FOR UPDATE")
    async with scene.at_work():
        await until("it was tried twice", lambda: len(scene.written.queues) >= 2)
        await held.commit()
        await scene.planned()
    assert await scene.targets() == [4]
