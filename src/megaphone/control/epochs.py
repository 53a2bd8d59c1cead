"""Epochs: one plan per micro-batch, the same however often it is asked for.

The first question for epoch n is the word that n-1 is committed: steps that happened in it are complete, the
controller may issue the next one, and moves whose time an operator's output frontier has reached go into n's plan.
Neighbours: controller.py, stream.py; the engines ask and report.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from megaphone.bins import BinId, WorkerId
from megaphone.configuration import Assignment, Configuration, Move, Update
from megaphone.control.controller import Controller, Migration
from megaphone.control.plan import Plan, Step
from megaphone.control.stream import Pending, Reconfiguration
from megaphone.errors import PlanError, ProtocolError
from megaphone.progress import BEGIN, CLOSED, OPEN, Frontier, Time

Clock = Literal["epoch", "column"]


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """What one operator does in one epoch, besides applying records."""

    frontier: Time
    """Input frontier before the epoch: what is earlier has been applied."""
    seen: tuple[Time, ...]
    """Largest time seen on each input before the epoch."""
    moves: tuple[Move, ...]
    holds: tuple[tuple[BinId, Time], ...]


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """Everything about an epoch that is not data."""

    epoch: int
    version: int
    """Changes with every change of the configuration: who knows it need not be told again."""
    configuration: tuple[tuple[Time, Assignment], ...]
    workers: tuple[WorkerId, ...]
    operators: Mapping[str, OperatorPlan]
    closing: bool
    """The inputs end with this epoch."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker says of one operator in one epoch it has applied."""

    worker: WorkerId
    frontier: Time
    """Output frontier: everything earlier has been applied and given out."""
    applied: int = 0
    late: int = 0
    bytes_in: int = 0
    busy_ns: int = 0


@dataclass(slots=True)
class Operator:
    """What the planner remembers of an operator between epochs."""

    clock: Clock
    inputs: int = 1
    pending: Pending = field(default_factory=Pending)
    frontier: Frontier = OPEN
    seen: list[Time] = field(default_factory=list)
    output: dict[WorkerId, Time] = field(default_factory=dict)
    reported: set[WorkerId] = field(default_factory=set)
    late: int = 0
    applied: int = 0

    def __post_init__(self) -> None:
        self.seen = [BEGIN] * self.inputs

    @property
    def output_frontier(self) -> Frontier:
        """The least output frontier over the workers."""
        return Frontier(min(self.output.values(), default=self.frontier.bound))


class Epochs:
    """The control side of the operators that share one control, within one query."""

    def __init__(self, initial: Assignment, workers: int, operators: Mapping[str, tuple[Clock, int]]) -> None:
        """Begin before epoch 0, with every operator's clock and number of inputs."""
        check_clocks({name: clock for name, (clock, _) in operators.items()})
        self.workers = workers
        self.configuration = Configuration(initial)
        self.controller = Controller(initial)
        self.operators = {name: Operator(clock, inputs) for name, (clock, inputs) in operators.items()}
        self.version = 0
        self.epoch = -1
        self._plans: dict[int, EpochPlan] = {}
        self._happened: set[str] = set()
        self._closed = False
        self._bytes = 0

    @property
    def now(self) -> Time:
        """The earliest time at which nothing has been applied on any operator."""
        return max(self._time_of(operator) for operator in self.operators.values())

    def submit(self, plan: Plan) -> Migration:
        """Accept a plan for this query, or refuse it."""
        return self.controller.submit(plan, self.workers, self.now)

    def open(self, epoch: int, closing: bool = False) -> EpochPlan:
        """The plan of an epoch; made once."""
        if epoch not in self._plans:
            if self.epoch >= 0 and epoch != self.epoch + 1:
                raise ProtocolError(f"epoch {epoch} asked for after epoch {self.epoch}; expected {self.epoch + 1}")
            self._committed(epoch)
            self.epoch = epoch
            # Inputs that have ended stay so: a frontier never goes back.
            self._closed |= closing
            self._issue(epoch)
            # One epoch back stays for a straggling task; Spark asks for nothing older.
            self._plans = {old: plan for old, plan in self._plans.items() if old == epoch - 1}
            self._plans[epoch] = self._make(epoch)
        return self._plans[epoch]

    def report(
        self, operator: str, epoch: int, reports: Iterable[Report], seen: Iterable[Time], frontier: Time
    ) -> None:
        """Note what workers say of an epoch; saying it twice changes nothing."""
        if epoch != self.epoch:
            return
        state = self.operators[operator]
        state.frontier = Frontier(frontier)
        state.seen = list(seen)
        for report in reports:
            if report.worker not in state.reported:
                state.reported.add(report.worker)
                state.output[report.worker] = report.frontier
                state.late += report.late
                state.applied += report.applied
                self._bytes += report.bytes_in

    @property
    def silent(self) -> set[WorkerId]:
        """Workers of the epoch that is open that have not reported for every operator."""
        plan = self._plans.get(self.epoch)
        if plan is None:
            return set()
        return {worker for worker in plan.workers for op in self.operators.values() if worker not in op.reported}

    @property
    def wants_epoch(self) -> bool:
        """Is there anything that only a further epoch can bring forward?"""
        due = any(self._is_due(operator) for operator in self.operators.values())
        return due or self._complete or self.controller.ready(self.now)

    @property
    def _complete(self) -> bool:
        """Has the step in flight happened on every operator?"""
        return self._happened == set(self.operators)

    def _is_due(self, operator: Operator) -> bool:
        # By its own clock, not by `now`: an operator that is behind the others gets there by data, not by epochs.
        time = operator.pending.next_time
        return time is not None and time <= self._time_of(operator)

    def _time_of(self, operator: Operator) -> Time:
        by_epoch = operator.clock == "epoch" and not self._closed
        return Time(self.epoch + 1) if by_epoch else operator.frontier.bound

    def _committed(self, epoch: int) -> None:
        for operator in self.operators.values():
            operator.reported.clear()
            if operator.clock == "epoch" and not self._closed:
                operator.frontier = Frontier(Time(epoch))
                operator.output = {worker: Time(epoch) for worker in operator.output}
        if self._complete:
            self._happened.clear()
            self.controller.step_completed(Time(epoch), self._bytes)
            self._bytes = 0

    def _issue(self, epoch: int) -> None:
        now = max(op.frontier.bound for op in self.operators.values())
        step = self.controller.next_step(Time(epoch), now)
        if step is not None:
            self._issue_step(step, now)

    def _issue_step(self, step: Step, now: Time) -> None:
        at = now if step.time is None else step.time
        self.configuration.insert(Update(at, tuple((move.bin, move.target) for move in step.moves)))
        self.version += 1
        for operator in self.operators.values():
            operator.pending.add(Reconfiguration(at, step.moves))

    def _make(self, epoch: int) -> EpochPlan:
        operators = {name: self._operator_plan(name, operator) for name, operator in self.operators.items()}
        before = len(self.configuration)
        self.configuration.retire(min(op.output_frontier for op in self.operators.values()))
        self.version += before != len(self.configuration)
        entries = tuple(self.configuration.entries)
        workers = sorted({w for _, owners in entries for w in owners.workers()} | self._movers(operators.values()))
        for operator in self.operators.values():
            operator.output = {worker: time for worker, time in operator.output.items() if worker in workers}
        return EpochPlan(epoch, self.version, entries, tuple(workers), operators, self._closed)

    def _operator_plan(self, name: str, operator: Operator) -> OperatorPlan:
        before = len(operator.pending)
        moves = tuple(operator.pending.on_output_frontier(operator.output_frontier))
        # Not by its moves: a step may have none, and must come to an end all the same.
        if len(operator.pending) < before:
            self._happened.add(name)
        holds = tuple(operator.pending.holds().items())
        return OperatorPlan(operator.frontier.bound, tuple(operator.seen), moves, holds)

    def _movers(self, plans: Iterable[OperatorPlan]) -> set[WorkerId]:
        return {worker for plan in plans for move in plan.moves for worker in (move.source, move.target)}


def check_clocks(clocks: Mapping[str, Clock]) -> None:
    """A reconfiguration has one time, which must mean the same to all that share it."""
    if len(set(clocks.values())) > 1:
        told = ", ".join(f"{name} by {clock}" for name, clock in sorted(clocks.items()))
        raise PlanError(
            f"operators that share a control tell time differently: {told}; give each clock its own control"
        )


def input_frontier(
    clock: Clock, epoch: int, closing: bool, seen: Iterable[Time], lateness: Iterable[int], before: Time
) -> Frontier:
    """The input frontier after an epoch: what the sources promise not to send any more."""
    if closing:
        return CLOSED
    if clock == "epoch":
        return Frontier(Time(epoch + 1))
    bound = min(time - late if time > BEGIN else BEGIN for time, late in zip(seen, lateness, strict=True))
    return Frontier(max(Time(bound), before))
