"""A run: one control within one run of one query. Its epochs, its workers, its operators.

Two queries over the same operators are two runs: each has its own workers and its own state.
Neighbours: coordinator.py finds the run a call is about, control.py shows it to the user.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from megaphone.bins import WorkerId
from megaphone.configuration import Assignment
from megaphone.control.controller import Migration
from megaphone.control.epochs import EpochPlan, Epochs
from megaphone.engine.spark.messages import (
    Key,
    Orders,
    PlaceAnswer,
    PlaceQuestion,
    PlanAnswer,
    PlanQuestion,
    ReportMessage,
    SpecAnswer,
)
from megaphone.engine.spark.orders import orders_for
from megaphone.engine.spark.placement import Placement
from megaphone.engine.spark.rpc import Caller
from megaphone.errors import MegaphoneError, PlanError
from megaphone.progress import Time


@dataclass(frozen=True, slots=True)
class PickledSpec:
    """An operator as workers receive it."""

    pickled: bytes
    by_epoch: bool
    inputs: int


class Run:
    """The control side of one running query."""

    def __init__(
        self,
        key: Key,
        initial: Assignment,
        workers: int,
        specs: Mapping[str, PickledSpec],
        caller: Caller,
        executors: Callable[[], int],
        only_control_advanced: Callable[[int], bool],
    ) -> None:
        """Begin before the first epoch."""
        self.key = key
        self.lock = threading.RLock()
        self.specs = dict(specs)
        self.epochs = Epochs(
            initial, workers, {name: ("epoch" if s.by_epoch else "column", s.inputs) for name, s in specs.items()}
        )
        self.placement = Placement(executors)
        self.bounded = False
        self._closed_inputs = False
        self._shrink: tuple[int, Migration] | None = None
        self._initial = initial
        self._only_control_advanced = only_control_advanced
        self._caller = caller
        self._polls = 0
        self._gave: dict[str, set[WorkerId]] = {}
        self._sender = ThreadPoolExecutor(max_workers=4, thread_name_prefix="orders")

    def plan(self, question: PlanQuestion) -> PlanAnswer:
        """The plan of an epoch; made, and sent ahead to the workers that pull, when it is first asked for."""
        with self.lock:
            fresh = question.epoch > self.epochs.epoch
            if fresh and self.epochs.epoch < 0 and question.epoch > 0:
                raise PlanError(
                    f"query {self.key.query} goes on at epoch {question.epoch}, but the state of its operators ended "
                    "with the process that had it; start it with a new checkpoint location"
                )
            if fresh and self.epochs.silent:
                raise PlanError(
                    f"epoch {self.epochs.epoch} of query {self.key.query} was committed, but workers "
                    f"{sorted(self.epochs.silent)} were not asked for it: the sink must read all rows of every epoch"
                )
            closing = fresh and self.bounded and self._only_control_advanced(question.epoch)
            plan = self.epochs.open(question.epoch, closing)
            self._closed_inputs = self._closed_inputs or closing
            self._dismiss_surplus()
            self._polls = 0
            wanted = sorted({*plan.workers, *map(WorkerId, range(self.epochs.workers))})
            self._forgive()
            current = question.epoch == self.epochs.epoch
        if fresh:
            self._send_ahead(plan)
        spawn = [int(worker) for worker in self.placement.claim(question.executor, wanted)] if current else []
        return PlanAnswer.of(plan, question.known, self.placement.addresses(), spawn)

    def place(self, question: PlaceQuestion) -> PlaceAnswer:
        """Where a worker is, or the order to start it."""
        return PlaceAnswer(self.placement.find(WorkerId(question.worker), question.executor))

    def report(self, message: ReportMessage) -> None:
        """What workers have done in an epoch."""
        with self.lock:
            seen = [Time(time) for time in message.seen]
            self.epochs.report(message.operator, message.epoch, message.reports, seen, Time(message.frontier))

    def output_frontier(self, operator: str) -> int:
        """How far an operator has got, all of whose tasks have reported this epoch."""
        with self.lock:
            return self.epochs.operators[operator].output_frontier.bound

    def spec(self, worker: WorkerId, operator: str) -> SpecAnswer:
        """An operator's definition, and what of it a new worker starts with."""
        with self.lock:
            begin = self.epochs.epoch <= 0
            owned = self._initial.bins_of(worker) if begin else np.empty(0, np.int64)
            return SpecAnswer(
                self.specs[operator].pickled,
                len(self._initial),
                owned.tobytes(),
                -1 if begin else self.epochs.epoch - 1,
            )

    def bell(self) -> bool:
        """Should the control source start an epoch? Only if nothing else has by its second look."""
        with self.lock:
            self._polls += 1
            if self.bounded:
                return not self._closed_inputs or self.epochs.wants_epoch
            self._forgive()
            missing = set(range(self.epochs.workers)) - set(self.placement.residents) - self.placement.lost
            wanted = self.epochs.wants_epoch or bool(missing) or self._is_shrunk
            return self._polls > 1 and self.epochs.epoch >= 0 and wanted

    def shrink_to(self, workers: int, migration: Migration) -> None:
        """When a migration has emptied the workers from `workers` on, let them go."""
        self._shrink = (workers, migration)

    @property
    def _is_shrunk(self) -> bool:
        return self._shrink is not None and self._shrink[1].ended_s is not None

    def _dismiss_surplus(self) -> None:
        if self._shrink is None or not self._is_shrunk:
            return
        workers, migration = self._shrink
        self._shrink = None
        # Another migration may have been asked for since, to the workers that were to go.
        if migration.phase == "done" and self.epochs.controller.expected.owners.max() < workers:
            surplus = range(workers, self.epochs.workers)
            self.epochs.workers = workers
            for worker in surplus:
                self.placement.dismiss(WorkerId(worker))

    def _forgive(self) -> None:
        """A worker that is gone and owned nothing may be started anew."""
        for worker in self.placement.lost:
            if not any((owners.owners == worker).any() for _, owners in self.epochs.configuration.entries):
                self.placement.forgive(worker)

    def close(self) -> None:
        """The query has ended: so do its workers and what was still to migrate."""
        self.placement.close()
        self._sender.shutdown(wait=False, cancel_futures=True)
        with self.lock:
            while self.epochs.controller.current is not None:
                self.epochs.controller.cancel(self.epochs.configuration.last)
                if self.epochs.controller.current is not None:
                    self.epochs.controller.step_completed(Time(self.epochs.epoch))

    def _send_ahead(self, plan: EpochPlan) -> None:
        residents = self.placement.residents
        orders: dict[WorkerId, list[Orders]] = {}
        for name, operator in plan.operators.items():
            # Who gave bins away before learns that they are safe elsewhere; it may not be called for anything else.
            for worker in {move.target for move in operator.moves} | self._gave.get(name, set()):
                sources = {move.source for move in operator.moves if move.target == worker}
                if worker in residents and sources <= residents.keys():
                    told = orders_for(worker, name, plan.epoch, operator, lambda w: residents[w].address)
                    orders.setdefault(worker, []).append(told)
            self._gave[name] = {move.source for move in operator.moves}
        for worker, messages in orders.items():
            self._sender.submit(self._send, worker, messages)

    def _send(self, worker: WorkerId, orders: list[Orders]) -> None:
        try:
            self._caller.call(self.placement.residents[worker].address, "prepare", orders, type(None))
        except (MegaphoneError, KeyError, OSError):
            # The task that feeds the worker sends the same orders; this was only a head start.
            return
