"""Recovery, by bin: its last snapshot, then the records for it in the logs of whoever owned it since.

A host redoes the epochs since the stalest snapshot, for the bins it is asked for and no others; a bin joins in after
the epoch of its snapshot. What comes out was given out before, and is dropped. No other worker is asked for anything.
Neighbours: store.py has the files, hosting.py redoes them.
"""

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial

import numpy as np
import numpy.typing as npt

from megaphone.bins import BinId, WorkerId
from megaphone.dataflow.exchange import decode
from megaphone.dataflow.hosting import Host
from megaphone.dataflow.native import host_for
from megaphone.dataflow.operators import OperatorSpec
from megaphone.dataflow.state import unpack
from megaphone.durability.files import retried
from megaphone.durability.ledger import NEVER, Ledger, Line
from megaphone.durability.log import Entry, read_entry
from megaphone.durability.store import BinFile, LogFile, Store, StoredPlan
from megaphone.errors import CheckpointError
from megaphone.progress import END, Frontier, Time

Bins = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NOT_HELD = np.iinfo(np.int64).max
"""Later than every epoch."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to recover: some bins of an operator on a worker, as they were after an epoch."""

    operator: str
    worker: WorkerId
    spec: OperatorSpec
    bins: int
    """How many there are in all."""
    wanted: Bins
    """Those to recover."""
    epoch: int
    followed: bool = False
    """Is the next epoch planned, and about to be applied? Then the bins are as its plan takes them up."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """Bins as they were, and their lines."""

    host: Host
    ledger: Ledger
    epochs: int
    """How many were redone."""


def recover(store: Store, request: Request) -> Recovered:
    """The wanted bins of a worker, and the records that wait there for bins to come."""
    return retried(lambda: _Recovery(store, request).with_early())  # type: ignore[no-any-return]


def recover_bins(store: Store, request: Request) -> Recovered:
    """Bins alone, as that worker had them."""
    return retried(lambda: _Recovery(store, request).alone())  # type: ignore[no-any-return]


def first_to_redo(begins: Iterable[int], planned: Iterable[int], epoch: int) -> int:
    """The first epoch to redo, some bins needing all from these on: what was cut from the log changed none of them."""
    return max(min(begins, default=epoch + 1), min(planned, default=0))


class _Recovery:
    def __init__(self, store: Store, request: Request) -> None:
        self._store = store
        self._request = request
        self._host = host_for(request.worker, request.spec.fold, request.bins)
        # What a bin's next owner got ahead of it: it joins the bin when that moves, as it did then.
        self._ahead = host_for(request.worker, request.spec.fold, request.bins)
        self._ledger = Ledger(request.bins)
        self._wanted: Mask = np.zeros(request.bins, np.bool_)
        self._wanted[request.wanted] = True
        self._attempts = store.plans()
        self._plan: Callable[[int], StoredPlan] = cache(self._read_plan)
        self._spec: Callable[[int], OperatorSpec] = cache(self._read_spec)
        self._configuration = cache(store.read_configuration)
        self._files: dict[int, BinFile] = {}
        self._snapshots = sorted(self._find_snapshots(), reverse=True)
        # They come epoch by epoch, and bin by bin: those of one file after each other.
        self._read_snapshot = lru_cache(maxsize=2)(partial(store.read_snapshot, request.operator))
        # Before the first epoch no bin has been held.
        followed = request.followed and request.epoch >= 0
        self._freed_next = self._freed(request.epoch + 1) if followed else set[int]()
        self._held_from = self._find_holds()

    def alone(self) -> Recovered:
        return self._redo(np.zeros(self._request.bins, np.bool_))

    def with_early(self) -> Recovered:
        early: Mask = (self._held_from < NOT_HELD) & ~self._wanted
        if early.any():
            plan = self._plan(self._request.epoch)
            entries = self._configuration(plan.attempt, plan.version).entries
            early &= np.any([owners.owners == self._request.worker for _, owners in entries], axis=0)
        return self._redo(early)

    def _redo(self, early: Mask) -> Recovered:
        """Redo the epochs that are missing; records for `early` bins wait here, without the bins being here."""
        first = self._first(early)
        logs = self._logs(first)
        for epoch in range(first, self._request.epoch + 1):
            self._install(before=epoch)
            self._redo_epoch(epoch, early, logs[epoch])
        self._install(before=self._request.epoch + 1)
        self._join(self._freed_next)
        self._host.fold = self._request.spec.fold
        self._host.unhold()
        return Recovered(self._host, self._ledger, max(0, self._request.epoch + 1 - first))

    def _first(self, early: Mask) -> int:
        begins = [stored + 1 for stored, _ in self._snapshots[-1:]]
        begins += self._held_from[early].tolist()
        return first_to_redo(begins, self._attempts, self._request.epoch)

    def _find_snapshots(self) -> Iterator[tuple[int, int]]:
        """The last snapshot of each wanted bin; a later epoch than the one we go to may have failed, and counts not."""
        found = dict.fromkeys(self._request.wanted.tolist(), NEVER)
        if self._request.epoch >= 0:
            for file, _ in self._store.snapshots(self._request.operator):
                for bin in file.bins:
                    if self._wanted[bin] and found[bin] < file.epoch <= self._request.epoch:
                        found[bin], self._files[bin] = file.epoch, file
        for bin, stored in found.items():
            yield stored, bin

    def _find_holds(self) -> npt.NDArray[np.int64]:
        """For each bin that is to move: since which epoch. From then on its next owner keeps the records it gets."""
        held_from: npt.NDArray[np.int64] = np.full(self._request.bins, NOT_HELD)
        epoch = self._request.epoch
        freed = self._freed_next
        coming: set[int] | None = None
        while epoch in self._attempts and (coming is None or coming):
            held = {int(bin) for bin, _ in self._plan(epoch).operators[self._request.operator].holds} - freed
            coming = held if coming is None else coming & held
            held_from[list(coming)] = epoch
            freed = self._freed(epoch)
            epoch -= 1
        return held_from

    def _freed(self, epoch: int) -> set[int]:
        """The bins that were to move before an epoch, and are not any more with it."""
        return set(map(int, self._plan(epoch).operators[self._request.operator].freed))

    def _install(self, before: int) -> None:
        """Take in the bins whose snapshots are from before an epoch."""
        while self._snapshots and self._snapshots[-1][0] < before:
            stored, bin = self._snapshots.pop()
            if stored == NEVER:
                self._host.resident[bin] = True
            else:
                raw = self._read_snapshot(self._files[bin])[bin]
                # In memory of its own, which folds may write to.
                parts = [np.frombuffer(part, np.uint8).copy() for part in raw]
                self._host.install(unpack(BinId(bin), parts))
            self._ledger.put(bin, Line(stored, stored))

    def _redo_epoch(self, epoch: int, early: Mask, files: Sequence[LogFile]) -> None:
        plan = self._plan(epoch)
        told = plan.operators[self._request.operator]
        self._host.fold = self._spec(plan.attempt).fold
        self._join(told.freed)
        self._join(move.bin for move in told.moves)
        holds: npt.NDArray[np.int64] = np.full(self._request.bins, END)
        for bin, at in told.holds:
            holds[bin] = at
        frontier = told.frontier
        for file in self._needed(epoch, plan, early, files):
            entry = read_entry(self._store, file)
            frontier = max(frontier, Time(entry.head.frontier))
            self._receive(entry, plan.attempt, self._takes(file, epoch, early), holds)
        for host in (self._host, self._ahead):
            host.frontier = Frontier(told.frontier)
            host.unhold()
            for bin, at in told.holds:
                host.hold(bin, at)
            host.touched[:] = False
            host.advance(Frontier(frontier))
            self._ledger.touch(host.touched, epoch)

    def _join(self, bins: Iterable[int]) -> None:
        """Bins are with their next owner, where records have been waiting for them, or will never go there."""
        for bin in map(BinId, bins):
            if self._host.resident[bin]:
                self._ahead.resident[bin] = True
                self._host.queue(bin, self._ahead.release(bin).pending)

    def _takes(self, file: LogFile, epoch: int, early: Mask) -> Mask:
        """The bins whose records in a log entry are with them, or wait here."""
        if file.worker == self._request.worker:
            return self._host.resident | (early & (self._held_from <= epoch))
        # What another worker has got ahead of a bin waits there still.
        return self._host.resident & (self._held_from > epoch)

    def _receive(self, entry: Entry, attempt: int, bins: Mask, holds: npt.NDArray[np.int64]) -> None:
        inputs = self._spec(attempt).inputs
        for input, payload in entry.payloads:
            for records in decode(payload, inputs[input].schema):
                ahead = self._host.resident[records.bins] & (records.times >= holds[records.bins])
                self._host.receive(records.where(bins[records.bins] & ~ahead), input)
                self._ahead.receive(records.where(bins[records.bins] & ahead), input)

    def _needed(self, epoch: int, plan: StoredPlan, early: Mask, files: Sequence[LogFile]) -> Iterator[LogFile]:
        """The log entries that may have records of the bins that take part."""
        configuration = self._configuration(plan.attempt, plan.version)
        owners = {int(owner) for _, a in configuration.entries for owner in np.unique(a.owners[self._host.resident])}
        owners |= {int(self._request.worker)} if early.any() else set()
        for worker in sorted(owners & set(plan.workers)):
            found = [file for file in files if file.worker == worker and file.attempt == plan.attempt]
            if not found:
                # If the epoch has been cut since we looked, its plan is gone, too, and we look again.
                self._store.read_plan(epoch, plan.attempt)
                raise CheckpointError(
                    f"no entry of worker {worker} for operator {self._request.operator} in epoch {epoch} in "
                    f"{self._store.folder.uri}/log"
                )
            yield max(found, key=lambda file: file.incarnation)

    def _logs(self, first: int) -> dict[int, list[LogFile]]:
        logs: dict[int, list[LogFile]] = defaultdict(list)
        if first <= self._request.epoch:
            for file, _ in self._store.log():
                if file.operator == self._request.operator:
                    logs[file.epoch].append(file)
        return logs

    def _read_plan(self, epoch: int) -> StoredPlan:
        if epoch not in self._attempts:
            # Listed while the log was being cut, or really gone: who looks again will see.
            raise FileNotFoundError(f"no plan of epoch {epoch} in {self._store.folder.uri}/plans")
        return self._store.read_plan(epoch, self._attempts[epoch])

    def _read_spec(self, attempt: int) -> OperatorSpec:
        return read_spec(self._store, attempt, self._request.operator)


def read_spec(store: Store, attempt: int, operator: str) -> OperatorSpec:
    """An operator as it was in an attempt, with its fold."""
    # The query's own checkpoint: whoever can write there can run code in the query (docs/security.md).
    spec: OperatorSpec = pickle.loads(store.read_spec(attempt, operator))
    return spec
