"""A tenancy: one operator in one worker process, from epoch to epoch.

Applying an epoch is idempotent: at n-1 it applies n, logs it, and keeps the outputs until n is committed; at n
already, it gives the kept outputs; behind, or in doubt of its own state, it first recovers to n-1 from the checkpoint.
Bins that leave at n stay readable here until n is committed.
Neighbours: worker.py receives the calls, hosting.py does the work, transfer.py brings the bins, durability/ keeps them.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa

from megaphone.bins import BinId, WorkerId
from megaphone.control.epochs import Recovery, Report
from megaphone.control.load import NOTHING, Tally
from megaphone.control.travel import Stuck, cannot_travel
from megaphone.dataflow.exchange import decode
from megaphone.dataflow.hosting import Host, Outcome
from megaphone.dataflow.joint import Joint
from megaphone.dataflow.operators import OperatorSpec
from megaphone.dataflow.state import Packed, Parcel, pack
from megaphone.dataflow.travel import Paused, obstacle, reason_of
from megaphone.durability.ledger import Ledger, Line
from megaphone.durability.log import Head, Payloads, Writing, read_entry
from megaphone.durability.recovery import Recovered, Request, recover, recover_bins
from megaphone.durability.snapshots import Snapshots
from megaphone.durability.store import LogFile, Store
from megaphone.engine.spark.memory import Loans
from megaphone.engine.spark.messages import ApplyRequest, Arrival, Orders, TravelAnswer
from megaphone.engine.spark.scales import Scales
from megaphone.engine.spark.transfer import Delivery, Pulls, Shipment
from megaphone.engine.spark.travel import Travel
from megaphone.errors import CheckpointError, FoldError, ProtocolError
from megaphone.faults import reach
from megaphone.progress import Frontier, Time

Result = tuple[list[pa.RecordBatch], Report]

GIVE_WAY_S = 0.005
"""After so long on it, it does nothing for as long."""


@dataclass(frozen=True, slots=True)
class Lot:
    """What a tenancy begins with, or begins anew with: which bins it had after which epoch."""

    spec: OperatorSpec
    bins: int
    owned: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    epoch: int


@dataclass(frozen=True, slots=True)
class Means:
    """What a tenancy works with."""

    store: Store
    attempt: int
    incarnation: int
    share: float
    pool: Executor
    ask: Callable[[], Lot]
    """What the coordinator says this worker should have."""
    pull: Callable[[Arrival, int], Iterable[Delivery]]
    alive: Callable[[Arrival], bool]
    tell: Callable[[int, Stuck], None]
    """Lets the coordinator write down that a bin cannot leave in an epoch."""


@dataclass(slots=True)
class Kept:
    """An epoch that was applied: its outputs, and its entry in the log if that is there already."""

    result: Result
    request: ApplyRequest
    payloads: Payloads
    writing: Future[Writing] | None
    logged: bool = False


class Tenancy:
    """One operator's bins in this process, and the epoch they have reached."""

    def __init__(self, worker: WorkerId, operator: str, means: Means) -> None:
        """Begin where the coordinator says, with what the checkpoint has."""
        self.worker = worker
        self.operator = operator
        self.loans = Loans()
        self._means = means
        self._process = psutil.Process()
        self._recoveries: list[Recovery] = []
        self._applying = threading.RLock()
        self._epoch_waits = threading.Event()
        self._leaving_lock = threading.RLock()
        self._reload()

    def _reload(self) -> None:
        """Recover: forget everything, and take it from the checkpoint."""
        with self._leaving_lock:
            lot = self._means.ask()
            request = Request(self.operator, self.worker, lot.spec, lot.bins, lot.owned, lot.epoch, followed=True)
            recovered = self._recovered(recover, request)
            self.spec = lot.spec
            self.epoch = lot.epoch
            self.host: Host = recovered.host
            self._ledger: Ledger = recovered.ledger
            self._held = np.zeros(lot.bins, np.bool_)
            means = self._means
            self._scales = Scales(lot.bins)
            self._travel = Travel(lot.bins)
            self._joint_travels = False
            self._snapshots = Snapshots(means.store, self.operator, self._ledger, means.share, means.pool)
            self._leaving_at = self.epoch
            self._leaving: dict[BinId, tuple[Parcel, Line]] = {}
            # What was pulled may be half changed by what was half applied.
            self._pulls: Pulls | None = None
            self._kept: Kept | None = None
            self._in_doubt = False

    def prepare(self, orders: Orders) -> None:
        """Learn of an epoch before its records come: start to pull at once, and let go of what left before."""
        self._forget_before(orders.epoch)
        with self._leaving_lock:
            if orders.epoch > self.epoch and (self._pulls is None or self._pulls.epoch != orders.epoch):
                means, epoch = self._means, orders.epoch
                self._pulls = Pulls(
                    epoch,
                    orders.arrivals,
                    lambda arrival: iter(means.pull(arrival, epoch)),
                    means.alive,
                    lambda arrival: self._recover(arrival, epoch),
                )

    def serve(self, epoch: int, bins: Iterable[int]) -> Iterable[Shipment]:
        """Bins that leave at an epoch, as they were before it."""
        for bin in bins:
            reach("pull-old", moving=True)
            parcel, line = self._leave(epoch, BinId(bin))
            yield self._pack(epoch, parcel), line

    def _pack(self, epoch: int, parcel: Parcel) -> Packed:
        try:
            return pack(parcel)
        except Exception as error:
            stuck = Stuck(parcel.bin, reason_of(error))
            # Before the query ends for it: whoever starts it again must not try to move the bin once more.
            self._means.tell(epoch, stuck)
            raise FoldError(cannot_travel(self.operator, self.worker, stuck)) from error

    def apply(self, request: ApplyRequest, payloads: Payloads) -> Result:
        """Apply an epoch and log it, or give the outputs it gave when it was applied."""
        self._epoch_waits.set()
        with self._applying:
            self._epoch_waits.clear()
            kept = self._kept
            if kept is None or self.epoch != request.orders.epoch or self._in_doubt:
                kept = self._kept = self._apply_anew(request, payloads)
            self._log(kept)
            return kept.result

    def _apply_anew(self, request: ApplyRequest, payloads: Payloads) -> Kept:
        epoch = request.orders.epoch
        if self._in_doubt or (self.epoch + 1 < epoch and not self._follows(epoch)):
            self._reload()
        if not self._follows(epoch):
            raise ProtocolError(
                f"operator {self.operator} on worker {self.worker} is at epoch {self.epoch} "
                f"and cannot apply epoch {epoch}"
            )
        if self._kept is None:
            payloads = self._logged_before(request.orders.epoch) or payloads
        writing = self._means.pool.submit(self._begin_log, request, payloads)
        self._in_doubt = True
        try:
            result = self._apply(request, payloads)
        except BaseException:
            writing.add_done_callback(_discard)
            raise
        self._in_doubt = False
        self.epoch = epoch
        return Kept(result, request, payloads, writing)

    def _logged_before(self, epoch: int) -> Payloads | None:
        """What the process before this one was fed of an epoch, if it got as far as to log it.

        Its outputs may have been given out: the records of one time are applied in its order, not in that of a task
        that was run again.
        """
        means = self._means
        mine = LogFile(epoch, means.attempt, self.operator, int(self.worker), means.incarnation)
        earlier = [file for file, _ in means.store.log() if replace(file, incarnation=mine.incarnation) == mine]
        earlier = [file for file in earlier if file.incarnation < mine.incarnation]
        if not earlier:
            return None
        try:
            return read_entry(means.store, max(earlier, key=lambda file: file.incarnation)).payloads
        except CheckpointError:
            # Torn: then nothing of it was given out either.
            return None

    def _follows(self, epoch: int) -> bool:
        """Is nothing missed in between? Who applied an epoch and then owned no bin was not called since."""
        # Who has applied none was not there: records may have come to the process before it, ahead of their bins.
        idle = self._kept is not None and not self.host.resident.any()
        return epoch == self.epoch + 1 or (epoch > self.epoch and idle)

    def _apply(self, request: ApplyRequest, payloads: Payloads) -> Result:
        begin = time.perf_counter_ns()
        orders = request.orders
        self.prepare(orders)
        for bin in orders.departures:
            self._leave(orders.epoch, BinId(bin))
        with self._leaving_lock:
            self._snapshots.settle(self.host)
        self._snapshots.committed(orders.epoch - 1)
        self._take_orders(orders)
        for input, payload in payloads:
            for records in decode(payload, self.spec.inputs[input].schema):
                self.host.receive(records, input)
        outcomes = list(self._advance(orders, max(Frontier(Time(request.frontier)), self.host.frontier)))
        self._ledger.touch(self.host.touched, orders.epoch)
        reach("applied", _is_moving(orders))
        assert self._pulls is not None
        self._scales.count(self.host.applied)
        self._scales.note(self._pulls.sizes)
        report = Report(
            self.worker,
            self.host.output_frontier.bound,
            sum(outcome.applied for outcome in outcomes),
            sum(outcome.late for outcome in outcomes),
            self._pulls.bytes,
            time.perf_counter_ns() - begin,
            self._ledger.needed_from(orders.epoch),
            tuple(self._recoveries),
            self._pulls.nanoseconds,
            Tally.of_all(self.host.applied),
            self._scales.read(),
            Tally.of_all(self.host.watch.spent),
            self._process.memory_info().rss,
            self._travel.news(),
        )
        self._recoveries.clear()
        return [outcome.output for outcome in outcomes], report

    def _take_orders(self, orders: Orders) -> None:
        self.host.frontier = Frontier(Time(orders.frontier))
        self.host.touched[:] = False
        self.host.applied[:] = 0
        self.host.watch.spent[:] = 0
        self.host.unhold()
        self._held[:] = False
        for bin, at in orders.holds:
            self.host.hold(BinId(bin), Time(at))
            self._held[bin] = True

    def _advance(self, orders: Orders, frontier: Frontier) -> Iterable[Outcome]:
        """Apply to the bins that are here, then to those still on their way."""
        assert self._pulls is not None
        if not self._pulls.done:
            yield self.host.advance(frontier)
        for parcel, line in self._pulls.take():
            self.host.install(parcel)
            self._travel.could([parcel.bin], orders.epoch - 1)
            self._ledger.put(parcel.bin, line)
            reach("pull-new", moving=True)
        reach("installed", _is_moving(orders))
        yield self.host.advance(frontier)

    def _recover(self, arrival: Arrival, epoch: int) -> Iterable[Delivery]:
        """Bins whose owner is gone, from the checkpoint."""
        request = Request(
            self.operator,
            WorkerId(arrival.source),
            self.spec,
            len(self._held),
            np.array(arrival.bins, np.int64),
            epoch - 1,
            followed=True,
        )
        recovered = self._recovered(recover_bins, request)
        for bin in arrival.bins:
            yield recovered.host.release(BinId(bin)), recovered.ledger.take(bin), 0

    def _recovered(self, how: Callable[[Store, Request], Recovered], request: Request) -> Recovered:
        """Recover, and remember how it went."""
        began = time.time()
        recovered = how(self._means.store, request)
        if request.epoch >= 0 and len(request.wanted):
            self._recoveries.append(
                Recovery(self.operator, self.worker, len(request.wanted), recovered.epochs, began, time.time())
            )
        return recovered

    def _begin_log(self, request: ApplyRequest, payloads: Payloads) -> Writing:
        means, orders = self._means, request.orders
        file = LogFile(orders.epoch, means.attempt, self.operator, int(self.worker), means.incarnation)
        head = Head(request.frontier, request.seen, [input for input, _ in payloads])
        return Writing(means.store, file, head, payloads)

    def _log(self, kept: Kept) -> None:
        """Let the epoch's entry appear in the log; once more if that failed before."""
        if kept.logged:
            return
        try:
            writing = kept.writing.result() if kept.writing else self._begin_log(kept.request, kept.payloads)
            kept.writing = None
            # What is only looked at is not worth its place in the log.
            report = replace(kept.result[1], by_bin=NOTHING, sizes=NOTHING, spent=NOTHING, memory=0, stuck=None)
            size = writing.finish(report)
        except OSError as error:
            kept.writing = None
            raise CheckpointError(
                f"worker {self.worker} cannot log epoch {self.epoch} of operator {self.operator}: {error}"
            ) from error
        kept.logged, kept.payloads = True, ()
        self._snapshots.logged(self.epoch, size)
        reach("logged", _is_moving(kept.request.orders))

    def rest(self) -> None:
        """The epoch's outputs are given out, and the next one has not come: time for snapshots."""
        # Not if it must wait: the next epoch has come, and may itself be waiting for the thread we are in.
        if not self._applying.acquire(blocking=False):
            return
        try:
            if not self._in_doubt and self._kept is not None and self._kept.logged:
                moving = _is_moving(self._kept.request.orders)
                self._snapshots.rest(self.host, self.epoch, self._held, self._leaving_lock, moving)
                self._scales.note(self._snapshots.copied)
                self._scales.weigh(self.host, self._leaving_lock)
                self._note_travel()
        finally:
            self._applying.release()

    def _note_travel(self) -> None:
        with self._leaving_lock:
            packed = [*(bin for bin, _ in self._snapshots.copied), *self._scales.weighed]
            self._travel.could([bin for bin in packed if self.host.resident[bin]], self.epoch)
            for bin, reason in self._snapshots.refused + self._scales.refused:
                if self.host.resident[bin]:
                    self._travel.could_not(bin, reason)

    def find_out(self, bins: Sequence[int], within_s: float) -> TravelAnswer:
        """Which of some bins cannot travel; found out between epochs, in half of the time there is."""
        end = time.monotonic() + within_s
        answer = TravelAnswer([], [])
        owed_s = 0.0
        for bin in self._changed(np.array(bins, np.int64), end, answer):
            if not self._idle(end):
                self._leave_open([bin], answer)
                continue
            begin = time.monotonic()
            try:
                self._find_out(BinId(bin), answer)
            finally:
                self._applying.release()
            owed_s += time.monotonic() - begin
            if owed_s > GIVE_WAY_S:
                time.sleep(owed_s)
                owed_s = 0.0
        return answer

    def _changed(self, bins: npt.NDArray[np.int64], end: float, answer: TravelAnswer) -> list[int]:
        """The bins that are here and have changed since they could travel."""
        if not self._idle(end):
            self._leave_open(bins.tolist(), answer)
            return []
        try:
            here = self.host.resident[bins] & (not self._in_doubt)
            answer.unknown.extend(bins[~here].tolist())
            changed: list[int] = self._travel.unknown(bins[here], self._ledger.touched).tolist()
            return changed
        finally:
            self._applying.release()

    def _idle(self, end: float) -> bool:
        """Wait until no epoch is applied, and let none begin; False if that takes too long."""
        while self._epoch_waits.is_set() and time.monotonic() < end:
            # It might not get the lock from who takes it again at once.
            time.sleep(0.001)
        return self._applying.acquire(timeout=max(0.0, end - time.monotonic()))

    def _leave_open(self, bins: Iterable[int], answer: TravelAnswer) -> None:
        """There was no time to find it out of these bins: what was known last counts, if it was not long ago."""
        for bin in bins:
            if (reason := self._travel.obstacle(bin)) is not None:
                answer.stuck.append(Stuck(bin, reason))
            elif not self._travel.could_lately(bin, self.epoch):
                answer.unknown.append(bin)

    def _find_out(self, bin: BinId, answer: TravelAnswer) -> None:
        with self._leaving_lock:
            here = bool(self.host.resident[bin]) and not self._in_doubt
            state = self.host.copy(bin).state if here and not self._joint_travels else None
        try:
            reason = obstacle(state, self._epoch_waits.is_set)
        except Paused:
            self._leave_open([bin], answer)
            return
        with self._leaving_lock:
            if not here or not self.host.resident[bin]:
                answer.unknown.append(bin)
            elif reason is not None:
                self._travel.could_not(bin, reason)
                answer.stuck.append(Stuck(bin, reason))
            else:
                self._travel.could([bin], self.epoch)
                # The parts of a joint state are cut from the same columns: one speaks for all.
                self._joint_travels |= state is not None and isinstance(self.host.states, Joint)

    def _forget_before(self, epoch: int) -> None:
        """What left at an earlier epoch is committed elsewhere."""
        with self._leaving_lock:
            if epoch > self._leaving_at:
                self._leaving_at, self._leaving = epoch, {}
                self.loans.end()

    def _leave(self, epoch: int, bin: BinId) -> tuple[Parcel, Line]:
        """Release a bin for an epoch, once."""
        self._forget_before(epoch)
        with self._leaving_lock:
            if bin not in self._leaving:
                if epoch != self.epoch + 1:
                    raise ProtocolError(
                        f"bin {bin} on worker {self.worker} is at epoch {self.epoch} and cannot leave at {epoch}"
                    )
                self._leaving[bin] = self.host.release(bin), self._ledger.take(bin)
                self._travel.forget(bin)
            return self._leaving[bin]


def _is_moving(orders: Orders) -> bool:
    return bool(orders.arrivals or orders.departures)


def _discard(writing: Future[Writing]) -> None:
    if writing.exception() is None:
        writing.result().discard()
