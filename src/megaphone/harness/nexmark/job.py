"""The job: a query over an open-loop stream of events, its control, and the migrations it is told to do.

Neighbours: versions.py builds the query, course.py keeps what is seen of it.  From: command.py.
"""

import contextlib
import socket
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psutil
from pyspark.sql import SparkSession

from megaphone.configuration import Assignment
from megaphone.control import targets
from megaphone.control.controller import Migration
from megaphone.engine.spark.control import Control
from megaphone.errors import MegaphoneError
from megaphone.harness.nexmark.arguments import Settings, Wish
from megaphone.harness.nexmark.course import Course, Reading
from megaphone.harness.nexmark.versions import builder
from megaphone.harness.observe import Progress, progress_after
from megaphone.harness.schedule import SECOND_NS
from megaphone.nexmark.generator import Nexmark
from megaphone.nexmark.queries import QUERIES, Windows
from megaphone.service.status import Status

PRELOAD = 100
"""Events of the first epoch, in which Spark and the workers start: some of each kind, for each to be met once."""

PATIENCE_S = 60.0
"""How long a run may go on after the events of its duration have come: for a backlog, and for migrations."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A migration, and what was wished."""

    wish: Wish
    migration: Migration


class Job:
    """A running query."""

    def __init__(self, spark: SparkSession, settings: Settings, checkpoint: str) -> None:
        """Start it."""
        self.settings = settings
        self.begun: list[Begun] = []
        self.course: Course | None = None
        """None until events are due."""
        self.status: Status | None = None
        """None until an epoch has begun."""
        self.said: Progress = {"batchId": -1}
        """What Spark said of the last epoch."""
        self._nexmark = Nexmark(rate=settings.rate, dilation=settings.dilation)
        self._initial = self._expected = Assignment.round_robin(settings.bins, settings.workers)
        self._control = Control(spark, settings.workers, settings.bins)
        cores = spark.sparkContext.defaultParallelism
        # Spark's own version has as many tasks as ours; its default is made for clusters.
        spark.conf.set("spark.sql.shuffle.partitions", str(cores))
        streams = QUERIES[settings.query].read(spark.readStream, **_source(settings, cores))
        frame = builder(settings.version, settings.query)(self._control, streams, Windows())
        writer = frame.writeStream.queryName(settings.query).format("noop")
        self._query = writer.option("checkpointLocation", checkpoint).start()

    @property
    def holders(self) -> str:
        """Whose memory is told: it is that of whole processes, or what Spark says of its state stores."""
        return "state stores" if self.settings.version == "spark" else "workers"

    @property
    def complete(self) -> bool:
        """Is every event done that was due within the duration, and every migration?"""
        due = self.settings.rate * self.settings.duration_s
        moved = len(self.begun) == len(self.settings.migrations) and all(b.migration.ended_s for b in self.begun)
        return moved and self.course is not None and self.course.events >= due

    @property
    def hopeless(self) -> bool:
        """Will it not come to an end?"""
        return self._second > self.settings.duration_s + PATIENCE_S

    def step(self) -> Reading | None:
        """See how the query is, and begin the migrations whose time has come; None if no event has been due yet."""
        self._look()
        if self.course is None:
            return None
        for wish in self.settings.migrations[len(self.begun) :]:
            if wish.at_s <= self._second:
                self._begin(wish)
        self.course.readings.append(self._reading(self.course))
        return self.course.readings[-1]

    def stop(self) -> None:
        """Stop the query, and take in what it did until then."""
        self._query.stop()
        self._look()

    @property
    def _second(self) -> float:
        return 0.0 if self.course is None else (time.time_ns() - self.course.schedule.start_ns) / SECOND_NS

    def _begin(self, wish: Wish) -> None:
        self._expected = self._target(wish)
        options: dict[str, Any] = {} if wish.batch is None else {"batch": wish.batch}
        migration = self._control.migrate(self._expected, wish.strategy, gap=wish.gap, **options)
        self.begun.append(Begun(wish, migration))

    def _target(self, wish: Wish) -> Assignment:
        if wish.target == "back":
            return self._initial
        if wish.target == "skew":
            return targets.skewed(self._expected)
        return targets.passed_on(self._expected, self.settings.workers)

    def _look(self) -> None:
        error = self._query.exception()
        if error is not None:
            raise MegaphoneError(f"the query failed: {str(error).strip().splitlines()[0]}")
        for progress in progress_after(self._query, self.said["batchId"]):
            self.said = progress
            self.course = self.course or Course.begun(progress, self.settings.rate, PRELOAD)
            if self.course is not None:
                self.course.take(progress)
        # None any more once the query has been stopped: then the last one stays.
        self.status = next(iter(self._control.status()), self.status)

    def _reading(self, course: Course) -> Reading:
        now_ns = time.time_ns()
        return Reading(
            (now_ns - course.schedule.start_ns) / SECOND_NS,
            course.events,
            course.rate(now_ns),
            course.latency_ms(),
            self._lag_ms(course, now_ns),
            self._memory(),
            self.status.migration if self.status else None,
        )

    def _lag_ms(self, course: Course, now_ns: int) -> float | None:
        frontier = self._frontier()
        if frontier is None:
            return None
        return (now_ns - course.schedule.due_ns(-course.preload) - self._nexmark.due_ns(frontier)) / 1e6

    def _frontier(self) -> int | None:
        """The least output frontier, in event time; of Spark's own operators, the watermark."""
        if self.settings.version == "spark":
            told = self.said.get("eventTime", {}).get("watermark")
            return int(datetime.fromisoformat(told).timestamp() * 1e6) if told else None
        bounds = list(self.status.frontiers.values()) if self.status else []
        return min(map(int, bounds)) if bounds and all(map(_is_number, bounds)) else None

    def _memory(self) -> int:
        if self.settings.version == "spark":
            return sum(operator["memoryUsedBytes"] for operator in self.said.get("stateOperators", ()))
        here = [w for w in self.status.workers if w.host == socket.gethostname()] if self.status else []
        return sum(_resident(worker.pid) for worker in here)


def _source(settings: Settings, partitions: int) -> dict[str, Any]:
    own = {name: getattr(settings, name) for name in ("rate", "dilation", "seed", "strings")}
    return {**own, "partitions": partitions, "preload": PRELOAD}


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdecimal()


def _resident(pid: int) -> int:
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss)
    return 0
