"""Placement: where each worker of a run lives, and who is to start one that does not live yet, or no more.

A worker is started by a task of the query itself, on the machine that task runs on: no job of its own, so nothing to
wait for when every core is busy. Workers are spread evenly over the executors that ask. A worker that is gone, or
that somebody could not reach, is started anew under the next incarnation; the old process, should it come back, is
nobody.
Neighbours: coordinator.py answers with it, task.py starts what it is told to.
"""

import contextlib
import itertools
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heapify, heapreplace

from megaphone.bins import WorkerId
from megaphone.engine.spark.messages import Birth, Join, PlaceAnswer, Seat
from megaphone.errors import WorkerLost

PATIENCE_S = 120.0
"""How long to wait for a worker in all."""

START_S = 8.0
"""A worker imports its libraries in a second or two. Who promised to start one and has not by now will not: an executor
that died, for one. The next one gets twice as long, since the machine may just be slow."""

ROOM_S = START_S
"""How long a missing worker is kept for an executor that has fewer: its first task may be about to ask, when its Python
has started."""


@dataclass(slots=True)
class Resident:
    """A worker that has joined."""

    join: Join
    connection: socket.socket


@dataclass(frozen=True, slots=True)
class Promise:
    """A worker that an executor starts, or has started."""

    executor: str
    birth: Birth
    made_s: float


class Placement:
    """The workers of one run."""

    def __init__(self, executors: Callable[[], int]) -> None:
        """Start with none; `executors` tells how many executors there are now."""
        self._executors = executors
        self._changed = threading.Condition()
        self._residents: dict[WorkerId, Resident] = {}
        self._promised: dict[WorkerId, Promise] = {}
        self._incarnations = itertools.count(1)
        self._tries: Counter[WorkerId] = Counter()
        self._born: set[WorkerId] = set()
        self._wanted: list[WorkerId] = []
        self._short_since_s: float | None = None
        self._closed = False

    @property
    def residents(self) -> dict[WorkerId, Join]:
        """The workers that are there."""
        with self._changed:
            return {worker: resident.join for worker, resident in self._residents.items()}

    def seats(self) -> dict[int, Seat]:
        """Where each worker that is there listens."""
        return {int(worker): Seat(join.address, join.incarnation) for worker, join in self.residents.items()}

    def is_seated(self, worker: WorkerId, incarnation: int) -> bool:
        """Is a process still the worker it was?"""
        with self._changed:
            resident = self._residents.get(worker)
            return resident is not None and resident.join.incarnation == incarnation

    def claim(self, executor: str, wanted: Iterable[WorkerId]) -> list[Birth]:
        """The wanted workers an executor is to start: those that no executor with fewer should have."""
        with self._changed:
            self._wanted = list(wanted)
            missing = self._missing()
            self._short_since_s = (self._short_since_s or time.monotonic()) if missing else None
            mine = missing[: self._room(executor, len(missing))]
            few = self._at_a_time(executor)
            lost = [worker for worker in mine if worker in self._born]
            new = [worker for worker in mine if worker not in self._born]
            births = [self._promise(worker, executor) for worker in lost]
            warm = bool(self._residents)
            return births + [self._promise(worker, executor, warm) for worker in new[: max(0, few - len(lost))]]

    def find(self, worker: WorkerId, executor: str, lost: int = -1) -> PlaceAnswer:
        """Where a worker is, once somebody has started it; or the asker is to start it.

        Not there counts also the incarnation that the asker could not reach: two must never answer for one worker.
        """
        deadline = time.monotonic() + PATIENCE_S
        with self._changed:
            self._fence(worker, lost)
            while worker not in self._residents:
                if self._closed or time.monotonic() > deadline:
                    raise WorkerLost(f"worker {worker} did not start within {PATIENCE_S:.0f} s")
                # One that was lost is started by whoever needs it, wherever that is: the epoch waits for it.
                may = worker in self._born or self._room(executor, len(self._missing()) or 1)
                if self._is_missing(worker) and may:
                    return PlaceAnswer(None, self._promise(worker, executor))
                self._changed.wait(0.2)
            join = self._residents[worker].join
            return PlaceAnswer(Seat(join.address, join.incarnation))

    def joined(self, join: Join, connection: socket.socket) -> None:
        """A worker is there."""
        with self._changed:
            worker = WorkerId(join.worker)
            promise = self._promised.get(worker)
            awaited = promise is not None and promise.birth.incarnation == join.incarnation
            if self._closed or worker in self._residents or not awaited:
                # Late, or one too many: two processes must never be the same worker.
                raise OSError(f"worker {worker} is not wanted")
            self._residents[worker] = Resident(join, connection)
            self._tries[worker] = 0
            self._changed.notify_all()

    def gone(self, join: Join) -> None:
        """A worker's process has ended, or is silent."""
        with self._changed:
            self._fence(WorkerId(join.worker), join.incarnation)

    def dismiss(self, worker: WorkerId) -> None:
        """Let one worker go: it owns nothing any more."""
        with self._changed:
            resident = self._residents.get(worker)
            if resident is not None:
                self._fence(worker, resident.join.incarnation)
                self._born.discard(worker)

    def close(self) -> None:
        """Let every worker go."""
        with self._changed:
            self._closed = True
            residents, self._residents = list(self._residents.values()), {}
            self._changed.notify_all()
        for resident in residents:
            _hang_up(resident.connection)

    def _fence(self, worker: WorkerId, incarnation: int) -> None:
        """A process is not the worker any more: it ends when it notices, and until then nobody listens to it."""
        resident = self._residents.get(worker)
        if not self._closed and resident is not None and resident.join.incarnation == incarnation:
            del self._residents[worker]
            self._promised.pop(worker, None)
            _hang_up(resident.connection)
            self._changed.notify_all()

    def _is_missing(self, worker: WorkerId) -> bool:
        promise = self._promised.get(worker)
        patience = START_S * 2 ** (self._tries[worker] - 1)
        overdue = promise is not None and time.monotonic() - promise.made_s > patience
        return worker not in self._residents and (promise is None or overdue)

    def _missing(self) -> list[WorkerId]:
        return [worker for worker in self._wanted if self._is_missing(worker)]

    def _room(self, executor: str, missing: int) -> int:
        """How many missing workers would be an executor's if each went to the one that has the fewest by then."""
        if self._short_since_s is None or time.monotonic() - self._short_since_s > ROOM_S:
            # Those with fewer do not ask: they have no task of ours, or are gone and Spark has not noticed.
            return missing
        counts = Counter(promise.executor for promise in self._promised.values())
        mine = counts.pop(executor, 0)
        others = [*counts.values(), *[0] * (self._executors() - 1 - len(counts))]
        heapify(others)
        room = 0
        for _ in range(missing):
            if not others or mine + room <= others[0]:
                room += 1
            else:
                heapreplace(others, others[0] + 1)
        return room

    def _at_a_time(self, executor: str) -> int:
        """How many new workers an executor may start now: all, if the query has none yet; else few.

        A process that starts takes cores from the query for a second. Half as many as are there it can bear.
        """
        if not self._residents:
            return len(self._wanted)
        mine = [worker for worker, promise in self._promised.items() if promise.executor == executor]
        there = sum(worker in self._residents for worker in mine)
        starting = len(mine) - there
        return max(1, there // 2) - starting

    def _promise(self, worker: WorkerId, executor: str, warm: bool = False) -> Birth:
        birth = Birth(worker, next(self._incarnations), warm)
        self._born.add(worker)
        self._tries[worker] += 1
        self._promised[worker] = Promise(executor, birth, time.monotonic())
        return birth


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
