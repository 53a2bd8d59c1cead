"""The measures: what is looked at, and what "it grows" means for each.

A query that does the same for ever needs no more for it in the end than in the middle. Both are looked at in the same
configuration, at rest. Between them lies half of all migrations and kills, so that what one of them leaves behind is
there many times; what differs by chance has an allowance.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from megaphone.control.controller import HISTORY
from megaphone.harness.soak.census import DRIVER, JAVA, OTHERS, PYTHON, WORKERS
from megaphone.harness.soak.job import WORKERS as QUERY_WORKERS
from megaphone.service.chronicle import LINES
from megaphone.service.timeline import MOST

Figures = Mapping[str, float]

EPOCH = "an epoch: median"


class Rule(Protocol):
    """When a measure has grown that should not."""

    def grows(self, middle: float, end: float) -> bool:
        """Has it?"""


@dataclass(frozen=True, slots=True)
class Flat:
    """At the end at most what it was in the middle, and an allowance: an amount or a share, whichever is more."""

    amount: float
    share: float = 0.0

    def grows(self, middle: float, end: float) -> bool:
        """Is the end above the middle by more than is allowed?"""
        return end > middle + max(self.amount, self.share * middle)

    def __str__(self) -> str:
        share = f" or {self.share:.0%}" if self.share else ""
        return f"+{self.amount:g}{share}"


@dataclass(frozen=True, slots=True)
class AtMost:
    """Never above a bound."""

    bound: float

    def grows(self, middle: float, end: float) -> bool:
        """Is it?"""
        return max(middle, end) > self.bound

    def __str__(self) -> str:
        return f"at most {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Shown:
    """For the reader: it may be what it is."""

    def grows(self, middle: float, end: float) -> bool:
        """Never."""
        return False

    def __str__(self) -> str:
        return "shown"


@dataclass(frozen=True, slots=True)
class Measure:
    """One line of the table."""

    name: str
    unit: str
    rule: Rule


@dataclass(frozen=True, slots=True)
class Line:
    """What was seen of a measure, and whether it is right."""

    name: str
    unit: str
    start: float
    middle: float
    end: float
    rule: str
    grows: bool


def _process(kind: str, threads: float, descriptors: float, memory: Rule) -> list[Measure]:
    return [
        Measure(f"{kind}: threads", "", Flat(threads)),
        Measure(f"{kind}: descriptors", "", Flat(descriptors)),
        Measure(f"{kind}: memory", "MiB", memory),
    ]


def _processes(kind: str, most: Rule) -> list[Measure]:
    """Of many processes, also of the largest: a small growth in each is a large one of all, and the other way round."""
    return [
        Measure(f"{kind}: processes", "", most),
        *_process(kind, 8, 16, Flat(32, 0.1)),
        Measure(f"{kind}: threads of one", "", Flat(4)),
        Measure(f"{kind}: descriptors of one", "", Flat(6)),
        Measure(f"{kind}: memory of one", "MiB", Flat(16, 0.05)),
    ]


def _answer(path: str, entry: str, most: float) -> list[Measure]:
    """An answer that has an entry for each of something: so many at most, and none larger than before."""
    return [
        Measure(f"{path}: {entry}", "", AtMost(most)),
        Measure(f"{path}: bytes of each", "B", Flat(8, 0.05)),
    ]


MEASURES = (
    *_process(DRIVER, 4, 6, Flat(8, 0.05)),
    Measure(f"{DRIVER}: objects", "", Flat(4000, 0.02)),
    *_process(JAVA, 6, 16, Shown()),
    Measure(f"{JAVA}: heap in use", "MiB", Flat(8, 0.05)),
    *_processes(PYTHON, Flat(2)),
    *_processes(WORKERS, AtMost(QUERY_WORKERS)),
    Measure(f"{OTHERS}: processes", "", AtMost(0)),
    Measure("checkpoint, ours: files, the most so far", "", Flat(30, 0.25)),
    Measure("checkpoint, ours: bytes, the most so far", "MiB", Flat(1, 0.25)),
    Measure("checkpoint, Spark's: files", "", Flat(6)),
    Measure("checkpoint, Spark's: bytes", "kB", Flat(4, 0.1)),
    Measure("an epoch's plan: bytes", "B", Flat(32)),
    Measure("temporary files, ours", "", Flat(2)),
    Measure("temporary files, Spark's", "", Flat(150, 0.5)),
    Measure("logged a minute", "kB", Flat(4, 0.25)),
    Measure("tracebacks on the terminal", "", AtMost(0)),
    *(Measure(f"{path}: bytes", "B", Flat(100, 0.05)) for path in ("/status", "/bins", "/metrics")),
    *_answer("/history", "migrations", HISTORY),
    *_answer("/timeline", "epochs", MOST),
    *_answer("/progress", "epochs", LINES),
    Measure(EPOCH, "ms", Shown()),
)


def judged(start: Figures, middle: Figures, end: Figures) -> list[Line]:
    """Every measure at three moments, and whether it grows."""
    return [_judged(measure, *(figures[measure.name] for figures in (start, middle, end))) for measure in MEASURES]


def _judged(measure: Measure, start: float, middle: float, end: float) -> Line:
    grows = measure.rule.grows(middle, end)
    return Line(measure.name, measure.unit, start, middle, end, str(measure.rule), grows)
