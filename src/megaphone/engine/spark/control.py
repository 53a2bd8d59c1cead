"""Control: how many workers there are, which bins they own, and how that changes while the query runs.

What the user holds. Everything it accepts is checked first; what it refuses changes nothing.
Neighbours: operators.py ties operators to it, run.py carries its orders out.
"""

import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from megaphone.bins import Bins, WorkerId
from megaphone.configuration import Assignment
from megaphone.control import targets
from megaphone.control.controller import Migration
from megaphone.control.epochs import Recovery
from megaphone.control.plan import Plan, step_to
from megaphone.control.strategies import make_plan
from megaphone.engine.spark.coordinator import ControlDefinition, Coordinator
from megaphone.engine.spark.run import PickledSpec, Run
from megaphone.engine.spark.watch import Watch
from megaphone.errors import PlanError
from megaphone.progress import Time

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One worker: where it is and what it owns."""

    worker: WorkerId
    host: str
    pid: int
    executor_pid: int | None
    bins: int


@dataclass(frozen=True, slots=True)
class Status:
    """A running query as its control sees it."""

    query: str
    epoch: int
    frontiers: Mapping[str, str]
    """Output frontier of each operator."""
    late: Mapping[str, int]
    """Records of each operator that came behind the frontier, and were not applied."""
    applied: Mapping[str, int]
    assignment: Assignment
    workers: tuple[WorkerStatus, ...]
    migration: Migration | None
    recoveries: tuple[Recovery, ...] = ()
    """Bins taken from the checkpoint since the query was started, worker by worker."""


class Control:
    """The control stream of one or more operators: give it to them, and move their bins with it.

    Operators with the same control move together. Each query over them has its own workers and its own state.
    """

    def __init__(
        self,
        spark: SparkSession,
        workers: int,
        bins: int = 256,
        *,
        slots: int | None = None,
        assignment: Iterable[int] | None = None,
        name: str | None = None,
        snapshot_share: float = 0.05,
    ) -> None:
        """Have `workers` workers share `bins` bins, dealt round unless an assignment is given.

        `slots` is the number of Spark tasks that feed the workers, one per core unless told otherwise; it is the only
        one of these numbers that stays as it is while the query runs. `snapshot_share` is the part of a worker's time
        that may go into snapshots of its bins; with 0 there are none, and the log of their inputs only grows.
        """
        if workers < 1:
            raise PlanError(f"{workers} workers asked for; choose 1 or more")
        self.spark = spark
        self.workers = workers
        """At the start."""
        self.bins = Bins.of_count(bins).count
        self.slots = spark.sparkContext.defaultParallelism if slots is None else slots
        if self.slots < 1:
            raise PlanError(f"{slots} slots asked for; choose 1 or more")
        if not 0 <= snapshot_share <= 1:
            raise PlanError(f"a snapshot share of {snapshot_share}; choose one from 0 to 1")
        self.name = check_name(name or f"c{uuid.uuid4().hex[:8]}", "control")
        self._query: str | None = None
        self._initial = (
            Assignment.round_robin(bins, workers) if assignment is None else _initial(assignment, bins, workers)
        )
        self.specs: dict[str, PickledSpec] = {}
        self.coordinator = Coordinator.of(spark)
        self.coordinator.definitions[self.name] = ControlDefinition(
            self._initial, workers, self.specs, name, snapshot_share
        )

    def status(self) -> list[Status]:
        """How each running query is."""
        return [_status(run) for run in self._runs()]

    def plan(
        self,
        target: Assignment | Iterable[int] | Mapping[int, int],
        strategy: str = "batched",
        *,
        batch: int | None = None,
        gap: int = 0,
        at: int | None = None,
    ) -> Plan:
        """The plan that would bring the bins to `target`: a dry run."""
        return self._plan(self._run(), target, strategy, batch=batch, gap=gap, at=at)

    def migrate(
        self,
        target: "Plan | Assignment | Iterable[int] | Mapping[int, int]",
        strategy: str = "batched",
        *,
        batch: int | None = None,
        gap: int = 0,
        at: int | None = None,
    ) -> Migration:
        """Move bins: by a plan, to a whole assignment, or some bins to the workers given for them."""
        run = self._run()
        with run.lock:
            plan = target
            if not isinstance(plan, Plan):
                plan = self._plan(run, target, strategy, batch=batch, gap=gap, at=at)
            return run.submit(plan)

    def update(self, owners: Mapping[int, int] | Iterable[int], at: int | None = None) -> Migration:
        """One atomic reconfiguration, now or at a future time."""
        run = self._run()
        with run.lock:
            current = run.epochs.controller.expected
            step = step_to(current, _pairs(owners, self.bins), None if at is None else Time(at))
            return run.submit(Plan(self.bins, (step,) if step.moves else ()))

    def rescale(self, workers: int, strategy: str = "batched", **options: Any) -> Migration:
        """Go on with another number of workers: new ones are started and filled, surplus ones emptied and ended."""
        run = self._run()
        if workers < 1:
            raise PlanError(f"{workers} workers asked for; choose 1 or more")
        with run.lock:
            # Refused, if at all, before a process is started for it.
            goal = targets.balanced(run.epochs.controller.expected, workers)
            self._plan(run, goal, strategy, workers=workers, **options)
            before, run.epochs.workers = run.epochs.workers, max(workers, run.epochs.workers)
        try:
            self._await_workers(run, workers)
        except PlanError:
            run.epochs.workers = before
            raise
        with run.lock:
            target = targets.balanced(run.epochs.controller.expected, workers)
            return run.submit(self._plan(run, target, strategy, **options), workers)

    def rebalance(self, strategy: str = "batched", **options: Any) -> Migration:
        """Give every worker the same number of bins, give or take one, with the fewest moves."""
        run = self._run()
        return self.migrate(targets.balanced(run.epochs.controller.expected, run.epochs.workers), strategy, **options)

    def drain(self, worker: int, strategy: str = "batched", **options: Any) -> Migration:
        """Move every bin of a worker to the others, evenly."""
        run = self._run()
        if not 0 <= worker < run.epochs.workers:
            raise PlanError(f"worker {worker} of {run.epochs.workers}; choose 0 to {run.epochs.workers - 1}")
        target = targets.without(run.epochs.controller.expected, WorkerId(worker), run.epochs.workers)
        return self.migrate(target, strategy, **options)

    def pause(self) -> Migration:
        """Issue no further step until `resume`."""
        return self._run().tell("pause")

    def resume(self) -> Migration:
        """Go on where `pause` stopped."""
        return self._run().tell("resume")

    def cancel(self) -> Migration:
        """Stop migrating after the step in flight; what has moved stays moved."""
        return self._run().tell("cancel")

    def history(self) -> list[Migration]:
        """Every migration asked for since the query started."""
        return list(self._run().epochs.controller.history)

    def watch(self, directory: str | Path) -> Watch:
        """Follow every plan file (`*.json`) that appears in a directory; a refused one says why beside it."""
        return Watch(Path(directory), self.migrate)

    def _plan(
        self,
        run: Run,
        target: Any,
        strategy: str,
        *,
        batch: int | None = None,
        gap: int = 0,
        at: int | None = None,
        workers: int = 0,
    ) -> Plan:
        workers = max(workers, run.epochs.workers)
        current = run.epochs.controller.expected
        goal = target if isinstance(target, Assignment) else _goal(current, target, workers)
        options = {} if batch is None else {"batch": batch}
        plan = make_plan(current, goal, strategy, gap=gap, at=None if at is None else Time(at), **options)
        plan.check(current, workers)
        return plan

    def of(self, query: StreamingQuery) -> "Control":
        """This control for one query, where several run on it."""
        narrowed = copy(self)
        narrowed._query = str(query.id)
        return narrowed

    def _runs(self) -> list[Run]:
        runs = self.coordinator.runs_of(self.name)
        return [run for run in runs if self._query in (None, run.key.query)]

    def _run(self, timeout: float = 30.0) -> Run:
        """The run that verbs act on; a query that was just started is waited for."""
        runs = _until(lambda: self._runs() or None, timeout if self.spark.streams.active else 0.0, self._no_query)
        if len(runs) > 1:
            raise PlanError(f"{len(runs)} queries run on control {self.name}; say which one: control.of(query)")
        return runs[0]

    def _no_query(self) -> Exception:
        return PlanError(f"no query is running on control {self.name}; start one first")

    def _await_workers(self, run: Run, workers: int, timeout: float = 120.0) -> None:
        wanted = set(range(workers))
        _until(
            lambda: wanted <= set(run.placement.residents) or None,
            timeout,
            lambda: PlanError(f"new workers did not start within {timeout:.0f} s"),
        )


def check_name(name: str, of: str) -> str:
    """A name that can be read back from the marks it leaves in Spark's plan."""
    if not re.fullmatch(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)*", name):
        raise PlanError(f"{of} name '{name}'; choose letters, digits and single underscores between them")
    return name


def _until(look: Callable[[], T | None], timeout: float, otherwise: Callable[[], Exception]) -> T:
    deadline = time.monotonic() + timeout
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise otherwise()
        time.sleep(0.02)
    return found


def _goal(current: Assignment, target: Mapping[int, int] | Iterable[int], workers: int) -> Assignment:
    step = step_to(current, _pairs(target, len(current)))
    return Plan(len(current), (step,)).check(current, workers)


def _pairs(owners: Mapping[int, int] | Iterable[int], bins: int) -> list[tuple[int, int]]:
    pairs = list(owners.items() if isinstance(owners, Mapping) else enumerate(owners))
    if not isinstance(owners, Mapping) and len(pairs) != bins:
        raise PlanError(f"a map of {len(pairs)} owners for {bins} bins; give one owner for each bin")
    for bin, worker in pairs:
        if not (isinstance(bin, Integral) and isinstance(worker, Integral)):
            raise PlanError(f"bin {bin!r} on worker {worker!r}; give both as integers")
    return [(int(bin), int(worker)) for bin, worker in pairs]


def _initial(owners: Iterable[int], bins: int, workers: int) -> Assignment:
    pairs = _pairs(owners, bins)
    for bin, worker in pairs:
        if not 0 <= worker < workers:
            raise PlanError(f"bin {bin} on worker {worker}, but there are {workers} workers; choose 0 to {workers - 1}")
    return Assignment(worker for _, worker in pairs)


def _status(run: Run) -> Status:
    residents = run.placement.residents
    with run.lock:
        epochs = run.epochs
        assignment = epochs.configuration.last
        workers = tuple(
            WorkerStatus(worker, join.host, join.pid, join.executor_pid, len(assignment.bins_of(worker)))
            for worker, join in sorted(residents.items())
        )
        operators = epochs.operators
        return Status(
            run.key.query,
            epochs.epoch,
            {name: str(operator.output_frontier) for name, operator in operators.items()},
            {name: operator.late for name, operator in operators.items()},
            {name: operator.applied for name, operator in operators.items()},
            assignment,
            workers,
            epochs.controller.current,
            tuple(epochs.recoveries),
        )
