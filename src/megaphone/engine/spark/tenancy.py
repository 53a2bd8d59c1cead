"""A tenancy: one operator in one worker process, from epoch to epoch.

Applying an epoch is idempotent: at n-1 it applies n and keeps the outputs until n is committed; at n already, it gives
the kept outputs; anything else is refused. Bins that leave at n stay readable here until n is committed.
Neighbours: worker.py receives the calls, hosting.py does the work, transfer.py brings the bins.
"""

import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from megaphone.bins import BinId, WorkerId
from megaphone.control.epochs import Report
from megaphone.dataflow.hosting import Host, Outcome
from megaphone.dataflow.records import Records
from megaphone.dataflow.state import Packed, Parcel, pack
from megaphone.engine.spark.memory import Loans
from megaphone.engine.spark.messages import Orders
from megaphone.engine.spark.rpc import Caller
from megaphone.engine.spark.transfer import Pulls
from megaphone.errors import FoldError, ProtocolError
from megaphone.progress import Frontier, Time

Result = tuple[list[pa.RecordBatch], Report]


class Tenancy:
    """One operator's bins in this process, and the epoch they have reached."""

    def __init__(self, host: Host, operator: str, epoch: int, caller: Caller, pool: ThreadPoolExecutor) -> None:
        """Begin after `epoch` with what the host has."""
        self.host = host
        self.operator = operator
        self.epoch = epoch
        self.loans = Loans()
        self._caller = caller
        self._pool = pool
        self._applying = threading.Lock()
        self._leaving_lock = threading.Lock()
        self._leaving_at = epoch
        self._leaving: dict[BinId, Parcel] = {}
        self._pulls: Pulls | None = None
        self._kept: Result | None = None
        self._broken: Exception | None = None

    def prepare(self, orders: Orders) -> None:
        """Learn of an epoch before its records come: start to pull at once, and let go of what left before."""
        self._forget_before(orders.epoch)
        with self._leaving_lock:
            if orders.epoch > self.epoch and (self._pulls is None or self._pulls.epoch != orders.epoch):
                self._pulls = Pulls(self._pool, self._caller, self.operator, orders.epoch, orders.arrivals)

    def serve(self, epoch: int, bins: Iterable[int]) -> Iterable[Packed]:
        """Bins that leave at an epoch, as they were before it."""
        for bin in bins:
            yield self._pack(self._leave(epoch, BinId(bin)))

    def _pack(self, parcel: Parcel) -> Packed:
        try:
            return pack(parcel)
        except Exception as error:
            raise FoldError(
                f"state of operator {self.operator} in bin {parcel.bin} on worker {self.host.worker} cannot travel: "
                f"{type(error).__name__}: {error}; keep only what can be pickled"
            ) from error

    def apply(self, orders: Orders, records: Iterable[tuple[int, Records]], frontier: Frontier) -> Result:
        """Apply an epoch, or give the outputs it gave when it was applied."""
        with self._applying:
            if orders.epoch == self.epoch and self._kept is not None:
                return self._kept
            if self._broken is not None:
                # Half an epoch is applied: to apply it again would double it.
                raise self._broken
            if not self._follows(orders.epoch):
                raise ProtocolError(
                    f"operator {self.operator} on worker {self.host.worker} is at epoch {self.epoch} "
                    f"and cannot apply epoch {orders.epoch}"
                )
            try:
                self._kept = self._apply(orders, records, frontier)
            except Exception as error:
                self._broken = error
                raise
            self.epoch = orders.epoch
            return self._kept

    def _follows(self, epoch: int) -> bool:
        """Is nothing missed in between? Who owns no bin is not called, and has nothing to miss."""
        return epoch == self.epoch + 1 or (epoch > self.epoch and not self.host.resident.any())

    def _apply(self, orders: Orders, records: Iterable[tuple[int, Records]], frontier: Frontier) -> Result:
        begin = time.perf_counter_ns()
        self.prepare(orders)
        for bin in orders.departures:
            self._leave(orders.epoch, BinId(bin))
        self.host.frontier = max(self.host.frontier, Frontier(Time(orders.frontier)))
        self.host.unhold()
        for bin, at in orders.holds:
            self.host.hold(BinId(bin), Time(at))
        for input, part in records:
            self.host.receive(part, input)
        outcomes = list(self._advance(max(frontier, self.host.frontier)))
        busy = time.perf_counter_ns() - begin
        applied, late = sum(o.applied for o in outcomes), sum(o.late for o in outcomes)
        arrived = self._pulls.bytes if self._pulls else 0
        worker, reached = WorkerId(self.host.worker), self.host.output_frontier.bound
        return [o.output for o in outcomes], Report(worker, reached, applied, late, arrived, busy)

    def _advance(self, frontier: Frontier) -> Iterable[Outcome]:
        """Apply to the bins that are here, then to those still on their way."""
        assert self._pulls is not None
        if not self._pulls.done:
            yield self.host.advance(frontier)
        for parcel in self._pulls.take().values():
            self.host.install(parcel)
        yield self.host.advance(frontier)

    def _forget_before(self, epoch: int) -> None:
        """What left at an earlier epoch is committed elsewhere."""
        with self._leaving_lock:
            if epoch > self._leaving_at:
                self._leaving_at, self._leaving = epoch, {}
                self.loans.end()

    def _leave(self, epoch: int, bin: BinId) -> Parcel:
        """Release a bin for an epoch, once."""
        self._forget_before(epoch)
        with self._leaving_lock:
            if bin not in self._leaving:
                if epoch != self.epoch + 1:
                    raise ProtocolError(
                        f"bin {bin} on worker {self.host.worker} is at epoch {self.epoch} and cannot leave at {epoch}"
                    )
                self._leaving[bin] = self.host.release(bin)
            return self._leaving[bin]
