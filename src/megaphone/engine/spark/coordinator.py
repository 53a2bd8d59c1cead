"""The coordinator: a small service in the driver. One plan per epoch, asked for by tasks; reports come back.

One per Spark application, made when the first control is. Runs appear with their first epoch and go with their query.
Neighbours: task.py asks, run.py answers, lease.py tells when a worker is gone.
"""

import atexit
import contextlib
import re
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from megaphone import checks
from megaphone.bins import WorkerId
from megaphone.configuration import Assignment
from megaphone.durability.trust import SWITCH, is_trusted
from megaphone.engine.spark.lease import LeaseOffice
from megaphone.engine.spark.messages import (
    AliveQuestion,
    Bell,
    FrontierQuestion,
    Join,
    Key,
    PlaceQuestion,
    PlanQuestion,
    ReportMessage,
    SpecQuestion,
    StuckMessage,
    dump,
    load,
)
from megaphone.engine.spark.rpc import Caller, Service, listen
from megaphone.engine.spark.run import PickledSpec, Run, Terms
from megaphone.engine.spark.socket_folder import SocketFolder
from megaphone.engine.spark.sockets import remove_with_spark
from megaphone.engine.spark.task import marks
from megaphone.engine.spark.triggers import trigger_of
from megaphone.errors import PlanError
from megaphone.service.logs import tell
from megaphone.service.office import Office
from megaphone.service.timeline import Trigger

LOOK_EVERY_S = 0.3
"""How often to look whether a query has ended; its workers outlive it by no more than that."""


@dataclass(frozen=True, slots=True)
class ControlDefinition:
    """What the coordinator knows of a control: how its runs begin."""

    initial: Assignment
    workers: int
    specs: Mapping[str, PickledSpec]
    given_name: str | None
    """What the user calls it; in the checkpoint, a control without a name goes by its place in the query."""
    share: float
    office: Office | None = None
    """Open while a query runs over it."""


class Coordinator(Service):
    """Answers tasks and workers of every query in this driver that has one of our operators."""

    _instance: "Coordinator | None" = None
    _guard = threading.Lock()

    @classmethod
    def of(cls, spark: SparkSession) -> "Coordinator":
        """The coordinator of a Spark application; another application gets another one."""
        with cls._guard:
            if cls._instance is None or cls._instance.application != spark.sparkContext.applicationId:
                if cls._instance is not None:
                    cls._instance.close()
                cls._instance = cls(spark)
            if spark not in cls._instance._sessions:
                cls._instance._sessions.append(spark)
            return cls._instance

    def __init__(self, spark: SparkSession) -> None:
        """Listen where the executors of this application can reach."""
        super().__init__()
        self.application = spark.sparkContext.applicationId
        self.secret = secrets.token_hex(32)
        self.definitions: dict[str, ControlDefinition] = {}
        self.runs: dict[Key, Run] = {}
        self._spark = spark
        self._sessions: list[SparkSession] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._folder = SocketFolder()
        # At once, also if this process is killed; one whose JVM was killed as well is swept away by the next.
        remove_with_spark(str(self._folder.path))
        host = _public_host(spark)
        self._office = LeaseOffice(self._folder.path / "lease.sock", host, self.secret, self._joined, _silence_s(spark))
        self.lease = self._office.address
        self.actions |= {
            "plan": self._on(PlanQuestion, lambda m: self._begun(m).plan(m)),
            "alive": self._on(AliveQuestion, lambda m: self._run(m.key).alive(m)),
            "place": self._on(PlaceQuestion, lambda m: self._run(m.key).place(m)),
            "report": self._on(ReportMessage, lambda m: self._run(m.key).report(m)),
            "frontier": self._on(FrontierQuestion, self._frontier),
            "spec": self._on(SpecQuestion, lambda m: self._run(m.key).spec(WorkerId(m.worker), m.operator)),
            "specs": self._on(Key, lambda key: [spec.pickled for spec in self._run(key).specs.values()]),
            "stuck": self._on(StuckMessage, lambda m: self._run(m.key).stuck(m)),
            "bell": self._on(Bell, self._bell),
        }
        self._listeners, self.address = listen(self, self.secret, self._folder.path / "coordinator.sock", host)
        self._caller = Caller(self.secret)
        threading.Thread(target=self._watch, daemon=True, name="megaphone-watch").start()
        atexit.register(self.close)

    def close(self) -> None:
        """End every run, and listen no more."""
        if self._closed.is_set():
            return
        self._closed.set()
        # A process may have one Spark application after another.
        atexit.unregister(self.close)
        with self._lock:
            runs, self.runs = list(self.runs.values()), {}
        for run in runs:
            run.close()
        self._tell(runs)
        self._office.close()
        for listener in self._listeners:
            threading.Thread(target=listener.shutdown, daemon=True).start()
        self._folder.close()

    def define(self, control: str, definition: ControlDefinition) -> None:
        """Make a control known; another one of its name is forgotten."""
        before = self.definitions.get(control)
        self.definitions[control] = definition
        if before is not None and before.office is not None:
            before.office.update([])
        self._tell(self.runs_of(control))

    def runs_of(self, control: str) -> list[Run]:
        """The runs of a control, of queries that are active."""
        with self._lock:
            return [run for key, run in self.runs.items() if key.control == control]

    def _on(self, kind: type[Any], handler: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
        return lambda message: dump(handler(load(message, kind)))

    def _run(self, key: Key) -> Run:
        with self._lock:
            if key not in self.runs:
                raise PlanError(f"query {key.query} has ended")
            return self.runs[key]

    def _begun(self, question: PlanQuestion) -> Run:
        key = question.key
        with self._lock:
            known = self.runs.get(key)
        if known is not None:
            return known
        run = self._begin(key, question.epoch)
        self._tell([run])
        return run

    def begin_active(self, control: str) -> None:
        """Begin the runs of active queries that had no epoch yet: a stream may be idle, and a verb need not wait."""
        begun = {key.run for key in list(self.runs)}
        for query in [query for session in self._sessions for query in session.streams.active]:
            key = Key(str(query.id), str(query.runId), control)
            # Spark makes its plan in a thread of its own, and does not let us ask for it before.
            with contextlib.suppress(Py4JError):
                if key.run not in begun and _is_in_plan(query, control):
                    self._tell([self._begin(key, _next_epoch(query))])

    def _tell(self, runs: Iterable[Run]) -> None:
        """The offices of some runs learn that they have begun or ended."""
        for name in {run.key.control for run in runs}:
            office = self.definitions[name].office
            if office is not None:
                office.update([run.query for run in self.runs_of(name)])

    def _begin(self, key: Key, epoch: int) -> Run:
        with self._lock:
            if key not in self.runs:
                definition = self.definitions.get(key.control)
                if definition is None or self._closed.is_set():
                    raise PlanError(f"control {key.control} is not one of this application")
                self.runs[key] = Run(
                    key,
                    self._terms(key, definition),
                    epoch,
                    self._caller,
                    self._executors,
                    lambda epoch: self._only_control_advanced(key.query, epoch),
                    lambda epoch: self._trigger_of(key.query, epoch),
                )
            return self.runs[key]

    def _terms(self, key: Key, definition: ControlDefinition) -> Terms:
        """How a run begins. Of a control's operators only those count that the query has: one that it has not would
        never come along in a migration.
        """
        query = self._query(key.query)
        if query is None or str(query.runId) != key.run:
            # A task that outlived its run must not begin another one beside the run that goes on.
            raise PlanError(f"run {key.run} of query {key.query} has ended")
        execution = query._jsq.streamingQuery()
        there = marks(execution.logicalPlan().toString())
        unnamed = list(dict.fromkeys(name for name, _ in there if not self.definitions[name].given_name))
        return Terms(
            definition.initial,
            definition.workers,
            {name: spec for name, spec in definition.specs.items() if (key.control, name) in there},
            str(execution.resolvedCheckpointRoot()),
            definition.given_name or f"control{unnamed.index(key.control)}",
            definition.share,
            "AvailableNow" in execution.trigger().toString(),
            query.name,
            is_trusted(self._spark.conf.get(SWITCH, "false")),
        )

    def _frontier(self, question: FrontierQuestion) -> int:
        key = question.key
        return min(
            self._run(Key(key.query, key.run, control)).output_frontier(operator)
            for control, operator in question.operators
        )

    def _joined(self, message: bytes, connection: socket.socket) -> Callable[[], None]:
        join = load(message, Join)
        run = self.runs.get(join.key)
        if run is None:
            raise OSError("the query this worker is for has ended")
        run.placement.joined(join, connection)
        about = {"query": join.key.query, "worker": join.worker, "host": join.host, "pid": join.pid}
        tell("worker joined", **about)

        def gone() -> None:
            run.placement.gone(join)
            tell("worker gone", **about)

        return gone

    def _bell(self, bell: Bell) -> bool:
        rings = [run.bell() for run in self.runs_of(bell.control) if run.bounded == bell.bounded]
        # A bounded run has not begun yet: its first epoch, too, must be followed by one that closes the inputs.
        return any(rings) if rings else bell.bounded

    def _watch(self) -> None:
        """Look now and then whether a query has ended, or a worker is not called any more."""
        while not self._closed.wait(LOOK_EVERY_S):
            self.end_inactive()
            self._caller.close_idle()
            if self._spark.sparkContext._jsc is None:
                self.close()

    def end_inactive(self) -> None:
        """End the runs of queries that are no longer active."""
        # The runs first: one that begins while we look must not seem to have ended.
        known = list(self.runs)
        active = self._active_runs() if known else set()
        if active is None:
            return
        with self._lock:
            ended = [self.runs.pop(key) for key in known if key.run not in active and key in self.runs]
        for run in ended:
            run.close()
        self._tell(ended)

    def _active_runs(self) -> set[str] | None:
        """The runs that go on; none if Spark is gone; unknown if it did not answer this time."""
        if self._spark.sparkContext._jsc is None:
            return set()
        with contextlib.suppress(Exception):
            return {str(query.runId) for session in self._sessions for query in session.streams.active}
        return None

    def _query(self, query: str) -> StreamingQuery | None:
        """A query that is active in any of the sessions that have a control."""
        found = (session.streams.get(query) for session in self._sessions)
        return next((query for query in found if query is not None), None)

    def _executors(self) -> int:
        """Executors that run tasks: the driver counts only if there is no other."""
        with contextlib.suppress(Exception):
            return max(1, int(self._spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1)
        return 1

    def _trigger_of(self, query: str, epoch: int) -> Trigger | None:
        """What Spark says of an epoch that is over; none if it says nothing, or is about to end."""
        with contextlib.suppress(Exception):
            found = self._query(query)
            return None if found is None else trigger_of(found, epoch)
        return None

    def _only_control_advanced(self, query: str, epoch: int) -> bool:
        """Did no source but ours get further with this epoch?"""
        if epoch == 0:
            return False
        query_object = self._query(query)
        assert query_object is not None
        log = query_object._jsq.streamingQuery().offsetLog()
        now, before = (_without_control(log.get(number).get().toString()) for number in (epoch, epoch - 1))
        return now == before


def _is_in_plan(query: StreamingQuery, control: str) -> bool:
    """Does a query have an operator of a control?"""
    return control in dict(marks(query._jsq.streamingQuery().logicalPlan().toString()))


def _next_epoch(query: StreamingQuery) -> int:
    """The first epoch that is not committed."""
    committed = query._jsq.streamingQuery().commitLog().getLatestBatchId()
    return int(committed.get()) + 1 if committed.isDefined() else 0


def _silence_s(spark: SparkSession) -> float:
    """How long a worker may give no sign of life: longer than a fold may keep Python's lock, 30 s unless set."""
    said: str | float = spark.conf.get("spark.megaphone.silence", "30") or "30"
    with contextlib.suppress(ValueError):
        said = float(said)
    return checks.positive(said, "spark.megaphone.silence={}")


def _without_control(offsets: str) -> str:
    return re.sub(r'\{"megaphone_bell"[^}]*\}', "", offsets)


def _public_host(spark: SparkSession) -> str | None:
    """The driver's address as its executors know it; none if all of Spark is on this machine."""
    if str(spark.sparkContext.master).startswith("local"):
        return None
    return str(spark.sparkContext.getConf().get("spark.driver.host"))
