"""A run: one control within one run of one query. Its epochs, its workers, its operators.

Two queries over the same operators are two runs: each has its own workers and its own state.
Neighbours: coordinator.py finds the run a call is about, control.py shows it to the user.
"""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow.flight as flight

from megaphone.bins import WorkerId
from megaphone.configuration import Assignment
from megaphone.control.basis import Basis, Checked
from megaphone.control.controller import Migration
from megaphone.control.epochs import EpochPlan
from megaphone.control.plan import Plan
from megaphone.control.travel import Inquiry, cannot_travel
from megaphone.durability.commands import Written, read_back
from megaphone.durability.manifest import Manifest, Shape
from megaphone.durability.store import Command, Store
from megaphone.durability.unread import unread
from megaphone.engine.spark.inquirer import LOOK_S, Inquirer
from megaphone.engine.spark.memoir import Memoir, obey
from megaphone.engine.spark.messages import (
    AliveQuestion,
    Key,
    Orders,
    PlaceAnswer,
    PlaceQuestion,
    PlanAnswer,
    PlanQuestion,
    ReportMessage,
    Safe,
    SpecAnswer,
    StuckMessage,
)
from megaphone.engine.spark.orders import orders_for
from megaphone.engine.spark.placement import Placement
from megaphone.engine.spark.rpc import Caller
from megaphone.errors import MegaphoneError, PlanError
from megaphone.faults import reach
from megaphone.progress import Time
from megaphone.service.chronicle import Chronicle
from megaphone.service.directory import Query
from megaphone.service.logs import LOGGER, Minutely, tell
from megaphone.service.timeline import Point, Timeline, Trigger

Planner = Callable[[Basis], Plan]
"""Makes a plan; called again if what it was made from has changed before the plan was accepted."""

TRIES = 4
"""Plans that are made without the lock: after as many, epochs wait for the next one."""

HEAD_START_S = 10.0
"""For orders that are sent ahead: whoever has not taken them by then gets them with its records."""


@dataclass(frozen=True, slots=True)
class PickledSpec:
    """An operator as workers receive it."""

    pickled: bytes
    by_epoch: bool
    inputs: int
    shape: Shape
    unit: str
    """What a step of its time is."""
    zoned: bool | None = None
    """Have its times a time zone? None if they are no timestamps."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How a run begins: by its control, and by where its query keeps its checkpoint."""

    initial: Assignment
    workers: int
    specs: Mapping[str, PickledSpec]
    checkpoint: str
    control: str
    """What the control is called there."""
    share: float
    bounded: bool
    name: str | None = None
    """What the user calls the query."""
    trusted: bool = False
    """Does the user vouch for what is in the checkpoint?"""


class Run:
    """The control side of one running query."""

    def __init__(
        self,
        key: Key,
        terms: Terms,
        epoch: int,
        caller: Caller,
        executors: Callable[[], int],
        only_control_advanced: Callable[[int], bool],
        trigger_of: Callable[[int], Trigger | None],
    ) -> None:
        """Begin before an epoch: the first, or the one that Spark has not committed yet."""
        self.key = key
        self.query = Query(key.query, terms.name)
        self.chronicle = Chronicle(key.query, key.run, terms.name, key.control)
        self.timeline = Timeline()
        self.lock = threading.RLock()
        self.specs = dict(terms.specs)
        self.bounded = terms.bounded
        self._checkpoint = terms.checkpoint
        self.placement = Placement(executors)
        shapes = {name: spec.shape for name, spec in self.specs.items()}
        self._memoir = Memoir(
            Store(terms.checkpoint, terms.control, terms.trusted),
            Manifest(len(terms.initial), terms.workers, shapes),
            {name: spec.pickled for name, spec in self.specs.items()},
            {name: ("epoch" if spec.by_epoch else "column", spec.inputs) for name, spec in self.specs.items()},
        )
        self._safe = Safe(terms.checkpoint, terms.control, self._memoir.attempt, terms.share, terms.trusted)
        self.epochs = self._memoir.begin(epoch, terms.initial)
        self._told = self.epochs.controller.ended.total()
        self._closed_inputs = False
        self._opened = False
        self._ended = False
        self._only_control_advanced = only_control_advanced
        self._trigger_of = trigger_of
        self._caller = caller
        self._polls = 0
        self._gave: dict[str, set[WorkerId]] = {}
        self._uncut = Minutely()
        self.epochs.ask_first()
        self._inquirer = Inquirer(caller, self.placement.seats, self._conclude)
        self._doomed: str | None = None
        self._sender = ThreadPoolExecutor(max_workers=4, thread_name_prefix="orders")
        self._cutter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cut")

    def plan(self, question: PlanQuestion) -> PlanAnswer:
        """The plan of an epoch; made, and sent ahead to the workers that pull, when it is first asked for."""
        with self.lock:
            self._check_alive()
            fresh = question.epoch > self.epochs.epoch
            plan = self._open(question.epoch) if fresh else self.epochs.open(question.epoch)
            self._memoir.write(self.epochs)
            self._polls = 0
            wanted = sorted({*plan.workers, *map(WorkerId, range(self.epochs.wanted))})
            current = question.epoch == self.epochs.epoch
        if fresh:
            reach("after-plan", _is_moving(plan))
            self._send_ahead(plan)
        spawn = self.placement.claim(question.executor, wanted) if current else []
        return PlanAnswer.of(plan, question.known, self.placement.seats(), spawn)

    def _open(self, epoch: int) -> EpochPlan:
        last = self.epochs.epoch
        if self.epochs.silent:
            workers = f"workers {sorted(self.epochs.silent)}"
            raise unread(self._checkpoint, last, f"{workers} have not applied epoch {last}")
        if last >= 0 and epoch > last + 1:
            raise unread(self._checkpoint, last + 1, f"no worker has applied epoch {last + 1}")
        reach("before-plan", self.epochs.controller.current is not None)
        # If anything had failed for good, nobody would ask for the next epoch.
        self._doomed = None
        needed_from = self.epochs.needed_from
        # Never in the first epoch: it may be one that was closing when the driver died, and data has come since.
        closing = self.bounded and self._opened and self._only_control_advanced(epoch)
        self._opened = True
        plan = self._memoir.open(self.epochs, epoch, closing)
        self._closed_inputs = self._closed_inputs or closing
        self._dismiss_surplus()
        self._tell_ended()
        self.chronicle.note(self.epochs, len(self.placement.residents))
        if (point := self.timeline.opened(self.epochs, plan)) is not None:
            self._cutter.submit(self._note, point)
        under_way = [migration.number for migration in self.epochs.controller.under_way]
        self._cutter.submit(self._cut, epoch, needed_from, under_way)
        return plan

    def draft(self, planner: Planner, then_workers: int | None = None) -> Checked:
        """A plan that could be followed now; a rescale says to how many workers."""
        with self.lock:
            self._check_alive()
            basis = self.epochs.basis
        return basis.check(planner(basis), then_workers)

    def submit(self, planner: Planner, then_workers: int | None = None) -> Migration:
        """Make a plan, write it down and accept it; made once more if something else was accepted meanwhile."""
        for _ in range(TRIES):
            written = read_back(self.draft(planner, then_workers))
            with self.lock:
                if self.epochs.is_at(written.checked.basis):
                    migration = self._accept(written)
                    break
        else:
            with self.lock:
                migration = self._accept(read_back(self.draft(planner, then_workers)))
        self._tell_command("submit", migration)
        return migration

    def _accept(self, written: Written) -> Migration:
        self._check_alive()
        self.epochs.check_still(written.checked)
        migration = self.epochs.accept(written.checked, self._memoir.command(written.raw))
        self._inquire()
        return migration

    def tell(self, verb: str) -> Migration:
        """Pause, resume or cancel the migration under way."""
        with self.lock:
            self._check_alive()
            # Refused before it is written down.
            self.epochs.controller.check_told(verb)
            migration = obey(self.epochs, Command(verb), self._memoir.command(Command(verb)))
            assert migration is not None
        self._tell_command(verb, migration)
        return migration

    def _tell_command(self, verb: str, migration: Migration) -> None:
        tell(f"migration: {verb}", query=self.key.query, number=migration.number, migration=str(migration))

    def _check_alive(self) -> None:
        if self._ended:
            raise PlanError(f"query {self.query.name or self.key.query} has ended")

    def _tell_ended(self) -> None:
        for past in self.epochs.controller.ended_since(self._told):
            tell(f"migration {past.phase}", query=self.key.query, number=past.number, migration=str(past))
        self._told = self.epochs.controller.ended.total()

    def place(self, question: PlaceQuestion) -> PlaceAnswer:
        """Where a worker is, or the order to start it."""
        return self.placement.find(WorkerId(question.worker), question.executor, question.lost)

    def alive(self, question: AliveQuestion) -> bool:
        """Is a process still the worker it was?"""
        return self.placement.is_seated(WorkerId(question.worker), question.incarnation)

    def report(self, message: ReportMessage) -> None:
        """What workers have done in an epoch."""
        with self.lock:
            reach("reported", _is_moving(self.epochs.open(self.epochs.epoch)))
            seen = [Time(time) for time in message.seen]
            self.epochs.report(message.operator, message.epoch, message.reports, seen, Time(message.frontier))
            self._inquire()

    def _inquire(self) -> None:
        """If the next step must wait for it, let it be found out which bins can travel."""
        if (migration := self.epochs.in_doubt) is not None:
            self._inquirer.begin(migration, self.epochs.configuration.last, self.epochs.operators)

    def _conclude(self, migration: Migration, inquiry: Inquiry) -> None:
        """It is found out, or took too long: the migration goes on, or has failed."""
        with self.lock:
            if self._ended or self.epochs.in_doubt is not migration:
                return
            if (reason := inquiry.obstacle) is not None:
                LOGGER.warning("migration %s of query %s has failed: %s", migration.number, self.key.query, reason)
                command = Command("fail", migration=migration.number, reason=reason)
                obey(self.epochs, command, self._memoir.command(command))
                return
            if inquiry.unknown:
                LOGGER.info(
                    "migration %s begins; it is not known of %s states whether they can travel",
                    migration.number,
                    inquiry.unknown,
                )
            self.epochs.clear(migration.number)

    def foresee(self, plan: Plan) -> Plan:
        """A dry run's plan, and what keeps its bins from travelling at present."""
        with self.lock:
            if plan.estimate is None or not self.epochs.heard:
                return plan
            residence, operators = self.epochs.whereabouts, list(self.epochs.operators)
        obstacle = self._inquirer.look(plan.moves, residence, operators, LOOK_S).obstacle
        return replace(plan, estimate=replace(plan.estimate, obstacle=obstacle))

    def stuck(self, message: StuckMessage) -> None:
        """A bin cannot leave in the epoch that is open, which fails for it: write that down for the next attempt."""
        with self.lock:
            migration = self.epochs.controller.current
            is_open = message.epoch == self.epochs.epoch and self.epochs.controller.in_flight
            if self._ended or self._doomed or migration is None or not is_open:
                return
            reason = cannot_travel(message.operator, WorkerId(message.worker), message.stuck)
            self._memoir.command(Command("fail", migration=migration.number, reason=reason, epoch=message.epoch))
            self._doomed = reason
        LOGGER.warning(
            "epoch %s of query %s fails, and is planned without migration %s when it is started again: %s",
            *(message.epoch, self.key.query, migration.number, reason),
        )

    def output_frontier(self, operator: str) -> int:
        """How far an operator has got, all of whose tasks have reported this epoch."""
        with self.lock:
            return self.epochs.operators[operator].output_frontier.bound

    def spec(self, worker: WorkerId, operator: str) -> SpecAnswer:
        """An operator's definition, and the bins a worker has of it before the epoch that is open."""
        with self.lock:
            residence = self.epochs.residence(operator)
            return SpecAnswer(
                self.specs[operator].pickled,
                len(residence),
                residence.bins_of(worker).tobytes(),
                self.epochs.epoch - 1,
                self._safe,
            )

    def bell(self) -> bool:
        """Should the control source start an epoch? Only if nothing else has by its second look."""
        with self.lock:
            self._polls += 1
            if self.bounded:
                # An epoch more is the price of not ending before it is known whether a step can be issued.
                return not self._closed_inputs or self.epochs.wants_epoch or self.epochs.waits_for_answers
            there = self.placement.residents
            missing = set(range(self.epochs.wanted)) - there.keys()
            wanted = self.epochs.wants_epoch or bool(missing) or self.epochs.lets_go_of(there)
            return self._polls > 1 and self.epochs.epoch >= 0 and wanted

    def _dismiss_surplus(self) -> None:
        """Let go of the workers that a rescale has emptied, or that were started for one that was refused."""
        self.epochs.let_go()
        for worker in self.epochs.surplus(self.placement.residents):
            self.placement.dismiss(worker)

    def _note(self, point: Point) -> None:
        self.timeline.add(point, self._trigger_of(point.epoch))

    def _cut(self, epoch: int, needed_from: int, under_way: list[int]) -> None:
        try:
            self._memoir.cut(epoch, needed_from, under_way)
        except Exception as error:
            if self._uncut.due(time.monotonic()):
                LOGGER.warning("the log of query %s cannot be cut, and grows: %s", self.key.query, error)

    def close(self) -> None:
        """The query has ended: so do its workers. Nothing more is written down, for another run may have begun."""
        self.placement.close()
        self._inquirer.close()
        for pool in (self._sender, self._cutter):
            pool.shutdown(wait=False, cancel_futures=True)
        with self.lock:
            self._ended = True
            if self._doomed is not None and (migration := self.epochs.controller.current) is not None:
                self.epochs.controller.take_back()
                self.epochs.controller.fail(migration.number, self.epochs.configuration.last, self._doomed)
            self.epochs.controller.interrupt()

    def _send_ahead(self, plan: EpochPlan) -> None:
        seats = {WorkerId(worker): seat for worker, seat in self.placement.seats().items()}
        orders: dict[WorkerId, list[Orders]] = {}
        for name, operator in plan.operators.items():
            # Who gave bins away before learns that they are safe elsewhere; it may not be called for anything else.
            for worker in {move.target for move in operator.moves} | self._gave.get(name, set()):
                sources = {move.source for move in operator.moves if move.target == worker}
                if worker in seats and sources <= seats.keys():
                    told = orders_for(worker, name, plan.epoch, operator, lambda w: seats[w])
                    orders.setdefault(worker, []).append(told)
            self._gave[name] = {move.source for move in operator.moves}
        for worker, messages in orders.items():
            self._sender.submit(self._send, worker, messages)

    def _send(self, worker: WorkerId, orders: list[Orders]) -> None:
        try:
            address = self.placement.residents[worker].address
            # A worker that is stopped would keep this thread, and with it the driver, from ever ending.
            self._caller.call(address, "prepare", orders, type(None), HEAD_START_S)
        except (MegaphoneError, KeyError, OSError, flight.FlightError):
            # The task that feeds the worker sends the same orders; this was only a head start.
            return


def _is_moving(plan: EpochPlan) -> bool:
    return any(operator.moves for operator in plan.operators.values())
