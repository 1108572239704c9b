"""Queues resized, paused and shown while pods run: `rota worker` and `rota queue` as processes."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Command, rota, running
from tests.support.inline import Rota

SHOP = '''
import asyncio
from pathlib import Path

from rota import App, Context

app = App()
app.queue("front", max_workers=6)


@app.job(queue="front")
async def wait_for(ctx: Context, path: str) -> str:
    """Runs until the file is there."""
    ctx.log.info("waiting")
    while not Path(path).exists():
        await asyncio.sleep(0.01)
    return "seen"
'''

QUICK = {
    "ROTA_LOG_LEVEL": "debug",
    "ROTA_POD_BEAT": "0.5",
    "ROTA_POD_TTL": "3",
    "ROTA_POD_CAPACITY": "8",
    "ROTA_POD_GRACE": "20",
}


class Fleet:
    """Pods of a shop on one database, and the command line beside them, all as processes."""

    def __init__(self, directory: Path, dsn: str, here: Rota, leaving: ExitStack) -> None:
        (directory / "shop.py").write_text(SHOP)
        self.door = directory / "go"
        self._here = here
        self._directory = directory
        self._dsn = dsn
        self._leaving = leaving

    def start(self, name: str, **settings: str) -> Command:
        """A pod that serves the queue."""
        environment = {**QUICK, "ROTA_DATABASE_URL": self._dsn, "ROTA_POD_ID": name, **settings}
        pod = self._leaving.enter_context(
            running(
                "worker", "--app", "shop:app", "--queues", "front", directory=self._directory, **environment
            )
        )
        pod.line("serves front")
        return pod

    def command(self, *arguments: str) -> Command:
        """A `rota` that runs."""
        return self._leaving.enter_context(running(*arguments, ROTA_DATABASE_URL=self._dsn))

    def __call__(self, *arguments: str, code: int = 0) -> Command:
        """A `rota` that has ended."""
        ended = rota(*arguments, ROTA_DATABASE_URL=self._dsn)
        assert ended.process.returncode == code, (ended.out, ended.err)
        return ended

    def json(self, *arguments: str) -> Any:
        """What a `rota` within this process tells machines."""
        return self._here.json(*arguments)

    def busy(self, pod: Command, jobs: int) -> None:
        """Have a pod run so many jobs, which end when the door is opened."""
        self.enqueue(jobs)
        for _ in range(jobs):
            pod.line('"waiting"')

    def enqueue(self, jobs: int = 1) -> None:
        for _ in range(jobs):
            self._here("enqueue", "wait_for", json.dumps(str(self.door)), "--queue", "front")

    def settled(self) -> Any:
        """The queue once every slot is where it ought to be."""
        queue = self.json("queue", "list")[0]
        return self.json("queue", "resize", "front", str(queue["max_workers"]), "--wait=settled")


@pytest.fixture
def fleet(tmp_path: Path, dsn: str, here: Rota) -> Iterator[Fleet]:
    with ExitStack() as leaving:
        fleet = Fleet(tmp_path, dsn, here, leaving)
        yield fleet
        fleet.door.touch()


def test_a_lowered_cap_is_waited_for_while_jobs_run_and_settles_when_they_end(fleet: Fleet) -> None:
    fleet.busy(fleet.start("a"), 6)
    lowered = fleet("queue", "resize", "front", "2", "--wait")
    assert lowered.out[-1].startswith('Queue "front": cap 2 in force after ')
    assert lowered.out[-1].endswith("6 slots are still busy with what runs.")
    waiting = fleet.command("queue", "resize", "front", "2", "--wait=settled")
    waiting.line("rota-worker-a gives back")
    fleet.door.touch()
    assert waiting.ended() == 0
    assert waiting.out[-1].startswith('Queue "front": cap 2 in force')
    assert "settled" in waiting.out[-1]
    (slots,) = fleet.json("slots", "front")
    assert (slots["target"], slots["held"], slots["running"]) == (2, 2, 0)


def test_a_cap_of_0_starts_nothing_and_a_raised_one_all_that_waits(fleet: Fleet) -> None:
    pod = fleet.start("a")
    stopped = fleet.json("queue", "resize", "front", "0", "--wait=settled")
    assert (stopped["in_force"], stopped["settled"], stopped["held"]) == (True, True, 0)
    fleet.enqueue()
    assert fleet.json("job", "show", "1")["waiting"].endswith("and its queue has max_workers 0")
    fleet.door.touch()
    raised = fleet.json("queue", "resize", "front", "1", "--wait")
    assert (raised["in_force"], raised["took"]) == (True, 0.0)
    pod.line(r"Job 1 \(wait_for in front\) done")


def test_a_cap_above_all_capacity_is_in_force_and_says_what_is_short(fleet: Fleet) -> None:
    fleet.start("a")
    fleet.start("b")
    raised = fleet("queue", "resize", "front", "40", "--wait")
    assert raised.out[-1].endswith("in force at once; pods can hold 16 of 40.")
    settled = fleet.settled()
    assert (settled["granted"], settled["held"], settled["short"]) == (16, 16, "pods can hold 16 of 40")


def test_two_resizes_within_a_beat_end_with_the_later_in_force_and_the_first_overtaken(fleet: Fleet) -> None:
    # A pod that hears no more acknowledges nothing, so that the first is still under way.
    pod = fleet.start("a", ROTA_POD_TTL="60")
    fleet.busy(pod, 6)
    pod.send(signal.SIGSTOP)
    first = fleet.command("queue", "resize", "front", "1", "--wait")
    first.line("not in force yet")
    later = fleet("queue", "resize", "front", "3")
    assert later.out[-1].startswith('Queue "front": cap 3 asked for, not in force yet')
    assert first.ended() == 1
    assert first.out == []
    assert (
        first.err[-1] == 'The cap 1 of queue "front" was overtaken by a later change before it was in force.'
    )
    pod.send(signal.SIGCONT)
    fleet.door.touch()
    assert fleet.settled()["granted"] == 3
    changes = fleet.json("queue", "show", "front")["changes"]
    assert [change["cap"] for change in changes] == [3, 1, 6]
    assert [change["in_force_at"] is not None for change in changes] == [True, False, True]


def test_without_a_live_pod_a_resize_returns_at_once_and_says_so(fleet: Fleet) -> None:
    made = fleet("queue", "create", "front", "--max-workers", "4")
    assert made.out == ['Queue "front" is made; 4 may run at once.']
    for workers, wait in (("9", "--wait"), ("0", "--wait"), ("2", "--wait=settled")):
        resized = fleet("queue", "resize", "front", workers, wait)
        assert resized.out == [f'Queue "front": cap {workers} in force at once; no live pod serves it.']
    assert fleet("queue", "list").err == ["Warning: no pod that is up serves front."]


def test_slots_of_pods_that_were_killed_are_named_and_rescued_by_hand(fleet: Fleet) -> None:
    pod = fleet.start("a")
    fleet.busy(pod, 6)
    pod.process.kill()
    waiting = fleet.command("queue", "resize", "front", "2", "--wait")
    assert waiting.ended() == 1
    assert "rota-worker-a fell silent with 6; no live pod serves it" in waiting.err[-1]
    assert [known["state"] for known in fleet.json("pods")] == ["silent"]
    assert fleet("rescue").out == ["1 pod expired (rota-worker-a), 6 jobs rescued."]
    assert fleet.json("rescue") == {"expired": [], "rescued": 0}
    assert fleet("queue", "resize", "front", "2", "--wait").out[-1].endswith("no live pod serves it.")
    assert {job["state"] for job in fleet.json("job", "list")} == {"ready"}


def test_a_pause_lets_what_runs_finish_and_starts_nothing_until_it_is_resumed(fleet: Fleet) -> None:
    pod = fleet.start("a")
    fleet.busy(pod, 1)
    paused = fleet("queue", "pause", "front", "--wait")
    assert paused.out[-1].startswith('Queue "front" is paused: cap 0 in force after ')
    assert paused.out[-1].endswith("1 slot is still busy with what runs; max_workers is 6.")
    fleet.enqueue()
    fleet.door.touch()
    pod.line(r"Job 1 \(wait_for in front\) done")
    assert fleet.json("job", "show", "2")["waiting"].endswith("and its queue is paused")
    assert fleet.json("queue", "resume", "front", "--wait=settled")["granted"] == 6
    pod.line(r"Job 2 \(wait_for in front\) done")


def test_a_job_that_waits_for_a_slot_names_who_has_them(fleet: Fleet) -> None:
    fleet.busy(fleet.start("a"), 6)
    fleet.enqueue()
    waiting = fleet.json("job", "show", "7")["waiting"]
    assert waiting.endswith("and all 6 slots of its queue are in use: rota-worker-a runs 6")


def test_a_drained_pod_hands_its_slots_over_and_its_process_ends(fleet: Fleet) -> None:
    staying, leaving = fleet.start("a"), fleet.start("b")
    fleet.settled()
    drained = fleet("pod", "drain", "rota-worker-b", "--wait")
    assert drained.out == ["Pod rota-worker-b has left."]
    assert leaving.ended() == 0
    assert [(pod["name"], pod["state"]) for pod in fleet.json("pods")] == [("rota-worker-a", "up")]
    settled = fleet.settled()
    assert [(row["name"], row["held"]) for row in settled["slots"]] == [("rota-worker-a", 6)]
    assert staying.process.poll() is None


def test_a_drain_is_not_held_up_by_who_waits_for_it(fleet: Fleet) -> None:
    pod = fleet.start("a")
    fleet.busy(pod, 1)
    drain = fleet("pod", "drain", "rota", "--wait", "--timeout", "100ms", code=1)
    assert drain.err == ["Pod rota-worker-a has not left in time; it goes on draining."]
    assert fleet.json("pods")[0]["state"] == "draining"
    fleet.door.touch()
    assert pod.ended() == 0


def test_ctrl_c_ends_the_waiting_and_not_the_resize(fleet: Fleet) -> None:
    fleet.busy(fleet.start("a"), 6)
    waiting = fleet.command("queue", "resize", "front", "2", "--wait=settled")
    waiting.line("in force, 6 slots held")
    waiting.send(signal.SIGINT)
    assert waiting.ended() == 130
    assert waiting.err[-1] == "No longer waiting; the change stays."
    assert waiting.out == []
    assert fleet.json("queue", "list")[0]["max_workers"] == 2


def test_a_resize_that_does_not_settle_in_time_is_exit_code_1_and_stays(fleet: Fleet) -> None:
    fleet.busy(fleet.start("a"), 6)
    late = fleet("queue", "resize", "front", "2", "--wait=settled", "--timeout", "200ms", code=1)
    assert late.err[-1].startswith('The cap 2 of queue "front" is not ')
    assert late.err[-1].endswith("the change stays.")
    assert fleet.json("queue", "list")[0]["max_workers"] == 2


def test_a_dry_run_shows_the_plan_and_changes_nothing(fleet: Fleet) -> None:
    fleet.start("a")
    fleet.settled()
    before = fleet.json("queue", "show", "front")
    shown = fleet("queue", "resize", "front", "40", "--dry-run")
    assert shown.out[0].startswith("Dry run, nothing is changed.")
    assert shown.out[-1].strip() == "Short: pods can hold 8 of 40."
    told = fleet.json("queue", "resize", "front", "2", "--dry-run")
    assert [(row["name"], row["before"], row["after"]) for row in told["slots"]] == [("rota-worker-a", 6, 2)]
    assert fleet.json("queue", "show", "front") == before


def test_a_running_pod_takes_up_another_retry_policy(fleet: Fleet) -> None:
    fleet.start("a")
    changed = fleet("queue", "set", "front", "retry=fixed:wait=30s", "max_workers=3", "--wait=settled")
    assert changed.out[0] == 'Set retry, max_workers of queue "front".'
    assert changed.out[1].startswith('Queue "front": cap 3 in force')
    shown = fleet.json("queue", "show", "front")
    assert (shown["max_workers"], shown["retry"]) == (3, {"policy": "fixed", "wait": 30.0})


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("queue", "resize", "nope", "4"), 1, 'There is no queue "nope"; there is front.'),
        (("queue", "show", "nope"), 1, 'There is no queue "nope"; there is front.'),
        (("queue", "pause", "nope", "--wait"), 1, 'There is no queue "nope"; there is front.'),
        (("queue", "resize", "nope", "4", "--dry-run"), 1, 'There is no queue "nope"; there is front.'),
        (("slots", "nope"), 1, 'There is no queue "nope"; there is front.'),
        (("queue", "resize", "front", "-1"), 2, "max_workers of 'front' is -1; it must be a whole number"),
        (("queue", "resize", "front", "-1", "--wait"), 2, "max_workers of 'front' is -1"),
        (("queue", "resize", "front", "many"), 2, "max_workers of 'front' is 'many'; it must be"),
        (("queue", "resize", "front", "1.5"), 2, "max_workers of 'front' is '1.5'"),
        (("queue", "resize", "front", "2147483648"), 2, "from 0 to 2147483647."),
        (("queue", "resize", "front", "9" * 5000), 2, "from 0 to 2147483647."),
        (("queue", "resize", " ", "4"), 2, "The queue name ' ' cannot be used"),
        (("queue", "create", "front"), 1, 'Queue "front" exists already and was left as it is'),
        (("queue", "create", "new", "--max-workers", "-1"), 2, "max_workers of 'new' is -1"),
        (("queue", "set", "front", "colour=red"), 2, "max_workers, paused, retry can be set."),
        (("queue", "set", "front", "max_workers=x"), 2, "max_workers of 'front' is 'x'"),
        (("pod", "drain", "nobody"), 1, 'There is no pod "nobody"; there is none.'),
    ],
)
def test_bad_input_is_one_sentence_and_changes_nothing(
    here: Rota, arguments: tuple[str, ...], code: int, said: str
) -> None:
    here("queue", "create", "front", "--max-workers", "4")
    assert here(*arguments, code=code) == ""
    assert said in here.err
    assert here.err.count("\n") == 1
    (queue,) = here.json("queue", "list")
    assert (queue["queue"], queue["max_workers"], queue["paused"]) == ("front", 4, False)


def test_every_answer_has_its_shape_for_machines(fleet: Fleet) -> None:
    fleet.start("a", ROTA_POD_ZONE="eu-1", ROTA_POD_VERSION="2")
    resized = fleet.json("queue", "resize", "front", "4", "--wait=settled")
    assert set(resized) == {
        "queue", "max_workers", "paused", "cap", "change", "in_force", "took", "settled",
        "granted", "held", "grantable", "pods", "short", "slots",
    }  # fmt: skip
    assert set(resized["slots"][0]) == {"pod", "name", "target", "held"}
    (listed,) = fleet.json("queue", "list")
    assert listed == {
        "queue": "front", "max_workers": 4, "paused": False, "cooling": False, "granted": 4, "held": 4,
        "running": 0, "ready": 0, "scheduled": 0, "pods": 1,
    }  # fmt: skip
    shown = fleet.json("queue", "show", "front", "--last", "1")
    assert {name: shown[name] for name in listed} == listed
    assert [set(change) for change in shown["changes"]] == [{"id", "cap", "asked_at", "in_force_at"}]
    assert "front" in shown["plans"][0]["sentence"]
    (pod,) = fleet.json("pods")
    assert (pod["name"], pod["zone"], pod["version"], pod["leads"]) == ("rota-worker-2-a", "eu-1", "2", True)
    assert (pod["held"], pod["target"], pod["capacity"], pod["queues"]) == (4, 4, 8, ["front"])
    (slot,) = fleet.json("slots")
    assert (slot["pod"], slot["queue"], slot["held"]) == (pod["id"], "front", 4)
    assert set(fleet.json("pod", "drain", pod["id"])) == {"pod", "name", "running", "left"}
