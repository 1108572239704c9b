"""The rules of cluster/rules.py and the SQL functions say the same: random scripts, played on both.

After every step of a script all rows are compared, and the promises that rows can break are held
against what was there before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from rota.cluster.rules import PodBoot
from rota.cluster.view import Assignment
from rota.errors import PodRetired
from rota.storage.rows import BeatAnswer, Report, Tenure
from rota.words import Epoch, Incarnation, PodId
from tests.integration.cluster.model import Guest, Heard, Model, Rows
from tests.integration.cluster.player import QUEUES, START, Player
from tests.integration.cluster.promises import broken
from tests.integration.storage.stage import RESCUES

UNKNOWN_QUEUE = "z"
PODS = tuple(PodId(UUID(int=number << 64)) for number in (2, 1, 3))
STRANGER = PodId(UUID(int=9))

pods = st.sampled_from(PODS)
queues = st.sampled_from([*QUEUES, *QUEUES, UNKNOWN_QUEUE])
slots = st.integers(0, 4)
seconds = st.sampled_from([2.0, 5.0, 10.0])
# How far behind what a pod or a leader says is: mostly not at all, or one, or it is from the future.
behind = st.sampled_from([0, 0, 0, 1, 2, -1])
tenures = st.sampled_from([0, 0, 0, 1, 2, -1, 3, 4])
reports = st.dictionaries(st.sampled_from([*QUEUES, UNKNOWN_QUEUE]), st.tuples(slots, slots))
using = st.dictionaries(st.sampled_from(QUEUES), slots)
sharing = st.lists(st.sampled_from([*QUEUES, UNKNOWN_QUEUE]), max_size=3)
wishes = st.one_of(
    st.fixed_dictionaries(dict.fromkeys(PODS, slots)),
    st.dictionaries(
        st.sampled_from([*PODS, STRANGER]), st.sampled_from([0, 1, 2, 3, 5, 2**31 - 1, -1, -(2**31)])
    ),
)


# What scripts must have come to, all in all; else they prove little.
HAPPENS = {
    *("register: Boot", "beat: Heard", "beat: expired", "beat: retired", "drain: True", "leave: True"),
    *("take: Stand", "renew: tuple", "renew: NoneType", "resign: True", "resign: False"),
    *("plan: Written", "plan: NoneType", "expire: list", "expire: NoneType", "sweep: list"),
    *("plan: target rises", "plan: target falls", "plan: held rises", "plan: acting rises"),
    *("beat: target rises", "beat: held rises", "beat: held falls", "beat: acting falls"),
    *("change: CapChange", "change: NoneType", "change: a cap comes into force"),
    *("confirm: True", "confirm: False"),
}


class Twin(RuleBasedStateMachine):
    """A script. Each step is done by the model and by the database, and both must answer alike."""

    def __init__(self, player: Player) -> None:
        super().__init__()
        self.player = player
        self.actor = player.actor
        self.model = Model(START, 1, dict.fromkeys(QUEUES, (2, False)))
        self.boots = 0
        self.booted: dict[PodId, list[int]] = {pod: [0] for pod in PODS}
        self.tenures: list[Tenure] = []
        player.reset()
        self.before = player.rows()

    @initialize(
        workers=st.sampled_from([1, 2, 3, 6]),
        joined=st.sampled_from([0, 1, 2, 3, 3, 3]),
        wanted=st.one_of(st.none(), st.fixed_dictionaries(dict.fromkeys(PODS, slots))),
    )
    def begin(self, workers: int, joined: int, wanted: Mapping[PodId, int] | None) -> None:
        """With some pods, and perhaps with slots that they already act on."""
        self.change_queue("a", workers, None)
        for pod in PODS[:joined]:
            self._live(pod)
        if wanted is not None:
            for queue in QUEUES:
                self.plan(queue, wanted)
            self.all_beat_with_the_latest_answer({}, 0)

    # Pods.

    @rule(
        pod=pods,
        back=behind,
        machine=st.sampled_from(["here", "here", "there"]),
        ttl=seconds,
        capacity=st.sampled_from([0, 1, 3, 100]),
        capacities=st.dictionaries(st.sampled_from(QUEUES), slots, max_size=1),
        serves=st.sampled_from([QUEUES, QUEUES, ("a",), ()]),
    )
    def register(
        self,
        pod: PodId,
        back: int,
        machine: str,
        ttl: float,
        capacity: int,
        capacities: Mapping[str, int],
        serves: Sequence[str],
    ) -> None:
        replaces, guest = self._boot(pod, back), Guest(tuple(serves), capacity, capacities)
        terms: dict[str, Any] = {"replaces": replaces, "machine": machine, "ttl": ttl}
        expected = self.model.register_pod(pod, self.boots + 1, guest=guest, **terms)
        found = self.player.run(self.actor.register(pod, **terms, **guest._asdict()))
        if found.incarnation is not None:
            self.boots += 1
            self.booted[pod].append(found.incarnation)
        self._same("register", found, expected)

    @rule(uses=using, less=slots)
    def all_beat_with_the_latest_answer(self, uses: Mapping[str, int], less: int) -> None:
        for pod in [pod for pod, row in self.model.pods.items() if row.expires_at > self.model.now]:
            self.beat_with_the_latest_answer(pod, uses, less, ())

    @rule(pod=pods, uses=using, less=slots, sharing=sharing)
    def beat_with_the_latest_answer(
        self, pod: PodId, uses: Mapping[str, int], less: int, sharing: Sequence[str]
    ) -> None:
        row = self._live(pod)
        acts = {queue: max(0, had.acting - less) for queue, had in self.model.of_pod(pod).items()}
        said = {queue: (acts.get(queue, 0), uses.get(queue, 0)) for queue in {*acts, *uses}}
        self._beat(pod, row.incarnation, row.answer, row.timeline, said, sharing)

    @rule(pod=pods, boot=behind, heard=behind, timeline=behind, said=reports, sharing=sharing)
    def beat_anyhow(
        self,
        pod: PodId,
        boot: int,
        heard: int,
        timeline: int,
        said: Mapping[str, tuple[int, int]],
        sharing: Sequence[str],
    ) -> None:
        row = self.model.pods.get(pod)
        answer = (row.answer if row else 0) - heard
        self._beat(pod, self._boot(pod, boot), answer, self.model.timeline - timeline, said, sharing)

    def _beat(
        self,
        pod: PodId,
        incarnation: int,
        heard: int,
        timeline: int,
        said: Mapping[str, tuple[int, int]],
        sharing: Sequence[str],
    ) -> None:
        acts, uses = [acts for acts, _ in said.values()], [uses for _, uses in said.values()]
        report = Report(timeline, heard, list(said), acts, uses, sharing)
        learns = timeline != self.model.timeline
        expected = self.model.beat(pod, incarnation, report)
        found = self.player.run(self._heard(pod, incarnation, report))
        if isinstance(found, Heard):
            for queue, target in found.targets.items():
                assert target <= self.model.assignments[queue, pod].held
        self._same("beat", found, expected, beating=pod, learns=learns)

    async def _heard(self, pod: PodId, incarnation: int, report: Report) -> Heard | str:
        try:
            answer = await self.actor.pods.beat(pod, Incarnation(incarnation), report)
        except PodRetired:
            return "retired"
        return "expired" if answer is None else heard(answer)

    @rule(pod=pods, back=behind, how=st.sampled_from(["drain", "is drained", "leave"]))
    def go(self, pod: PodId, back: int, how: str) -> None:
        if how == "leave":
            self.leave(pod, back)
        else:
            self.drain(pod, back if how == "drain" else None)

    def drain(self, pod: PodId, back: int | None) -> None:
        boot = None if back is None else Incarnation(self._boot(pod, back))
        expected = self.model.drain_pod(pod, boot)
        self._same("drain", self.player.run(self.actor.pods.drain_pod(pod, boot)), expected)

    def leave(self, pod: PodId, back: int) -> None:
        boot = Incarnation(self._boot(pod, back))
        expected = self.model.leave_pod(pod, boot)
        self._same("leave", self.player.run(self.actor.pods.leave_pod(pod, boot)), expected)

    # Leaders.

    @rule(pod=pods, back=tenures, ttl=seconds, how=st.sampled_from(["take", "renew", "resign"]))
    def lead(self, pod: PodId, back: int, ttl: float, how: str) -> None:
        match how:
            case "take":
                self.take_lease(pod, ttl)
            case "renew":
                self.renew_lease(self._tenure(back), ttl)
            case _:
                self.resign_lease(self._tenure(back))

    def take_lease(self, pod: PodId, ttl: float) -> None:
        expected = self.model.take_lease(pod, ttl)
        found = self.player.run(self.actor.leases.take_lease(pod, ttl))
        if found.tenure is not None:
            self.tenures.append(found.tenure)
        self._same("take", found, expected)

    def renew_lease(self, tenure: Tenure, ttl: float) -> None:
        expected = self.model.renew_lease(tenure, ttl)
        found = self.player.run(self.actor.leases.renew_lease(tenure, ttl))
        told = None if found is None else (found.clock, found.settling, found.expiry_in)
        self._same("renew", told, expected)

    def resign_lease(self, tenure: Tenure) -> None:
        expected = self.model.resign_lease(tenure)
        self._same("resign", self.player.run(self.actor.leases.resign_lease(tenure)), expected)

    @rule(back=tenures, queue=queues, wanted=wishes)
    def plan_in_any_epoch(self, back: int, queue: str, wanted: Mapping[PodId, int]) -> None:
        self._plan(self._tenure(back), queue, wanted)

    @rule(queue=st.sampled_from(QUEUES), wanted=wishes)
    def plan(self, queue: str, wanted: Mapping[PodId, int]) -> None:
        self._plan(self._lead(), queue, wanted)

    def _plan(self, tenure: Tenure, queue: str, wanted: Mapping[PodId, int]) -> None:
        expected = self.model.plan_queue(tenure, queue, wanted)
        writing = self.actor.assignments.plan_queue(tenure, queue, wanted, cause="a script", sentence="So.")
        self._same("plan", self.player.run(writing), expected)

    @rule(back=st.one_of(tenures, st.none()))
    def remove_silent_pods(self, back: int | None) -> None:
        if back is None:
            self.sweep_pods()
        else:
            self.expire_pods(self._tenure(back))

    def expire_pods(self, tenure: Tenure) -> None:
        expected = self.model.expire_pods(tenure)
        found = self.player.run(self.actor.pods.expire_pods(tenure, RESCUES))
        self._same("expire", None if found is None else sorted(found[0]), expected)

    def sweep_pods(self) -> None:
        expected = self.model.sweep_pods()
        found, _ = self.player.run(self.actor.pods.sweep_pods(RESCUES))
        self._same("sweep", sorted(found), expected)

    # Operators, and the world.

    @rule(
        queue=queues,
        workers=st.sampled_from([None, 0, 1, 1, 2, 2, 3, 6, 2**31 - 1]),
        paused=st.sampled_from([None, None, False, True]),
    )
    def change_queue(self, queue: str, workers: int | None, paused: bool | None) -> None:
        expected = self.model.change_queue(queue, workers, paused)
        found = self.player.run(self.actor.queues.change_queue(queue, max_workers=workers, paused=paused))
        self._same("change", found, expected)

    @rule(queue=queues)
    def confirm_cap(self, queue: str) -> None:
        expected = self.model.confirm_cap(queue)
        self._same("confirm", self.player.run(self.actor.queues.confirm_cap(queue)), expected)

    @rule(by=st.sampled_from([0.5, 0.5, 0.5, 1.0, 1.0, 2.0, 2.0, 5.0, 10.0, -1.0, -20.0, -20.0]))
    def move_the_clock(self, by: float) -> None:
        self.model.now += by
        self.player.move(self.model)

    @rule()
    def fail_over(self) -> None:
        self.model.timeline += 1
        self.player.move(self.model)

    # What scripts need so that they do not end in refusals, and what is compared.

    def _live(self, pod: PodId) -> PodBoot:
        """The row of a pod that can beat; it registers if it must."""
        row = self.model.pods.get(pod)
        if row is None or row.expires_at <= self.model.now:
            self.register(pod, 0, "here", 10.0, 100, {}, QUEUES)
        return self.model.pods[pod]

    def _lead(self) -> Tenure:
        """The tenure of whoever leads: the first pod if nobody does. A clock that went back costs a try."""
        for _ in range(2):
            if self.tenures and self.model.leads(self.tenures[-1]):
                break
            self.take_lease(PODS[0], 5.0)
        return self.tenures[-1] if self.tenures else self._tenure(0)

    def _boot(self, pod: PodId, back: int) -> int:
        """An incarnation of this pod: the latest, an earlier one, or one that never was."""
        known = self.booted[pod]
        return known[max(0, len(known) - 1 - back)] if back >= 0 else known[-1] + 1

    def _tenure(self, back: int) -> Tenure:
        """A tenure: the latest, an earlier one, one that never was, another pod's, of another timeline."""
        if not self.tenures:
            return Tenure(PODS[0], Epoch(1), 1)
        last = self.tenures[-1]
        if back < 0:
            return last._replace(epoch=Epoch(last.epoch + 1))
        if back > 2:
            other = PODS[(PODS.index(last.pod) + 1) % len(PODS)]
            return last._replace(pod=other) if back == 3 else last._replace(timeline=last.timeline - 1)
        return self.tenures[max(0, len(self.tenures) - 1 - back)]

    def _same(
        self,
        step: str,
        found: object,
        expected: object,
        *,
        beating: PodId | None = None,
        learns: bool = False,
    ) -> None:
        assert found == expected, f"{step}: the database answered {found}, the rules {expected}"
        after = self.player.rows()
        assert after == self.model.rows, f"after {step}"
        assert broken(self.before, after, beating=beating, learns=learns) == []
        self.player.seen.update(happenings(step, found, self.before, after))
        self.before = after


def heard(answer: BeatAnswer) -> Heard:
    leader = None if answer.leader is None else PodId(answer.leader)
    return Heard(answer.draining, answer.answer, answer.timeline, answer.targets, leader, answer.lease_in)


def happenings(step: str, found: object, before: Rows, after: Rows) -> Iterator[str]:
    """What the step came to, to see that scripts come to all there is."""
    answer = str(found) if isinstance(found, bool | str) else type(found).__name__
    yield f"{step}: {answer}"
    for key, row in after.assignments.items():
        was = before.assignments.get(key, Assignment())
        for column, then, now in zip(Assignment._fields, was, row, strict=True):
            if then != now:
                yield f"{step}: {column} {'rises' if then < now else 'falls'}"
    yield from {
        f"{step}: a cap comes into force" for new in after.changes[len(before.changes) :] if new.in_force_at
    }
    for earlier, later in zip(before.changes, after.changes, strict=False):
        if earlier != later:
            yield f"{step}: a lowered cap comes into force"


@pytest.mark.timeout(600)  # a script that fails is made shorter, again and again
def test_the_rules_and_the_sql_functions_agree_after_every_step_of_random_scripts(dsn: str) -> None:
    player = Player(dsn)
    try:
        run_state_machine_as_test(
            lambda: Twin(player),  # type: ignore[arg-type]
            settings=settings(
                max_examples=300,
                stateful_step_count=30,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        player.close()
    assert HAPPENS - player.seen.keys() == set(), "scripts became too tame to show it"
