"""A figure: one thing measured of one contender, several times. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, slots=True)
class Figure:
    """The runs of one work by one contender."""

    work: str
    contender: str
    unit: str
    values: list[float] = field(default_factory=list)

    @property
    def value(self) -> float:
        return median(self.values)

    @property
    def spread(self) -> float:
        """The width of all runs, as a share of the median."""
        return (max(self.values) - min(self.values)) / self.value if self.value else 0.0


class Figures:
    """All figures of a run, in the order in which they were first seen."""

    def __init__(self) -> None:
        self._figures: dict[tuple[str, str], Figure] = {}

    def add(self, work: str, contender: str, value: float, unit: str) -> Figure:
        """One more run of a work by a contender."""
        figure = self._figures.setdefault((work, contender), Figure(work, contender, unit))
        figure.values.append(value)
        return figure

    def find(self, work: str, contender: str) -> Figure | None:
        """The figure, if this run has it."""
        return self._figures.get((work, contender))

    def all(self) -> list[Figure]:
        """Every figure: works of one word together, then runs of one work."""
        words = list(dict.fromkeys(_word(work) for work, _ in self._figures))
        works = list(dict.fromkeys(work for work, _ in self._figures))
        return sorted(
            self._figures.values(),
            key=lambda figure: (words.index(_word(figure.work)), works.index(figure.work)),
        )


def percentile(values: list[float], share: float) -> float:
    """The value below which this share of the values lies, none made up between two."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _word(work: str) -> str:
    """The word of --only that a work goes by."""
    return work.partition(":")[0]
