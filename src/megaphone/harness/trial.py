"""A trial: one query under an open-loop stream, its state moved out and back, and everything of it measured.

Warm-up is left out. A migration answers for the records that were due from just before it began until just after it
ended; what lies outside all migrations is steady. The schedule waits for nobody.
Neighbours: counting.py builds what is tried, sampling.py goes along, results.py keeps what is found.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from megaphone.configuration import Assignment
from megaphone.control.controller import Migration
from megaphone.control.targets import skewed, without
from megaphone.engine.spark.control import Control
from megaphone.harness import counting
from megaphone.harness.experiment import Parameters
from megaphone.harness.latency import Histogram
from megaphone.harness.observe import Observer
from megaphone.harness.sampling import Sample, Sampler, stolen
from megaphone.harness.stage import Stage
from megaphone.harness.timeline import Timeline

LEAD_S = 1.0
"""The records of a migration's first epoch were due before it began, and a backlog is there when it ends."""
LOOK_EVERY_S = 0.5
"""Spark keeps a hundred epochs; to ask for them costs some milliseconds of a core that is being measured."""
POLL_S = 0.02
DRAINED_S = 1.5
"""An epoch or two, and the time between two looks."""
DRAIN_LIMIT_S = 120.0
STUCK_S = 600.0
"""How long after a cancellation the step in flight may take."""
LOAD_LIMIT_S = 900.0
SATURATED_S = 30.0
"""Epochs longer than this only grow: there is more to do than can be done."""
TIMES_STEADY = "times_steady"
"""An option of a strategy that follows a latency target: the target, as a multiple of the steady maximum."""
TARGET = "latency_target"
"""What that option becomes, in seconds."""


def count(parameters: Parameters, stage: Stage) -> dict[str, Any]:
    """A counting benchmark, migrated by each strategy that the parameters name."""
    frame, control = counting.build(stage.spark, parameters)
    with running(stage, frame, control, parameters, counting.preload_of(parameters), "record") as trial:
        return trial.play()


def nexmark(parameters: Parameters, stage: Stage) -> dict[str, Any]:
    """One of NEXMark's queries, migrateable or native."""
    from megaphone.nexmark.native import NATIVE
    from megaphone.nexmark.queries import QUERIES, Windows

    query, native = QUERIES[parameters["query"]], parameters["version"] == "native"
    bins, share = (2, 0.0) if native else (parameters["bins"], parameters["snapshot_share"])
    control = Control(stage.spark, parameters["workers"], bins, snapshot_share=share)
    streams = query.read(stage.spark.readStream, rate=parameters["rate"], **parameters["stream"])
    frame = (NATIVE[query.name] if native else query.build)(control, streams, Windows())
    with running(stage, frame, control, parameters, parameters["stream"].get("preload", 0), "event") as trial:
        return trial.play()


@contextmanager
def running(
    stage: Stage, frame: DataFrame, control: Control | None, parameters: Parameters, preload: int, unit: str
) -> Iterator["Trial"]:
    """A query, from its start until it is stopped; its checkpoint is gone afterwards."""
    with stage.folder() as folder:
        writer = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(folder))
        query = writer.start()
        observer = Observer(query, parameters["rate"], preload, unit)
        with Sampler(lambda: _pids(control), _extra(stage, control)) as sampler:
            trial = Trial(stage, query, control, parameters, observer, sampler)
            try:
                yield trial
            finally:
                trial.query.stop()


class Saturated(Exception):
    """More is offered than can be done."""


class Trial:
    """One query under load."""

    def __init__(
        self,
        stage: Stage,
        query: StreamingQuery,
        control: Control | None,
        parameters: Parameters,
        observer: Observer,
        sampler: Sampler,
    ) -> None:
        """The query was just started."""
        self._stage, self.query, self._control = stage, query, control
        self._parameters, self._observer, self._sampler = parameters, observer, sampler
        self._home = Assignment([])
        self._steady: list[tuple[float, float]] = []
        self._looked = 0.0

    @property
    def timeline(self) -> Timeline:
        """Latency so far."""
        assert self._observer.timeline is not None
        return self._observer.timeline

    def play(self) -> dict[str, Any]:
        """Load, warm up, and then for each strategy: steady, out, steady, back."""
        migrations: list[dict[str, Any]] = []
        try:
            self.load()
            self._migrations(migrations)
        except Saturated:
            return {**self.found(migrations), "saturated": True}
        return self.found(migrations)

    def _migrations(self, migrations: list[dict[str, Any]]) -> None:
        given = self._parameters
        for options in given.get("strategies", ()):
            for way in ("out", "back"):
                self.steady(given["steady_s"], f"steady before {options['strategy']} {way}")
                migrations.append(self.migrate(way, **options))
                self.settle(f"settling after {options['strategy']} {way}")
        self.steady(given["steady_s"], "steady")
        # What was due in the last seconds is done by then.
        self.wait(given["settle_s"], "settling")

    def load(self) -> None:
        """Until the state is there, the schedule has begun, and the JVM is warm."""
        self.until(lambda: self._observer.timeline is not None, "loading", LOAD_LIMIT_S)
        self.wait(
            self._parameters["warm_up_s"] + (self._parameters["cold_s"] if self._stage.is_cold else 0), "warming up"
        )
        self._stage.is_cold = False

    def steady(self, seconds: float, what: str) -> None:
        """A stretch in which nothing moves."""
        begin = time.time()
        self.wait(seconds, what)
        self._steady.append((begin, time.time() - LEAD_S))

    def settle(self, what: str) -> None:
        """Until the backlog that a migration has left is gone, so that it is not taken for steady."""
        self.wait(self._parameters["settle_s"], what)
        deadline = time.monotonic() + DRAIN_LIMIT_S
        self.until(lambda: self._behind_s() < DRAINED_S or time.monotonic() > deadline, what, 2 * DRAIN_LIMIT_S)

    def _behind_s(self) -> float:
        """How long ago the next record to be done was due."""
        return time.time() - self.timeline.schedule.due_ns(self._observer.done) / 1e9

    def migrate(self, way: str, strategy: str, **options: Any) -> dict[str, Any]:
        """Move a quarter of the state away, or one worker's, or back; cancelled if it takes too long."""
        assert self._control is not None
        (status,) = self._control.status()
        if way == "out":
            self._home = status.assignment
        told = self._options(options)
        migration = self._control.migrate(self._away() if way == "out" else self._home, strategy, **told)
        steps = self._follow(migration, f"{strategy} {way}")
        return self._told(migration, way, strategy, {**options, **told}, steps)

    def _away(self) -> Assignment:
        drained, workers = self._parameters.get("drained"), self._parameters["workers"]
        return skewed(self._home) if drained is None else without(self._home, [drained], workers)

    def rescale(self, workers: int, strategy: str, **options: Any) -> dict[str, Any]:
        """Go on with another number of workers; it begins when it is asked for, and they have yet to be started."""
        assert self._control is not None
        asked = time.time()
        migration = self._control.rescale(workers, strategy, **options)
        steps = self._follow(migration, f"{strategy} to {workers} workers")
        told = self._told(migration, "out", strategy, options, steps)
        began = asked - self.timeline.schedule.start_ns / 1e9
        return {**told, "began_s": round(began, 3), "duration_s": round(told["ended_s"] - began, 3)}

    def replace(self, stop_and_start: Callable[[StreamingQuery], StreamingQuery], what: str) -> dict[str, Any]:
        """Stop the query and start another in its place; it ends with the first epoch that has records."""
        start, began = self.timeline.schedule.start_ns / 1e9, time.time()
        self.query = stop_and_start(self.query)
        self._observer.follow(self.query)
        done = self._observer.done
        self.until(lambda: self._observer.done > done, what, LOAD_LIMIT_S)
        return {
            "strategy": what,
            "options": {},
            "way": "out",
            "phase": "done",
            "steps": 1,
            "bins": 0,
            "bytes_moved": 0,
            "began_s": round(began - start, 3),
            "ended_s": round(time.time() - start, 3),
            "duration_s": round(time.time() - began, 3),
            "longest_step_s": round(time.time() - began, 3),
        }

    def _options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        given = dict(options)
        if TIMES_STEADY in given:
            self.look()
            given[TARGET] = round(given.pop(TIMES_STEADY) * self._histogram(self._steady).max / 1e9, 3)
        return given

    def _follow(self, migration: Migration, what: str) -> list[float]:
        """When each step was seen to be complete."""
        deadline = time.monotonic() + self._parameters["limit_s"]
        seen: list[float] = []
        while migration.ended_s is None:
            seen += [time.time()] * (migration.completed - len(seen))
            if time.monotonic() > deadline and migration.phase != "cancelled":
                assert self._control is not None
                self._control.cancel()
            if time.monotonic() > deadline + STUCK_S:
                raise TimeoutError(f"{what}: {migration}, {STUCK_S:.0f} s after it was cancelled")
            self._glance(what)
        return seen + [migration.ended_s] * (migration.completed - len(seen))

    def _told(
        self, migration: Migration, way: str, strategy: str, options: Mapping[str, Any], steps: Sequence[float]
    ) -> dict[str, Any]:
        began, start = migration.began_s or migration.asked_s, self.timeline.schedule.start_ns / 1e9
        ends = [began, *steps]
        return {
            "strategy": strategy,
            "options": dict(options),
            "way": way,
            "phase": migration.phase,
            "steps": migration.completed,
            "bins": migration.bins_moved,
            "bytes_moved": migration.bytes_moved,
            "began_s": round(began - start, 3),
            "ended_s": round(began + migration.duration_s - start, 3),
            "duration_s": round(migration.duration_s, 3),
            "longest_step_s": round(max((b - a for a, b in pairwise(ends)), default=0.0), 3),
        }

    def found(self, migrations: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Everything, as plain data."""
        self._observer.look()
        start = self.timeline.schedule.start_ns / 1e9
        ends = [end for _, end in self._steady] + [start + migration["ended_s"] for migration in migrations]
        late = self._observer.close(max(ends, default=time.time()))
        steady = self._histogram(self._steady)
        return {
            "steady": steady.summary(),
            "not_done": late,
            "skipped": self._observer.skipped,
            "steady_histogram": steady.saved(),
            "steady_spans": [[round(a - start, 3), round(b - start, 3)] for a, b in self._steady],
            "migrations": [self._with_latency(migration, start) for migration in migrations],
            "timeline": list(self.timeline.rows()),
            "memory": self._sampler.since(start),
        }

    def _with_latency(self, migration: dict[str, Any], start: float) -> dict[str, Any]:
        span = (start + migration["began_s"] - LEAD_S, start + migration["ended_s"] + LEAD_S)
        # The steady stretch just before: a process keeps what it once had.
        before = [stretch for stretch in self._steady if stretch[1] <= span[1]][-1]
        return {
            **migration,
            "latency": self._histogram([span]).summary(),
            "memory": _peak(self._sampler.between(*span)),
            "memory_before": _peak(self._sampler.between(*before)),
        }

    def _histogram(self, spans: Sequence[tuple[float, float]]) -> Histogram:
        parts = [self.timeline.between(int(begin * 1e9), int(end * 1e9)) for begin, end in spans]
        return Histogram().merge(parts)

    def wait(self, seconds: float, what: str) -> None:
        """Let it run."""
        deadline = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= deadline, what, seconds + 60)

    def until(self, reached: Callable[[], bool], what: str, limit_s: float) -> None:
        """Let it run until something has happened."""
        deadline = time.monotonic() + limit_s
        while not reached():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not done after {limit_s:.0f} s")
            self._glance(what)

    def _glance(self, what: str) -> None:
        if time.monotonic() - self._looked > LOOK_EVERY_S:
            self.look()
            self._stage.show(f"{what}, epoch {self._observer.last_epoch_ms:.0f} ms")
        time.sleep(POLL_S)

    def look(self) -> None:
        """Take in the epochs that ended since."""
        self._looked = time.monotonic()
        error = self.query.exception()
        if error is not None:
            raise error
        self._observer.look()
        if self._observer.last_epoch_ms > self._parameters.get("saturated_s", SATURATED_S) * 1000:
            raise Saturated


def _pids(control: Control | None) -> list[int]:
    return [worker.pid for status in control.status() for worker in status.workers] if control else []


def _extra(stage: Stage, control: Control | None) -> dict[str, Callable[[], float]]:
    beans = stage.spark._jvm.java.lang.management.ManagementFactory.getMemoryMXBean()  # type: ignore[union-attr]
    moved = lambda: sum(status.bytes_moved for status in control.status()) if control else 0  # noqa: E731
    return {"heap": lambda: beans.getHeapMemoryUsage().getUsed(), "moved": moved, "stolen": stolen}


def _peak(samples: Sequence[Sample]) -> Sample:
    """The most that each role had, and the most that all had together."""
    roles = ("driver", "jvm", "heap", "workers", "tasks", "total")
    return {role: max((sample[role] for sample in samples), default=0.0) for role in roles}
