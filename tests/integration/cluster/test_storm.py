"""Everybody at once: no order of calls ends in a deadlock, and at no instant is more held than the cap."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

import pytest

from rota.errors import PodRetired
from rota.storage.rows import Ending, Report, Tenure
from rota.words import Incarnation, PodId
from tests.integration.cluster.stage import Actor, Stage
from tests.integration.storage.stage import KIND, RESCUES, Pod

CONNECTIONS = 6
CALLS = 150
"""Of each connection."""
QUEUES = ["a", "b", "c", "steady"]
STEADY = 5
"""The cap of the one queue that nobody resizes."""


@pytest.fixture
async def stage(dsn: str) -> AsyncIterator[Stage]:
    """With the clock running: pods are to fall silent while others speak."""
    async with Stage.on(dsn) as stage:
        yield stage


class Sailor:
    """One connection in the storm: it calls whatever comes to its mind, for whichever pod."""

    def __init__(self, actor: Actor, chance: random.Random, crew: Crew) -> None:
        self._actor = actor
        self._chance = chance
        self._crew = crew
        self._calls: list[Callable[[], Awaitable[object]]] = [
            *[self.beat, self.plan] * 4,
            *[self.register, self.share, self.expire] * 2,
            *[self.sweep, self.learn, self.leave, self.drain, self.resize, self.renew, self.stand, self.work],
        ]

    async def sail(self) -> None:
        for _ in range(CALLS):
            call = self._chance.choice(self._calls)
            self._crew.busy[self] = call.__name__
            try:
                await call()
            except Exception as error:
                error.add_note(f"{call.__name__}, while under way are: {sorted(self._crew.busy.values())}")
                raise
            self._crew.done[self._crew.busy.pop(self)] += 1

    async def register(self) -> None:
        pod = self._pod()
        # Half of them are silent from the beginning, so that several expire together.
        ttl = self._chance.choice([0.0, 60.0])
        boot = await self._actor.register(pod.id, replaces=pod.incarnation, queues=QUEUES, ttl=ttl)
        found = boot.found if boot.incarnation is None else boot.incarnation
        self._crew.boots[pod.id] = Incarnation(found)

    async def beat(self) -> None:
        await self._beat(sharing=False, timeline=1)

    async def share(self) -> None:
        await self._beat(sharing=True, timeline=1)

    async def learn(self) -> None:
        """As after a failover; not of the steady queue, which must not be said to be over its cap."""
        await self._beat(sharing=False, timeline=0)

    async def _beat(self, *, sharing: bool, timeline: int) -> None:
        pod = self._pod()
        queues = QUEUES if timeline else QUEUES[:3]
        busy = self._chance.sample(queues, len(queues))
        acts, uses = [self._few() for _ in busy], [self._few() for _ in busy]
        heard = self._crew.answers.get(pod, 0)
        report = Report(timeline, heard, busy, acts, uses, busy if sharing else ())
        try:
            answer = await self._actor.pods.beat(pod.id, pod.incarnation, report)
        except PodRetired:
            return
        if answer is not None:
            self._crew.answers[pod] = answer.answer

    async def plan(self) -> None:
        wanted = {Pod(pod, boot): self._few() for pod, boot in self._crew.boots.items()}
        await self._actor.plan(self._crew.tenure, wanted, queue=self._chance.choice(QUEUES))

    async def expire(self) -> None:
        await self._actor.pods.expire_pods(self._crew.tenure, RESCUES)

    async def sweep(self) -> None:
        await self._actor.pods.sweep_pods(RESCUES)

    async def leave(self) -> None:
        pod = self._pod()
        await self._actor.pods.leave_pod(pod.id, pod.incarnation)

    async def drain(self) -> None:
        await self._actor.pods.drain_pod(self._pod().id)

    async def resize(self) -> None:
        queue = self._chance.choice(QUEUES[:3])
        await self._actor.queues.change_queue(queue, max_workers=self._few(), paused=self._few() == 0)

    async def renew(self) -> None:
        await self._actor.leases.renew_lease(self._crew.tenure, 60.0)

    async def stand(self) -> None:
        """Now and then the leader resigns, so that there is something to take."""
        if self._chance.random() < 0.3:
            await self._actor.leases.resign_lease(self._crew.tenure)
        stand = await self._actor.stand(self._pod(), 60.0)
        self._crew.tenure = stand.tenure or self._crew.tenure

    async def work(self) -> None:
        """Claim, and say that it was throttled: that locks queues, pods and jobs."""
        pod = self._pod()
        runs = await self._actor.database.fetch(
            "work_jobs",
            *(pod.id, pod.incarnation, 1, self._chance.choice(QUEUES), 5, [KIND], [-40_000], [0]),
            *([], [], None, None),
        )
        endings = [Ending(run["id"], run["claim"], "throttle") for run in runs]
        await self._actor.jobs.finalize_jobs(pod.id, pod.incarnation, [], [], None, endings)

    def _pod(self) -> Pod:
        id = self._chance.choice(list(self._crew.boots))
        return Pod(id, self._crew.boots[id])

    def _few(self) -> int:
        return self._chance.randrange(5)


class Crew:
    """What all connections know: the latest boots, answers and tenure, right or already wrong."""

    def __init__(self, tenure: Tenure) -> None:
        self.tenure = tenure
        self.boots = {PodId(uuid4()): Incarnation(0) for _ in range(6)}
        self.answers: dict[Pod, int] = {}
        self.busy: dict[Sailor, str] = {}
        self.done: Counter[str] = Counter()


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_no_two_of_all_the_calls_block_each_other_and_no_cap_is_overdrawn(
    stage: Stage, seed: int
) -> None:
    await stage.declare(a=3, b=4, c=5, steady=STEADY)
    for queue in QUEUES:
        await stage.add(10, queue=queue)
    crew = Crew(await stage.now.lead(Pod(PodId(uuid4()), Incarnation(1)), 60.0))
    before = await deadlocks(stage)
    actors = [await stage.actor() for _ in range(CONNECTIONS)]
    sailors = [Sailor(actor, random.Random(seed * 100 + n), crew) for n, actor in enumerate(actors)]
    async with asyncio.TaskGroup() as storm:
        sailing = [storm.create_task(sailor.sail()) for sailor in sailors]
        while not all(task.done() for task in sailing):
            assert await stage.held("steady") <= STEADY
    assert await deadlocks(stage) == before
    assert sum(crew.done.values()) == CONNECTIONS * CALLS


async def deadlocks(stage: Stage) -> int:
    """Also those that somebody was spared by trying again."""
    return int(
        await stage.connection.fetchval(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
    )
