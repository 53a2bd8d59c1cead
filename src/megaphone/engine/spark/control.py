"""Control: how many workers there are, which bins they own, and how that changes while the query runs.

What the user holds. Everything it accepts is checked first; what it refuses changes nothing.
Neighbours: operators.py ties operators to it, run.py carries its orders out.
"""

import os
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from megaphone import checks
from megaphone.bins import Bins, WorkerId
from megaphone.configuration import Assignment
from megaphone.control.balance import imbalance
from megaphone.control.basis import Basis
from megaphone.control.controller import Migration, MigrationSummary
from megaphone.control.forecast import forecast
from megaphone.control.plan import Plan, check_begin, step_to
from megaphone.control.policies.observation import Observation
from megaphone.control.policies.policy import Policy, Rescale, Wish
from megaphone.control.strategies import Pace
from megaphone.engine.spark import goals
from megaphone.engine.spark.coordinator import ControlDefinition, Coordinator
from megaphone.engine.spark.desk import Desk
from megaphone.engine.spark.follower import Follower
from megaphone.engine.spark.goals import By, Goal
from megaphone.engine.spark.messages import Join
from megaphone.engine.spark.run import PickledSpec, Planner, Run
from megaphone.engine.spark.watch import Watch
from megaphone.errors import PlanError
from megaphone.printing import printable
from megaphone.service.office import Office
from megaphone.service.place import place_of
from megaphone.service.status import Status, WorkerStatus

T = TypeVar("T")
Verb = Literal["rescale", "rebalance", "drain"]


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
        http: bool | int | str | None = None,
        dashboard: bool = False,
    ) -> None:
        """Have `workers` workers share `bins` bins, dealt round unless an assignment is given.

        `slots` is the number of Spark tasks that feed the workers, one per core unless told otherwise; it is the only
        one of these numbers that stays as it is while the query runs. `snapshot_share` is the part of a worker's time
        that may go into snapshots of its bins; with 0 there are none, and the log of their inputs only grows.

        While a query runs, the verbs and a live page are served over HTTP to this user, on the loopback address: `http`
        is a port, "host:port" to listen elsewhere, or false for none. Without it `spark.megaphone.http` says so, and
        without that any free port is taken. `dashboard` prints the address of the page when a query starts.
        """
        self.spark = spark
        self.bins = Bins.of_count(bins).count
        self.workers = checks.worker_count(workers, self.bins)
        """At the start."""
        self.slots = checks.slots(spark.sparkContext.defaultParallelism if slots is None else slots)
        share = checks.part(snapshot_share, "a snapshot share of {}")
        self.name = checks.name(f"c{uuid.uuid4().hex[:8]}" if name is None else name, "control")
        self._query: str | None = None
        self._initial = _initial(assignment, self.bins, self.workers)
        place = place_of(str(spark.conf.get("spark.megaphone.http", "true") if http is None else http))
        if dashboard and place is None:
            raise PlanError("a dashboard, but nothing is served over HTTP; leave http=False out")
        self.specs: dict[str, PickledSpec] = {}
        self.coordinator = Coordinator.of(spark)
        self._office = None
        if place is not None:
            self._office = Office(self.name, Desk(self), place, _print_address if dashboard else None)
        definition = ControlDefinition(self._initial, self.workers, self.specs, name, share, self._office)
        self.coordinator.define(self.name, definition)

    @property
    def address(self) -> str | None:
        """Where the verbs are served over HTTP, while a query runs; the token is in the run directory."""
        return None if self._office is None else self._office.address

    @property
    def dashboard(self) -> str | None:
        """The address of the live page, while a query runs; whoever has it may do what this control can."""
        return None if self._office is None else self._office.page

    def status(self) -> list[Status]:
        """How each running query is."""
        return [self.status_of(run) for run in self.runs()]

    def status_of(self, run: Run) -> Status:
        """How one of them is."""
        return _status(run)

    def plan(
        self,
        wish: "Assignment | Iterable[int] | Mapping[int, int] | Verb",
        strategy: str | None = None,
        *,
        workers: int | None = None,
        who: int | str | None = None,
        by: By | None = None,
        **pace: Any,
    ) -> Plan:
        """The plan that would be followed, and what it would cost: a dry run.

        `wish` is a target as for `migrate`, or the name of a verb: "rescale" with `workers`, "drain" with `who`,
        "rebalance" with `by`.
        """
        how, run = Pace.of(strategy, **pace), self._run()
        goal = _goal(run, self.bins, wish, {"workers": workers, "who": who, "by": by})
        found = run.draft(_planner(goal, how), workers)
        return run.foresee(forecast(found.plan, found.basis.reading, found.basis.now))

    def migrate(
        self,
        target: "Plan | Assignment | Iterable[int] | Mapping[int, int]",
        strategy: str | None = None,
        **pace: Any,
    ) -> Migration:
        """Move bins: by a plan, to a whole assignment, or some bins to the workers given for them."""
        if isinstance(target, Plan):
            checks.unused("a plan", {"strategy": strategy, **pace})
            return self._run().submit(lambda basis: target)
        planner = _planner(goals.moved(target, self.bins), Pace.of(strategy, **pace))
        return self._run().submit(planner)

    def update(self, owners: Mapping[int, int] | Iterable[int], at: int | None = None) -> Migration:
        """One atomic reconfiguration, now or at a future time."""
        pairs, when = checks.owner_pairs(owners, self.bins), None if at is None else checks.time(at, "the update")

        def planner(basis: Basis) -> Plan:
            check_begin(when, basis.now)
            step = step_to(basis.expected, pairs, when)
            return Plan(self.bins, (step,) if step.moves else ())

        return self._run().submit(planner)

    def rescale(self, workers: int, strategy: str | None = None, **pace: Any) -> Migration:
        """Go on with another number of workers: new ones are started and filled, surplus ones emptied and ended."""
        planner = _planner(goals.rescaled(workers, self.bins), Pace.of(strategy, **pace))
        run, count = self._run(), int(workers)
        # Refused, if at all, before a process is started for it.
        run.draft(planner, count)
        with run.epochs.reservations.of(count):
            self._await_workers(run, count)
            return run.submit(planner, count)

    def rebalance(self, strategy: str | None = None, *, by: By = "load", **pace: Any) -> Migration:
        """Even the load, by moving the least state that will do; nothing, if the busiest worker is not far from even.

        With `by="bins"`, or while no load is known: the same number of bins on every worker, give or take one.
        """
        planner = _planner(goals.rebalanced(by), Pace.of(strategy, **pace))
        return self._run().submit(planner)

    def drain(self, who: int | str, strategy: str | None = None, **pace: Any) -> Migration:
        """Move every bin of a worker, or of all workers on a host, to the others, evenly."""
        how, run = Pace.of(strategy, **pace), self._run()
        return run.submit(_planner(goals.drained(who, _hosts(run)), how))

    def pause(self) -> Migration:
        """Issue no further step until `resume`."""
        return self._run().tell("pause")

    def resume(self) -> Migration:
        """Go on where `pause` stopped."""
        return self._run().tell("resume")

    def cancel(self) -> Migration:
        """Stop migrating after the step in flight; what has moved stays moved."""
        return self._run().tell("cancel")

    def history(self) -> list[Migration | MigrationSummary]:
        """The last hundred migrations that have ended, without their plans, and all that have not, which are whole."""
        run = self._run()
        with run.lock:
            return run.epochs.controller.history

    def watch(self, directory: str | Path, owners: Iterable[int | str] = ()) -> Watch:
        """Follow every plan file (`*.json`) that appears in a directory; a refused one says why beside it.

        Only regular files of this user are followed, and of `owners`, users by uid or name. Keep the directory private
        to them, and write a plan under another name first, then rename it. For those who write them, `query.status`
        there has what policies see. The `error` of what is returned says what goes wrong at present, if anything does.
        """
        if not isinstance(directory, str | os.PathLike):
            raise PlanError(f"a directory {checks.shown(directory)}; give its path")
        return Watch(Path(directory), self.migrate, self.observe, lambda: bool(self._begun_runs()), owners)

    def follow(self, *policies: Policy, every: float = 2.0, strategy: str | None = None, **pace: Any) -> Follower:
        """Ask policies every few seconds, and move bins or change the number of workers as they wish.

        The first that wishes anything is followed. Goes on until it is stopped or the query ends.
        """
        # Refused here, not with every wish.
        Pace.of(strategy, **pace)
        return Follower(policies, self.observe, lambda wish, seen: self._fulfil(wish, seen, strategy, pace), every)

    def observe(self) -> Observation | None:
        """What policies see of the running query; none if there is none."""
        runs = self.runs()
        if not runs:
            return None
        run = self._only(runs)
        with run.lock:
            return Observation.of(run.epochs, time.monotonic())

    def _fulfil(self, wish: Wish, seen: Observation, strategy: str | None, pace: Mapping[str, Any]) -> Migration:
        if isinstance(wish, Rescale):
            return self.rescale(wish.workers, strategy, **pace)
        target: Any = wish.target
        if not isinstance(target, Assignment) or len(target) != self.bins:
            raise PlanError(f"a wish to migrate to {checks.shown(target)}; give an Assignment of {self.bins} bins")
        # Bin by bin: what somebody else has moved meanwhile stays there.
        moves = seen.assignment.moves_to(target)
        return self.migrate({move.bin: move.target for move in moves}, strategy, **pace)

    def of(self, query: StreamingQuery) -> "Control":
        """This control for one query, where several run on it."""
        if not isinstance(query, StreamingQuery):
            raise PlanError(f"control of {checks.shown(query)}; give the query that start() returned")
        return self.narrowed(str(query.id))

    def narrowed(self, query: str) -> "Control":
        """This control for the query of an id."""
        narrowed = copy(self)
        narrowed._query = query
        return narrowed

    def runs(self) -> list[Run]:
        """The queries that run on it: not one that was stopped a moment ago."""
        self.coordinator.end_inactive()
        runs = self.coordinator.runs_of(self.name)
        return [run for run in runs if self._query in (None, run.key.query)]

    def _run(self, timeout: float = 30.0) -> Run:
        """The run that verbs act on; a query that was just started is waited for."""
        runs = _until(self._begun_runs, timeout if self.spark.streams.active else 0.0, self._no_query)
        return self._only(runs)

    def _begun_runs(self) -> list[Run] | None:
        """The queries that run on it, also those that have had no data yet; None if there are none."""
        if not self.runs():
            self.coordinator.begin_active(self.name)
        return self.runs() or None

    def _only(self, runs: list[Run]) -> Run:
        if len(runs) > 1:
            raise PlanError(f"{len(runs)} queries run on control {self.name}; say which one: control.of(query)")
        return runs[0]

    def _no_query(self) -> Exception:
        return PlanError(f"no query is running on control {self.name}; start one first")

    def _await_workers(self, run: Run, workers: int, timeout: float = 120.0) -> None:
        wanted = set(range(workers))

        def there() -> bool | None:
            if run not in self.runs():
                raise PlanError("the query has ended while new workers were starting")
            return wanted <= set(run.placement.residents) or None

        _until(there, timeout, lambda: PlanError(f"new workers did not start within {timeout:.0f} s"))


def _print_address(address: str) -> None:
    sys.stdout.write(f"Megaphone's dashboard: {printable(address)}\n")
    sys.stdout.flush()


def _until(look: Callable[[], T | None], timeout: float, otherwise: Callable[[], Exception]) -> T:
    deadline = time.monotonic() + timeout
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise otherwise()
        time.sleep(0.02)
    return found


def _planner(goal: Goal, pace: Pace) -> Planner:
    def planner(basis: Basis) -> Plan:
        # Also if nothing is to move.
        check_begin(pace.at, basis.now)
        return pace.plan(basis.expected, goal(basis))

    return planner


def _goal(run: Run, bins: int, wish: Any, options: dict[str, Any]) -> Goal:
    """What a dry run is of, which takes an option of its own or none."""
    if not isinstance(wish, str):
        checks.unused("a target", options)
        return goals.moved(wish, bins)
    takes = {"rescale": "workers", "drain": "who", "rebalance": "by"}
    if wish not in takes:
        raise PlanError(f"no plan for {checks.shown(wish)}; choose drain, rebalance or rescale, or give a target")
    option = options.pop(takes[wish])
    checks.unused(f"a {wish}", options)
    if wish == "rebalance":
        return goals.rebalanced("load" if option is None else option)
    if wish == "rescale":
        if option is None:
            raise PlanError("a rescale to how many workers? give workers=")
        return goals.rescaled(option, bins)
    if option is None:
        raise PlanError("a drain of which worker or host? give who=")
    return goals.drained(option, _hosts(run))


def _hosts(run: Run) -> dict[WorkerId, str]:
    return {worker: join.host for worker, join in run.placement.residents.items()}


def _initial(owners: Iterable[int] | None, bins: int, workers: int) -> Assignment:
    if owners is None:
        return Assignment.round_robin(bins, workers)
    found = dict(checks.owner_pairs(owners, bins))
    if len(found) < bins:
        raise PlanError(f"an assignment of {len(found)} bins of {bins}; give a worker for every bin")
    for bin, worker in found.items():
        checks.worker(worker, workers, f"bin {bin} on worker {{}}, but there are {workers} workers")
    return Assignment(found[bin] for bin in range(bins))


def _status(run: Run) -> Status:
    residents = run.placement.residents
    with run.lock:
        status, reading, workers = _told(run), run.epochs.meter.reading, run.epochs.workers
        idle = [_worker(run, worker, join) for worker, join in sorted(residents.items())]
    # Bin by bin without the lock, under which epochs are opened.
    owners, size = status.assignment.owners, 1 + max([*residents, *status.assignment.workers()])
    bins, rates, sizes = (np.bincount(owners, weights, size) for weights in (None, reading.rates, reading.sizes))
    return replace(
        status,
        workers=tuple(
            replace(
                one,
                bins=int(bins[one.worker]),
                records_per_s=float(rates[one.worker]),
                state_bytes=int(sizes[one.worker]),
            )
            for one in idle
        ),
        imbalance=imbalance(status.assignment, reading.rates, workers),
        measured=float(reading.known.mean()),
    )


def _told(run: Run) -> Status:
    """What is known of a run without looking at its bins."""
    epochs, meter, operators = run.epochs, run.epochs.meter, run.epochs.operators
    return Status(
        run.key.query,
        epochs.epoch,
        {name: str(operator.output_frontier) for name, operator in operators.items()},
        {name: operator.late for name, operator in operators.items()},
        {name: operator.applied for name, operator in operators.items()},
        epochs.whereabouts,
        (),
        epochs.controller.current,
        tuple(epochs.recoveries),
        run.query.name,
        run.key.run,
        run.key.control,
        meter.last_epoch_s,
        bytes_moved=meter.bytes_moved,
        bytes_per_s=meter.bytes_per_s,
        state_bytes={name: int(load.sizes.sum()) for name, load in meter.loads.items()},
        migrations=epochs.controller.ended + Counter(migration.phase for migration in epochs.controller.under_way),
        lags={name: lag for name, operator in operators.items() if (lag := operator.lag) is not None},
        units={name: spec.unit for name, spec in run.specs.items()},
    )


def _worker(run: Run, worker: WorkerId, join: Join) -> WorkerStatus:
    """A worker without its bins."""
    loads = run.epochs.meter.loads.values()
    done = [load.done[worker] for load in loads if worker in load.done]
    return WorkerStatus(
        worker,
        join.host,
        join.pid,
        join.executor_pid,
        bins=0,
        busy=min(1.0, sum(load.busy(worker) for load in loads)),
        applied=sum(part.records for part in done),
        busy_s=sum(part.busy_ns for part in done) / 1e9,
        memory_bytes=run.epochs.meter.memory.get(worker),
    )
