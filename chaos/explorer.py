"""A breadth-first search over every state the protocol can reach, by the rules of cluster/ and the real
planner, for one that breaks a promise. `searches` is the command line, and what `make explore` runs.

Reading order: protocol (what there is), beating, claiming, living, leading, failover (what happens),
canon and world (how states are kept), convergence, and here the search; then searches and variants.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from .convergence import Convergence
from .protocol import CAP_BROKEN, HELD_BROKEN, LEADER_BROKEN, SHORT, Setting
from .rulebook import Rulebook
from .world import World

ALL = (CAP_BROKEN, LEADER_BROKEN, HELD_BROKEN, SHORT)
NAMES = "ABC"

Tell = Callable[[str], None]


class Result(NamedTuple):
    """What a search found: nothing, or what is broken and the shortest script that leads there."""

    states: int
    events: int
    depth: int
    rounds: int
    seconds: float
    megabytes: int
    broken: str = ""
    script: tuple[str, ...] = ()

    def __str__(self) -> str:
        figures = (
            f"{self.states:,} states, {self.events:,} events, {self.depth} deep, converging within "
            f"{self.rounds} rounds, {self.seconds:.0f} s of one core, {self.megabytes:,} MB"
        )
        if not self.broken:
            return figures
        lines = [f"{number:3}. {line}" for number, line in enumerate(self.script)]
        return "\n".join([*lines, f"     {self.broken}", f"({figures})"])


def explore(
    setting: Setting,
    rules: Rulebook | None = None,
    *,
    asserting: Collection[str] = ALL,
    tell: Tell = lambda _: None,
) -> Result:
    """Visit every state; where one breaks what is asserted, how it came to that in the fewest events."""
    rules = rules or Rulebook()
    search = Search(World(setting, rules), asserting, tell)
    search.run()
    if search.broken:
        # Again, now remembering where each state came from: only as deep as it was broken.
        again = Search(World(setting, rules), asserting, tell, remember=True)
        again.run()
        return search.result()._replace(script=again.script())
    return search.result()


class Search:
    """One run through a world, level by level."""

    def __init__(
        self, world: World, asserting: Collection[str], tell: Tell, *, remember: bool = False
    ) -> None:
        self._world = world
        self._asserting = asserting
        self._tell = tell
        self._convergence = Convergence(world) if SHORT in asserting else None
        self._came: dict[int, int] | None = {} if remember else None
        self._seen: set[int] = set()
        self._events = 0
        self._depth = 0
        self._began = self._told = time.monotonic()
        self._spent = time.process_time()
        self.broken = ""
        self._at = 0
        """The state in which it was broken."""

    def run(self) -> None:
        """Visit every state, or all up to the first that breaks something."""
        level = list(dict.fromkeys(self._world.first()))
        self._seen.update(level)
        while level and not self._judged(level):
            level = self._next(level)
            self._depth += bool(level)
            if self.broken:
                return
            self._progress(len(level))

    def _next(self, level: list[int]) -> list[int]:
        """The states one event further that were not seen before."""
        found: list[int] = []
        seen, following, came = self._seen, self._world.following, self._came
        for state in level:
            after, broken = following(state)
            if broken and broken in self._asserting:
                self.broken, self._at = broken, state
                return []
            self._events += len(after)
            for other in after:
                if other not in seen:
                    seen.add(other)
                    found.append(other)
                    if came is not None:
                        came[other] = state
        return found

    def _judged(self, level: Iterable[int]) -> bool:
        """Whether a state of this level breaks what must hold of every state."""
        unfit = self._world.unfit and HELD_BROKEN in self._asserting
        for state in level:
            if unfit and not self._world.fit(*self._world.unpack(state)):
                self.broken, self._at = HELD_BROKEN, state
            elif self._convergence and not self._convergence.holds(state):
                self.broken, self._at = SHORT, state
            if self.broken:
                return True
        return False

    def _progress(self, width: int) -> None:
        now = time.monotonic()
        if now - self._told > 5 and width:
            self._told = now
            rate = len(self._seen) / (now - self._began)
            states = f"{len(self._seen):,} states, {width:,} of them new"
            self._tell(f"  {self._depth} deep: {states}, {rate:,.0f} a second")

    def result(self) -> Result:
        """The figures."""
        return Result(
            len(self._seen),
            self._events,
            self._depth,
            self._convergence.rounds if self._convergence else 0,
            time.process_time() - self._spent,
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            self.broken,
        )

    def script(self) -> tuple[str, ...]:
        """How it came to the state that was broken, pods by their names."""
        assert self._came is not None
        path = [self._at]
        while path[-1] in self._came:
            path.append(self._came[path[-1]])
        world = self._world
        queue, pods = world.unpack(path.pop())
        lines = [f"the queue may run {world.queues.things[queue].workers}"]
        while path:
            wanted = path.pop()
            step = next(
                step for step in world.steps(queue, pods) if world.pack(step.queue, step.pods) == wanted
            )
            lines.append(_named(step.words, step.place))
            queue, pods = step.queue, step.pods
        last = [step for step in world.steps(queue, pods) if step.broken == self.broken]
        return (*lines, *(_named(step.words, step.place) for step in last[:1]))


def _named(words: str, place: int) -> str:
    return words.format(*NAMES) if place < 0 else words.format(NAMES[place])
