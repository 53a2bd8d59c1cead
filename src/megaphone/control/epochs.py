"""Epochs: one plan per micro-batch, the same however often it is asked for.

The first question for epoch n is the word that n-1 is committed: steps that happened in it are complete, the
controller may issue the next one, and moves whose time an operator's output frontier has reached go into n's plan.
Neighbours: controller.py, stream.py; the engines ask and report.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from megaphone.bins import BinId, WorkerId
from megaphone.configuration import Assignment, Configuration, Move, Update
from megaphone.control.basis import Basis, Checked
from megaphone.control.controller import Controller, Migration
from megaphone.control.load import NOTHING, Tally
from megaphone.control.meter import Meter
from megaphone.control.pacing import stride
from megaphone.control.plan import Plan, Step, check_begin
from megaphone.control.reservations import Reservations
from megaphone.control.stream import Pending, Reconfiguration
from megaphone.control.travel import Stuck
from megaphone.errors import PlanError, ProtocolError
from megaphone.progress import BEGIN, CLOSED, END, OPEN, Frontier, Time

Clock = Literal["epoch", "column"]

RECOVERIES = 1000
"""How many recoveries are remembered, to be shown."""


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """What one operator does in one epoch, besides applying records."""

    frontier: Time
    """Input frontier before the epoch: what is earlier has been applied."""
    seen: tuple[Time, ...]
    """Largest time seen on each input before the epoch."""
    moves: tuple[Move, ...]
    holds: tuple[tuple[BinId, Time], ...]
    freed: tuple[BinId, ...] = ()
    """Bins that were held, but are not to leave any more: what waits for them at their next owner is theirs again."""


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
class Recovery:
    """Bins that a worker took from the checkpoint: how many, how many epochs it redid, and when."""

    operator: str
    worker: WorkerId
    bins: int
    epochs: int
    began_s: float
    ended_s: float


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
    kept_from: int = 0
    """The first epoch whose input this worker's bins still need, should they have to be recovered."""
    recoveries: tuple[Recovery, ...] = ()
    """Since its last report."""
    pull_ns: int = 0
    """How long the bins were on their way that arrived."""
    by_bin: Tally = NOTHING
    """Records applied to each bin."""
    sizes: Tally = NOTHING
    """Bytes of each bin whose size this worker has learnt since its last report."""
    spent: Tally = NOTHING
    """Nanoseconds spent on each bin."""
    memory: int = 0
    """Bytes of memory that the worker's process has."""
    stuck: tuple[Stuck, ...] | None = None
    """Bins of this worker that cannot travel; none if they are those of the last report."""


@dataclass(slots=True)
class Operator:
    """What the planner remembers of an operator between epochs."""

    clock: Clock
    inputs: int = 1
    pending: Pending = field(default_factory=Pending)
    frontier: Frontier = OPEN
    open_frontier: Frontier = OPEN
    """Where the frontier was before the inputs were closed: a later run over the same checkpoint goes on from there."""
    seen: list[Time] = field(default_factory=list)
    output: dict[WorkerId, Time] = field(default_factory=dict)
    reported: set[WorkerId] = field(default_factory=set)
    kept_from: dict[WorkerId, int] = field(default_factory=dict)
    """By the reports of the epoch that is open, the first epoch whose input each worker needs."""
    late: int = 0
    applied: int = 0
    freed: set[BinId] = field(default_factory=set)
    """Bins of moves that were taken back since the last epoch was opened."""

    def __post_init__(self) -> None:
        self.seen = [BEGIN] * self.inputs

    @property
    def output_frontier(self) -> Frontier:
        """The least output frontier over the workers."""
        return Frontier(min(self.output.values(), default=self.frontier.bound))

    @property
    def lag(self) -> int | None:
        """How far the output frontier is behind the newest time seen; none by epochs, and where one is not known."""
        newest, bound = max(self.seen), self.output_frontier.bound
        if self.clock == "epoch" or BEGIN in (newest, bound) or bound == END:
            return None
        return max(0, newest - bound)


class Epochs:
    """The control side of the operators that share one control, within one query."""

    def __init__(self, initial: Assignment, workers: int, operators: Mapping[str, tuple[Clock, int]]) -> None:
        """Begin before epoch 0, with every operator's clock and number of inputs."""
        check_clocks({name: clock for name, (clock, _) in operators.items()})
        self.workers = workers
        """As many as the plans that were accepted need."""
        self.reservations = Reservations()
        self.configuration = Configuration(initial)
        self.controller = Controller(initial)
        self.operators = {name: Operator(clock, inputs) for name, (clock, inputs) in operators.items()}
        self.version = 0
        self.epoch = -1
        self._plans: dict[int, EpochPlan] = {}
        self.happened: set[str] = set()
        self.closed = False
        self.bytes_moved = 0
        self.recoveries: deque[Recovery] = deque(maxlen=RECOVERIES)
        self.meter = Meter(operators, len(initial))
        self.heard = False
        """Has every worker reported an epoch since the query was started?"""
        self._asks = False

    @property
    def now(self) -> Time:
        """The earliest time at which nothing has been applied on any operator."""
        return max(self._time_of(operator) for operator in self.operators.values())

    @property
    def wanted(self) -> int:
        """How many workers there should be: as many as plans need, or as are reserved."""
        return max(self.workers, self.reservations.most)

    @property
    def basis(self) -> Basis:
        """What the next plan is made from."""
        return Basis(self.controller.expected, self.workers, self.now, self.meter.reading)

    def is_at(self, basis: Basis) -> bool:
        """Does a basis hold still?"""
        return self.controller.expected is basis.expected and self.workers == basis.workers

    def check(self, plan: Plan, workers: int | None = None) -> Checked:
        """Refuse a plan that this query cannot follow from where it will be; a rescale says to how many workers."""
        return self.basis.check(plan, workers)

    def submit(self, plan: Plan, then_workers: int | None = None, number: int = 0) -> Migration:
        """Accept a plan for this query, or refuse it; a rescale's plan brings as many workers as it asks for."""
        return self.accept(self.check(plan, then_workers), number)

    def check_still(self, checked: Checked) -> None:
        """Refuse a plan that could be followed when it was checked, and cannot be any more."""
        if not self.is_at(checked.basis):
            raise PlanError("other plans were accepted while this one was made; ask for it once more")
        check_begin(checked.first_time, self.now)

    def accept(self, checked: Checked, number: int = 0) -> Migration:
        """Accept a plan that was checked, or refuse it and change nothing."""
        self.check_still(checked)
        migration = self.controller.accept(checked.plan, checked.end, checked.then_workers, number)
        migration.cleared = not self._asks
        migration.workers_before = None if checked.then_workers is None else self.workers
        self.workers = checked.workers
        return migration

    def open(self, epoch: int, closing: bool = False) -> EpochPlan:
        """The plan of an epoch; made once."""
        if epoch not in self._plans:
            if self.epoch >= 0 and epoch != self.epoch + 1:
                raise ProtocolError(f"epoch {epoch} asked for after epoch {self.epoch}; expected {self.epoch + 1}")
            self._committed(epoch)
            self.meter.epoch_opens()
            self.epoch = epoch
            # Inputs that have ended stay so: a frontier never goes back.
            self.closed |= closing
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
        if not state.frontier.closed:
            state.open_frontier = state.frontier
        state.seen = list(seen)
        before = self.silent
        for report in reports:
            if report.worker not in state.reported:
                state.reported.add(report.worker)
                self.meter.hear(
                    operator,
                    report.worker,
                    report.by_bin,
                    report.sizes,
                    report.busy_ns,
                    report.bytes_in,
                    report.pull_ns,
                    report.spent,
                )
                self.meter.memory[report.worker] = report.memory
                state.output[report.worker] = report.frontier
                state.late += report.late
                state.applied += report.applied
                self.bytes_moved += report.bytes_in
                state.kept_from[report.worker] = report.kept_from
                if report.stuck:
                    self._hear_of_stuck(report.stuck)
                self.recoveries.extend(report.recoveries)
        if before and not self.silent:
            self._all_have_reported()

    def _hear_of_stuck(self, stuck: Iterable[Stuck]) -> None:
        current, bins = self.controller.current, {one.bin for one in stuck}
        if self._asks and current is not None:
            # It could travel when it was asked for.
            current.cleared &= not any(move.bin in bins for step in self.controller.left for move in step.moves)

    def _all_have_reported(self) -> None:
        self.heard = True
        took = self.meter.all_have_reported(self._moving)
        migration = self.controller.current
        if self._complete and migration is not None and migration.plan.latency_target is not None:
            done = migration.plan.steps[migration.completed : migration.issued]
            migration.stride = stride(
                self.meter.weights(move for step in self.controller.left for move in step.moves),
                sum(self.meter.weights(move for step in done for move in step.moves)),
                took,
                self.meter.steady_s,
                migration.plan.latency_target,
            )

    @property
    def _moving(self) -> bool:
        return any(operator.moves for operator in self._plans[self.epoch].operators.values())

    @property
    def silent(self) -> set[WorkerId]:
        """Workers of the epoch that is open that have not reported for every operator."""
        plan = self._plans.get(self.epoch)
        if plan is None:
            return set()
        return {worker for worker in plan.workers for op in self.operators.values() if worker not in op.reported}

    @property
    def needed_from(self) -> int:
        """The first epoch whose input some worker may still need, by the reports of the epoch that is open."""
        needs = [epoch for operator in self.operators.values() for epoch in operator.kept_from.values()]
        return min(needs, default=0)

    def residence(self, operator: str) -> Assignment:
        """Where each bin of an operator was before the epoch that is open: moves that have not happened are undone."""
        plan = self._plans.get(self.epoch)
        moves = list(plan.operators[operator].moves) if plan else []
        moves += [move for later in self.operators[operator].pending for move in later.moves]
        return self.configuration.last.after((move.bin, move.source) for move in reversed(moves))

    @property
    def whereabouts(self) -> Assignment:
        """Where the bins are by the epoch that is open: moves that were issued for a later time are undone."""
        behind = max((operator.pending for operator in self.operators.values()), key=len)
        moves = [move for later in behind for move in later.moves]
        last = self.configuration.last
        # Mostly nothing waits, and this is looked at in every epoch: then no copy is made.
        return last.after((move.bin, move.source) for move in reversed(moves)) if moves else last

    @property
    def wants_epoch(self) -> bool:
        """Is there anything that only a further epoch can bring forward?"""
        due = any(self._is_due(operator) for operator in self.operators.values())
        return due or self._complete or self.controller.ready(self.now)

    @property
    def waits_for_answers(self) -> bool:
        """Will a step be issued when it is known which bins can travel?"""
        migration = self.controller.uncleared
        return migration is not None and migration.phase != "paused"

    @property
    def _complete(self) -> bool:
        """Has the step in flight happened on every operator?"""
        return self.happened == set(self.operators)

    def _is_due(self, operator: Operator) -> bool:
        # By its own clock, not by `now`: an operator that is behind the others gets there by data, not by epochs.
        time = operator.pending.next_time
        return time is not None and time <= self._time_of(operator)

    def _time_of(self, operator: Operator) -> Time:
        by_epoch = operator.clock == "epoch" and not self.closed
        return Time(self.epoch + 1) if by_epoch else operator.frontier.bound

    def _committed(self, epoch: int) -> None:
        for operator in self.operators.values():
            operator.reported.clear()
            operator.kept_from.clear()
            if operator.clock == "epoch" and not self.closed:
                operator.frontier = Frontier(Time(epoch))
                operator.output = {worker: Time(epoch) for worker in operator.output}
        if self._complete:
            self.happened.clear()
            self.controller.step_completed(Time(epoch), self.bytes_moved)
            self.bytes_moved = 0

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

    def ask_first(self) -> None:
        """Issue no step of a migration before it is known which of its bins can travel: somebody asks the workers."""
        self._asks, self.heard = True, False
        for migration in self.controller.under_way:
            migration.cleared = False

    @property
    def in_doubt(self) -> Migration | None:
        """The migration of which the workers are to be asked; not before they have done an epoch."""
        return self.controller.uncleared if self.heard else None

    def clear(self, number: int) -> None:
        """Let a migration issue its steps, if it is still under way."""
        migration = self.controller.uncleared
        if migration is not None and migration.number == number:
            migration.cleared = True

    def fail(self, number: int, reason: str, epoch: int | None = None) -> Migration | None:
        """End a migration as failed, and those behind it; None if it has ended already.

        If it is for an epoch whose moves failed, the step in flight is taken back, so that it can be planned without:
        nobody may have any bin. If that epoch was applied after all, nothing has failed.
        """
        if epoch is not None and self.epoch >= epoch:
            return None
        if epoch is not None and self.controller.in_flight and not self._complete:
            self._take_back()
        return self.controller.fail(number, self.configuration.last, reason)

    def _take_back(self) -> None:
        """Undo the step in flight, also where it has happened: nobody has any bin at present."""
        self.controller.take_back()
        for operator in self.operators.values():
            if operator.pending:
                step = operator.pending.take_back()
                operator.freed |= {move.bin for move in step.moves}
        self.configuration.take_back(step.time, step.moves)
        self.happened.clear()
        self.bytes_moved = 0
        self.version += 1

    def reopen(self) -> None:
        """Go on in a new run: inputs that had ended are open again, where they were before."""
        if not self.closed:
            return
        self.closed = False
        for operator in self.operators.values():
            by_epoch = operator.clock == "epoch"
            operator.frontier = Frontier(Time(self.epoch + 1)) if by_epoch else operator.open_frontier
            operator.output = dict.fromkeys(operator.output, operator.frontier.bound)
        # What happened when the inputs had ended bears times that are still to come, now once more.
        (_, first), *pending = self.configuration.entries
        self.configuration = Configuration.of([(BEGIN, first), *pending])
        self.version += 1

    def place(self, assignment: Assignment, workers: int) -> None:
        """Begin a new run with the bins elsewhere: nobody has them, so nothing needs to move."""
        self.workers = workers
        self.configuration = Configuration(assignment)
        self.controller.expect(assignment)
        self.version += 1

    def let_go(self) -> None:
        """Need only as many workers as the rescales that are done have left, unless a plan needs more."""
        controller = self.controller
        while controller.current is None and controller.emptied:
            workers = controller.emptied.pop(0)
            if controller.expected.owners.max() < workers:
                self.workers = min(workers, self.workers)

    def surplus(self, there: Iterable[WorkerId]) -> list[WorkerId]:
        """Those of some workers that the query does not need any more, in the epoch that is open or later."""
        plan, wanted = self._plans.get(self.epoch), self.wanted
        return [worker for worker in there if worker >= wanted and plan and worker not in plan.workers]

    def lets_go_of(self, there: Iterable[WorkerId]) -> bool:
        """Would a further epoch let go of any of some workers?"""
        emptied = self.controller.current is None and self.controller.emptied
        return bool(emptied or self.surplus(there))

    def _make(self, epoch: int) -> EpochPlan:
        operators = {name: self._operator_plan(name, operator) for name, operator in self.operators.items()}
        before = len(self.configuration)
        self.configuration.retire(min(op.output_frontier for op in self.operators.values()))
        self.version += before != len(self.configuration)
        entries = tuple(self.configuration.entries)
        workers = sorted({w for _, owners in entries for w in owners.workers()} | self._movers(operators.values()))
        for operator in self.operators.values():
            operator.output = {worker: time for worker, time in operator.output.items() if worker in workers}
        return EpochPlan(epoch, self.version, entries, tuple(workers), operators, self.closed)

    def _operator_plan(self, name: str, operator: Operator) -> OperatorPlan:
        before = len(operator.pending)
        moves = tuple(operator.pending.on_output_frontier(operator.output_frontier))
        # Not by its moves: a step may have none, and must come to an end all the same.
        if len(operator.pending) < before:
            self.happened.add(name)
        holds = tuple(operator.pending.holds().items())
        freed, operator.freed = tuple(sorted(operator.freed)), set()
        return OperatorPlan(operator.frontier.bound, tuple(operator.seen), moves, holds, freed)

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
