"""The summary of a run, in figures.

Latency is told for the warm-up, for every migration (events due from a second before it began until a second after its
end, since an epoch has events that were due before it), and for the rest, which is called steady.
Neighbours: job.py has what happened.  To: page.py, picture.py.
"""

import os
import platform
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import msgspec

from megaphone.control.controller import Migration
from megaphone.harness.latency import Histogram
from megaphone.harness.nexmark.arguments import Settings
from megaphone.harness.nexmark.course import Course
from megaphone.harness.nexmark.job import Begun, Job
from megaphone.harness.nexmark.questions import question
from megaphone.harness.schedule import SECOND_NS
from megaphone.harness.timeline import INTERVAL_NS, Timeline
from megaphone.service.encoding import encode_json

LEAD_S = 1.0

PROCESSES = "resident memory of the worker processes, Python itself included"
STORES = "memory of Spark's state stores, as Spark tells it"


@dataclass(frozen=True, slots=True)
class Latency:
    """Of the events that were due in some spans of time."""

    events: int
    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, timeline: Timeline, due: Callable[[float], bool]) -> "Latency":
        """Of events that were due in seconds that are wanted."""
        wanted = (found for number, found in timeline.intervals.items() if due(number * INTERVAL_NS / SECOND_NS))
        samples = Histogram().merge(wanted)
        told = (samples.quantile(0.5), samples.quantile(0.99), samples.max)
        return cls(len(samples), *(round(ns / 1e6, 1) for ns in told))


@dataclass(frozen=True, slots=True)
class Moved:
    """A migration, as it was wished and as it went; seconds count from when the first event was due."""

    strategy: str
    target: str
    wished_s: float
    began_s: float
    ended_s: float
    phase: str
    steps: int
    steps_done: int
    bins: int
    bins_moved: int
    bytes_moved: int
    latency: Latency

    @classmethod
    def of(cls, begun: Begun, start_s: float, timeline: Timeline) -> "Moved":
        """What a migration came to; one that did not begin ended where it would have."""
        migration, plan = begun.migration, begun.migration.plan
        span = began_s, ended_s = span_of(migration, start_s)
        return cls(
            plan.strategy,
            begun.wish.target,
            begun.wish.at_s,
            round(began_s, 3),
            round(ended_s, 3),
            migration.phase,
            len(plan.steps),
            migration.completed,
            len(plan.moves),
            migration.bins_moved,
            migration.bytes_moved,
            Latency.of(timeline, lambda second: _is_near(second, [span])),
        )


@dataclass(frozen=True, slots=True)
class Lag:
    """How long ago the events at the frontier were due, seen now and then after the warm-up."""

    p50_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes, and of what."""

    what: str
    at_the_end: int
    at_most: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything that is told of a run."""

    query: str
    question: str
    ended: str
    """complete, interrupted, or behind: it did not keep up."""
    settings: dict[str, Any]
    machine: dict[str, Any]
    seconds: float
    """For which events have been due."""
    preload: int
    """Events that came before, all at once."""
    events: int
    """That were done since, of all kinds, whether the query reads them or not."""
    due: int
    """Events that were due when it ended; they come until then."""
    epochs: int
    late: int
    """Records that came behind the frontier, and were not applied."""
    warm_up: Latency
    steady: Latency
    migrations: list[Moved]
    frontier_lag: Lag | None
    memory: Memory

    def as_json(self) -> str:
        """For programs."""
        return msgspec.json.format(encode_json(self), indent=2).decode() + "\n"


def summarise(job: Job, course: Course, timeline: Timeline, ended: str) -> Summary:
    """What a run came to."""
    settings, status = job.settings, job.status
    start_s, warm_up_s = course.schedule.start_ns / SECOND_NS, settings.warm_up_s
    spans = [span_of(begun.migration, start_s) for begun in job.begun]
    seconds = course.readings[-1].second if course.readings else 0.0
    return Summary(
        settings.query,
        question(settings.query),
        ended,
        _told(settings),
        {"cores": os.cpu_count(), "python": platform.python_version(), "spark": version("pyspark")},
        round(seconds, 3),
        course.preload,
        course.events,
        course.schedule.due_by(course.schedule.start_ns + int(seconds * SECOND_NS)),
        job.said["batchId"] + 1,
        sum(status.late.values()) if status else 0,
        Latency.of(timeline, lambda second: second < warm_up_s),
        Latency.of(timeline, lambda second: second >= warm_up_s and not _is_near(second, spans)),
        [Moved.of(begun, start_s, timeline) for begun in job.begun],
        _lag(course, warm_up_s),
        _memory(course, STORES if settings.version == "spark" else PROCESSES),
    )


def span_of(migration: Migration, start_s: float) -> tuple[float, float]:
    """From when to when a migration went on, in seconds since the start."""
    began_s = (migration.began_s or migration.asked_s) - start_s
    return began_s, began_s + migration.duration_s


def _is_near(second: float, spans: Iterable[tuple[float, float]]) -> bool:
    return any(begin - LEAD_S <= second < end + LEAD_S for begin, end in spans)


def _told(settings: Settings) -> dict[str, Any]:
    told = asdict(settings)
    told["out"] = str(settings.out)
    return told


def _lag(course: Course, warm_up_s: float) -> Lag | None:
    seen = sorted(r.lag_ms for r in course.readings if r.lag_ms is not None and r.second >= warm_up_s)
    return Lag(round(seen[len(seen) // 2], 1), round(seen[-1], 1)) if seen else None


def _memory(course: Course, what: str) -> Memory:
    seen = [reading.memory for reading in course.readings]
    return Memory(what, seen[-1] if seen else 0, max(seen, default=0))
