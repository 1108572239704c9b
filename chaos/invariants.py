"""The judge: from a history it decides whether the promises of DESIGN 2 were kept. Pure.

It knows nothing of slots, targets or beats, only of what ran when and which caps were in force.
Every law is a function from facts to sentences, one for each time it was broken.

**The cap in force.** A change counts from `in_force_at` on, and ends all changes before it, whether
they ever were in force or not. Until then the greatest counts of the change in force and of all that
were asked for since: what is lowered may still be used, and a raise may be used at once.

**Instants.** They are microseconds, and facts of one instant may have happened in any order: a
history is rejected only if every order of them breaks the law. So at one instant runs end before
others start, and the cap that counts is the greatest before, at and after it. This hides no more
than an overlap of less than a microsecond. Within one transaction it is the truth: Rota ends runs
before it claims the next into their slots.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import TypeVar

from .history import CapChange, Claimed, Ended, Freed, Gone, History, Instant, Run, runs_of

T = TypeVar("T", Run, CapChange)

_NEVER = -1


def judge(history: History) -> list[str]:
    """Every broken promise, in words; empty: all were kept."""
    runs = runs_of(history.facts)
    return [
        *cap_broken(runs, history.changes),
        *(f"by its handlers, {wrong}" for wrong in cap_broken(history.handlers, history.changes)),
        *raised_late(history.changes),
        *handlers_outside(history.handlers, runs),
        *several_writers(history),
        *not_ended_once(history),
        *attempts_burned(history, runs),
        *expired_early(history),
    ]


# Promise 1: the cap holds.


class CapInForce:
    """The cap of one queue as it was at each instant."""

    def __init__(self, changes: Sequence[CapChange]) -> None:
        asked = {change.asked_at for change in changes}
        forced = {change.in_force_at for change in changes if change.in_force_at is not None}
        self._instants = sorted(asked | forced)
        self._caps = [_cap_at(changes, instant) for instant in self._instants]

    def after(self, at: Instant) -> int:
        """The cap once all of this instant has happened; 0 while nobody has given any."""
        place = bisect_right(self._instants, at)
        return self._caps[place - 1] if place else 0

    def greatest(self, at: Instant) -> int:
        """The greatest that counted at this instant, in whichever order its facts happened."""
        return max(self.after(at - 1), self.after(at))


def _cap_at(changes: Sequence[CapChange], at: Instant) -> int:
    cap = 0
    for change in changes:
        if change.in_force_at is not None and change.in_force_at <= at:
            cap = change.cap
        elif change.asked_at <= at:
            cap = max(cap, change.cap)
    return cap


def cap_broken(runs: Iterable[Run], changes: Iterable[CapChange]) -> list[str]:
    """No job of a queue starts while the cluster already runs as many as the cap in force."""
    caps = {queue: CapInForce(asked) for queue, asked in _by_queue(changes).items()}
    unknown = CapInForce(())
    return [
        f"job {run.job} of {queue} started (claim {run.claim}, pod {run.pod}, at {run.started}) while "
        f"{running} ran and the cap in force was {cap}"
        for queue, its_runs in _by_queue(runs).items()
        for run, running in _started_beside(its_runs)
        if running >= (cap := caps.get(queue, unknown).greatest(run.started))
    ]


def most_at_once(runs: Iterable[Run]) -> dict[str, int]:
    """The greatest number of runs of each queue at one time; tells whether a history tests anything."""
    return {
        queue: max(running + 1 for _, running in _started_beside(its_runs))
        for queue, its_runs in _by_queue(runs).items()
    }


def _started_beside(runs: Iterable[Run]) -> Iterable[tuple[Run, int]]:
    """Each run of a queue in the order of starting, and how many of the earlier went on."""
    ends: list[Instant] = []
    endless = 0
    for run in sorted(runs, key=lambda run: run.started):
        while ends and ends[0] <= run.started:
            heappop(ends)
        yield run, len(ends) + endless
        if run.ended is None:
            endless += 1
        else:
            heappush(ends, run.ended)


def _by_queue(facts: Iterable[T]) -> Mapping[str, list[T]]:
    queues: defaultdict[str, list[T]] = defaultdict(list)
    for fact in facts:
        queues[fact.queue].append(fact)
    return queues


def raised_late(changes: Iterable[CapChange]) -> list[str]:
    """A raised cap is in force at once."""
    wrong = []
    for queue, asked in _by_queue(changes).items():
        for place, change in enumerate(asked):
            before = _cap_at(asked[:place], change.asked_at)
            if change.cap >= before and change.in_force_at != change.asked_at:
                wrong.append(f"the cap of {queue} was raised from {before} to {change.cap}, but not at once")
    return wrong


# Handlers, as they saw themselves.


def handlers_outside(handlers: Iterable[Run], runs: Iterable[Run]) -> list[str]:
    """A handler runs once for each claim, and only while the database knows that it does."""
    known = {(run.job, run.claim): run for run in runs}
    wrong = []
    for (job, claim), times in Counter((seen.job, seen.claim) for seen in handlers).items():
        if times > 1:
            wrong.append(f"the handler of job {job} ran {times} times for claim {claim}")
    for seen in handlers:
        run = known.get((seen.job, seen.claim))
        if run is None or run.pod != seen.pod:
            wrong.append(f"the handler of job {seen.job} ran on pod {seen.pod} without claim {seen.claim}")
        elif seen.started < run.started:
            wrong.append(f"the handler of job {seen.job} began before its claim {seen.claim} was committed")
        elif run.ended is not None and (seen.ended is None or seen.ended > run.ended):
            wrong.append(f"the handler of job {seen.job} went on after its run (claim {seen.claim}) was over")
    return wrong


# Promises 2 and 3: no job is lost, one writer per run.


def several_writers(history: History) -> list[str]:
    """Each claim number is given once and in order, and what one claim began, only it ends."""
    wrong = []
    last: dict[int, int] = {}
    running: dict[int, int] = {}
    for fact in history.facts:
        if isinstance(fact, Claimed):
            if fact.job in running:
                wrong.append(f"job {fact.job} was claimed ({fact.claim}) while claim {running[fact.job]} ran")
            if fact.claim != last.get(fact.job, 0) + 1:
                wrong.append(f"claim {fact.claim} of job {fact.job} came after claim {last.get(fact.job, 0)}")
            running[fact.job] = last[fact.job] = fact.claim
        elif isinstance(fact, Freed):
            if running.get(fact.job, _NEVER) != fact.claim:
                wrong.append(f"job {fact.job} was ended for claim {fact.claim}, which did not run")
            running.pop(fact.job, None)
        elif isinstance(fact, Ended):
            if fact.claim != last.get(fact.job, 0):
                wrong.append(f"job {fact.job} ended under claim {fact.claim}, not under its last")
            if fact.state == "done" and fact.told != fact.claim:
                wrong.append(
                    f"the outcome of job {fact.job} is that of claim {fact.told}, not of {fact.claim}"
                )
    return wrong


def not_ended_once(history: History) -> list[str]:
    """Every job ends exactly once, and nothing runs after its end."""
    times = Counter(fact.job for fact in history.facts if isinstance(fact, Ended))
    wrong = [
        f"job {job} ended {times[job]} times" if times[job] else f"job {job} never ended"
        for job in sorted(history.jobs)
        if times[job] != 1
    ]
    wrong += [f"job {job} ended, and nobody had enqueued it" for job in sorted(times.keys() - history.jobs)]
    over: set[int] = set()
    for fact in history.facts:
        if isinstance(fact, Ended):
            over.add(fact.job)
        elif isinstance(fact, Claimed) and fact.job in over:
            wrong.append(f"job {fact.job} was claimed again after its end")
    return wrong


# Promise 8: planned changes cost no attempts. (No handler in such a history fails by itself.)


def attempts_burned(history: History, runs: Iterable[Run]) -> list[str]:
    """Only a pod that was harmed loses runs, and only these and the last run count as attempts.

    Each but one that ends the job is a rescue.
    """
    wrong = []
    of_job: defaultdict[int, list[Run]] = defaultdict(list)
    for run in runs:
        of_job[run.job].append(run)
        if run.lost and run.pod not in history.harmed:
            wrong.append(f"job {run.job} was lost (claim {run.claim}) by pod {run.pod}, which nobody harmed")
    for fact in history.facts:
        if isinstance(fact, Ended):
            its_runs = of_job[fact.job]
            died = bool(its_runs) and its_runs[-1].lost
            rescues = sum(run.lost for run in its_runs) - died
            attempts = sum(run.lost and not run.given_back for run in its_runs)
            attempts += bool(its_runs) and not died
            if (fact.attempt, fact.rescues) != (attempts, rescues):
                wrong.append(
                    f"job {fact.job} ended with {fact.attempt} attempts and {fact.rescues} rescues, where "
                    f"{attempts} and {rescues} were due"
                )
    return wrong


def expired_early(history: History) -> list[str]:
    """A pod that may still be running something is removed only when its time is up."""
    left = [fact for fact in history.facts if isinstance(fact, Gone) and not fact.replaced]
    lost = {(run.pod, run.incarnation) for run in runs_of(history.facts) if run.lost}
    return [
        f"pod {fact.pod} was removed {fact.expires_at - fact.at} µs before its time was up, with jobs running"
        for fact in left
        if fact.at < fact.expires_at and (fact.pod, fact.incarnation) in lost
    ]
