"""Placement: where each worker of a run lives, and who is to start one that does not live yet.

A worker is started by a task of the query itself, on the machine that task runs on: no job of its own, so nothing to
wait for when every core is busy. Workers are spread evenly over the executors that ask.
Neighbours: coordinator.py answers with it, task.py starts what it is told to.
"""

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from megaphone.bins import WorkerId
from megaphone.engine.spark.messages import Address, Join
from megaphone.errors import WorkerLost

PATIENCE_S = 60.0
"""A worker imports its libraries in a second or two; on a machine that is busy it may take many times that."""


@dataclass(slots=True)
class Resident:
    """A worker that has joined."""

    join: Join
    connection: socket.socket


class Placement:
    """The workers of one run."""

    def __init__(self, executors: Callable[[], int]) -> None:
        """Start with none; `executors` tells how many executors there are now."""
        self._executors = executors
        self._changed = threading.Condition()
        self._residents: dict[WorkerId, Resident] = {}
        self._promised: dict[WorkerId, tuple[str, float]] = {}
        self._lost: dict[WorkerId, str] = {}
        self._closed = False

    @property
    def residents(self) -> dict[WorkerId, Join]:
        """The workers that are there."""
        with self._changed:
            return {worker: resident.join for worker, resident in self._residents.items()}

    @property
    def lost(self) -> set[WorkerId]:
        """The workers that are gone with what they owned."""
        with self._changed:
            return set(self._lost)

    def forgive(self, worker: WorkerId) -> None:
        """A worker that is gone owned nothing: it may be started anew."""
        with self._changed:
            self._lost.pop(worker, None)

    def addresses(self) -> dict[int, Address]:
        """Where each worker that is there listens."""
        return {int(worker): join.address for worker, join in self.residents.items()}

    def claim(self, executor: str, wanted: Iterable[WorkerId]) -> list[WorkerId]:
        """The wanted workers an executor is to start, at most its even share."""
        with self._changed:
            missing = [worker for worker in wanted if self._is_missing(worker)]
            if not missing:
                return []
            share = -(-len(list(wanted)) // max(1, self._executors()))
            mine = Counter(where for where, _ in self._promised.values())[executor]
            return [self._promise(worker, executor) for worker in missing[: max(0, share - mine)]]

    def find(self, worker: WorkerId, executor: str) -> Address | None:
        """A worker's address, waiting for it if somebody is starting it; none if the asker is to start it."""
        deadline = time.monotonic() + PATIENCE_S
        with self._changed:
            while worker not in self._residents:
                if worker in self._lost:
                    raise WorkerLost(f"worker {worker} is gone ({self._lost[worker]}), and the bins it owned with it")
                if self._is_missing(worker):
                    self._promise(worker, executor)
                    return None
                if self._closed or not self._changed.wait(deadline - time.monotonic()):
                    raise WorkerLost(f"worker {worker} did not start within {PATIENCE_S:.0f} s")
            return self._residents[worker].join.address

    def joined(self, join: Join, connection: socket.socket) -> None:
        """A worker is there."""
        with self._changed:
            worker = WorkerId(join.worker)
            if self._closed or worker in self._residents or worker not in self._promised:
                # Late, or one too many: two processes must never be the same worker.
                raise OSError(f"worker {worker} is not wanted")
            self._residents[worker] = Resident(join, connection)
            self._changed.notify_all()

    def gone(self, join: Join) -> None:
        """A worker's process has ended."""
        with self._changed:
            worker = WorkerId(join.worker)
            if not self._closed and worker in self._residents and self._residents[worker].join == join:
                del self._residents[worker]
                self._promised.pop(worker, None)
                self._lost[worker] = f"process {join.pid} on {join.host} ended"
                self._changed.notify_all()

    def dismiss(self, worker: WorkerId) -> None:
        """Let one worker go: it owns nothing any more."""
        with self._changed:
            resident = self._residents.pop(worker, None)
            self._promised.pop(worker, None)
        if resident is not None:
            _hang_up(resident.connection)

    def close(self) -> None:
        """Let every worker go."""
        with self._changed:
            self._closed = True
            residents, self._residents = list(self._residents.values()), {}
            self._changed.notify_all()
        for resident in residents:
            _hang_up(resident.connection)

    def _is_missing(self, worker: WorkerId) -> bool:
        promised = self._promised.get(worker)
        overdue = promised is not None and time.monotonic() - promised[1] > PATIENCE_S
        return worker not in self._residents and worker not in self._lost and (promised is None or overdue)

    def _promise(self, worker: WorkerId, executor: str) -> WorkerId:
        self._promised[worker] = (executor, time.monotonic())
        return worker


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
