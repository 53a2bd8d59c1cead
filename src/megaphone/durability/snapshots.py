"""Snapshots: a few bins per epoch, the stalest first, so that no epoch pays for all of them.

A round has two halves, both while the worker would be idle. When an epoch is applied, the stalest bins are copied; the
next epoch says that this one is committed, and when it is applied, too, the copies are written. So every snapshot is of
a committed epoch, whoever wrote it, and none is ever ahead of a recovery. While bins move, there is enough to do.
Neighbours: ledger.py knows which bins are stale, store.py keeps them.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from megaphone.bins import BinId
from megaphone.dataflow.hosting import Host
from megaphone.dataflow.state import Packed, Parcel, pack
from megaphone.dataflow.travel import reason_of
from megaphone.durability.ledger import Ledger
from megaphone.durability.store import REACH, Store
from megaphone.faults import reach
from megaphone.printing import LOGGER

YOUNG = 64
"""Epochs a bin may be stale before it is worth a snapshot, as long as the log is small."""

TOGETHER = 1 << 18
"""Bytes of bins that share a file, which stays until all of them have later snapshots; a larger bin is alone."""

LOG_BYTES = 64 << 20
"""A log of this size is worth cutting, however young it is: it takes a recovery about a second."""

LONGEST_S = 10.0
"""What an epoch counts for at most: when a stream was silent for an hour, the next one must not pay for it."""


@dataclass(slots=True)
class Copies:
    """Bins as they were after an epoch that may not be committed yet."""

    epoch: int
    bins: list[Packed] = field(default_factory=list)


class Snapshots:
    """The snapshots of one operator on one worker."""

    def __init__(self, store: Store, operator: str, ledger: Ledger, share: float, pool: Executor) -> None:
        """Spend at most about `share` of the time on it; 0 takes none."""
        self.share = share
        self.bytes_written = 0
        self.copied: list[tuple[int, int]] = []
        """Bins of the last round, and their bytes."""
        self.refused: list[tuple[int, str]] = []
        """Bins of the last round whose state cannot be pickled, and why."""
        self._store = store
        self._operator = operator
        self._ledger = ledger
        self._pool = pool
        self._copies: Copies | None = None
        self._committed: Copies | None = None
        """Copies that may be written."""
        self._writing: Future[None] | None = None
        self._written: deque[tuple[int, list[int]]] = deque()
        self._hopeless: dict[int, int] = {}
        """Bins whose state could not be pickled, and when: not tried again in every epoch."""
        self._warned = False
        self._rate = 200e6
        """Bytes a second that copying and writing come to; measured as we go."""
        self._last_s = time.monotonic()
        self._left_s = 0.0
        """Time that may be spent in this epoch; below zero, time that was spent and not yet saved."""
        self._log: deque[tuple[int, int]] = deque()

    def logged(self, epoch: int, size: int) -> None:
        """The log has grown."""
        if self.share > 0:
            self._log.append((epoch, size))

    def rest(
        self,
        host: Host,
        epoch: int,
        held: npt.NDArray[np.bool_],
        staying: AbstractContextManager[Any],
        moving: bool = False,
    ) -> None:
        """Nothing is applied meanwhile: have copies written, aside, or copy the stalest bins.

        Within `staying` no bin leaves. When bins have moved in the epoch, only a large log is a reason for snapshots.
        """
        self.copied, self.refused = [], []
        if moving and not self._log_is_large(epoch):
            self._last_s = time.monotonic()
            return
        if self._committed is not None:
            self._writing, self._committed = self._pool.submit(self._write, self._committed), None
        else:
            self._copy(host, epoch, held, staying)

    def _copy(self, host: Host, epoch: int, held: npt.NDArray[np.bool_], staying: AbstractContextManager[Any]) -> None:
        interval, self._last_s = time.monotonic() - self._last_s, time.monotonic()
        # What a large bin took too much, later epochs save.
        self._left_s = min(self._left_s, 0.0) + self.share * min(interval, LONGEST_S)
        if self.share <= 0 or self._is_writing():
            return
        copies = Copies(epoch)
        for bin in self._stale(host, epoch, held):
            if self._left_s <= 0:
                break
            begin = time.monotonic()
            with staying:
                if not host.resident[bin]:
                    continue
                parcel = host.copy(bin)
            packed = self._pack(parcel)
            if packed is None:
                self._hopeless[int(bin)] = epoch
                self._left_s -= time.monotonic() - begin
                continue
            self._hopeless.pop(int(bin), None)
            copies.bins.append(packed)
            self._left_s -= time.monotonic() - begin + sum(packed.sizes) / self._rate
        self._copies = copies if copies.bins else None
        self.copied = [(int(packed.bin), sum(packed.sizes)) for packed in copies.bins]

    def _is_writing(self) -> bool:
        """Are bins being written, or written and not yet in the ledger?"""
        return bool(self._written) or (self._writing is not None and not self._writing.done())

    def _pack(self, parcel: Parcel) -> Packed | None:
        """A bin as bytes that the fold cannot change any more; none if its state cannot be pickled, which is told once.

        The query goes on, since the log alone is enough; but it can never be cut.
        """
        try:
            packed = pack(parcel)
        except Exception as error:
            self.refused.append((int(parcel.bin), reason_of(error)))
            if not self._warned:
                self._warned = True
                LOGGER.warning(
                    "state of operator %s in bin %s cannot be kept: %s: %s; keep only what can be pickled, or the log "
                    "of its inputs grows for ever",
                    *(self._operator, parcel.bin, type(error).__name__, error),
                )
            return None
        return Packed(packed.bin, tuple(memoryview(bytes(part)) for part in packed.parts))

    def committed(self, epoch: int) -> None:
        """Everything up to an epoch is committed: what was copied may be written."""
        copies, self._copies = self._copies, None
        if copies is not None and copies.epoch <= epoch:
            self._committed = copies

    def settle(self, host: Host) -> None:
        """Enter into the ledger what has been written; nothing else may use the host meanwhile."""
        while self._written:
            epoch, bins = self._written.popleft()
            for bin in bins:
                if host.resident[bin]:
                    self._ledger.kept(bin, epoch)

    def _stale(self, host: Host, epoch: int, held: npt.NDArray[np.bool_]) -> Iterator[BinId]:
        """The bins worth a snapshot, the stalest first."""
        ledger = self._ledger
        old = epoch if self._log_is_large(epoch) else epoch - YOUNG
        # Of a bin that is to leave, records may be waiting at its next owner: its snapshot would be without them.
        stale = np.flatnonzero(host.resident & ledger.dirty & ~held & (ledger.since < old))
        for bin in stale[np.argsort(ledger.since[stale], kind="stable")]:
            if int(bin) not in self._hopeless or epoch - self._hopeless[int(bin)] > YOUNG:
                yield BinId(int(bin))

    def _log_is_large(self, epoch: int) -> bool:
        needed = self._ledger.needed_from(epoch)
        while self._log and self._log[0][0] < needed:
            self._log.popleft()
        return sum(size for _, size in self._log) > LOG_BYTES

    def _write(self, copies: Copies) -> None:
        begin = time.monotonic()
        size = 0
        for bins in together(copies.bins):
            reach("snapshot")
            size += self._store.write_snapshot(self._operator, copies.epoch, {bin.bin: bin.parts for bin in bins})
            self._written.append((copies.epoch, [bin.bin for bin in bins]))
        self.bytes_written += size
        seconds = max(time.monotonic() - begin, 1e-4)
        self._rate = 0.5 * self._rate + 0.5 * size / seconds


def together(bins: Iterable[Packed]) -> Iterator[list[Packed]]:
    """Bins, file by file: small ones that are close to each other in one, since a file costs more than a small bin.

    >>> sizes = {9: 1, 3: 1, 5: TOGETHER, 70: 1}
    >>> bins = [Packed(BinId(bin), (memoryview(bytes(size)),)) for bin, size in sizes.items()]
    >>> [[packed.bin for packed in file] for file in together(bins)]
    [[3], [5], [9, 70]]
    """
    file: list[Packed] = []
    size = 0
    for packed in sorted(bins, key=lambda packed: packed.bin):
        size += sum(packed.sizes)
        if file and (size > TOGETHER or packed.bin - file[0].bin >= REACH):
            yield file
            file, size = [], sum(packed.sizes)
        file.append(packed)
    if file:
        yield file
