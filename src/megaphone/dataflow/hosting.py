"""S, the host of bins.

It applies a record once the frontier has passed its time, if its bin is here and no reconfiguration holds it; it
releases bins and installs them. The one rule is kept here.
From: exchange.py.  To: folds.py, and parcels to the engine.  Paper: the migration mechanism.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from megaphone.bins import BinId, WorkerId
from megaphone.dataflow.folds import Bounds, Fold
from megaphone.dataflow.joint import Joint
from megaphone.dataflow.notificator import Notificator
from megaphone.dataflow.records import Records
from megaphone.dataflow.state import Parcel
from megaphone.dataflow.stopwatch import Stopwatch
from megaphone.errors import ProtocolError
from megaphone.progress import BEGIN, END, OPEN, Frontier, Time


@dataclass(frozen=True, slots=True)
class Outcome:
    """What advancing the frontier brought: output rows, how many records were applied, how many came too late."""

    output: pa.RecordBatch
    applied: int
    late: int


class Host:
    """One worker's share of one operator: its bins, and the records that wait in them."""

    def __init__(self, worker: WorkerId, fold: Fold, bins: int, owned: Iterable[int] = ()) -> None:
        """Host blank bins `owned`; every other bin is elsewhere until it is installed."""
        self.worker = worker
        self.fold = fold
        self.frontier = OPEN
        self.states = fold.new_states(bins)
        self.resident: npt.NDArray[np.bool_] = np.zeros(bins, np.bool_)
        self.resident[np.fromiter(owned, np.int64)] = True
        self._limits: npt.NDArray[np.int64] = np.full(bins, END)
        self._next_due: npt.NDArray[np.int64] = np.full(bins, END)
        self._pending: dict[BinId, tuple[Notificator, ...]] = {}
        self._inbox: tuple[list[Records], ...] = tuple([] for _ in fold.inputs)
        self.touched: npt.NDArray[np.bool_] = np.zeros(bins, np.bool_)
        """Bins that records came for or were applied to, until somebody wipes the marks away."""
        self.applied: npt.NDArray[np.int64] = np.zeros(bins, np.int64)
        """Records applied to each bin, until somebody wipes the counts away."""
        self.watch = Stopwatch(bins)
        """Time spent on each bin, until somebody wipes it away."""

    @property
    def output_frontier(self) -> Frontier:
        """Everything earlier has been applied here: the input frontier, held back by bins that are to leave."""
        held = self._limits[self.resident]
        return Frontier(Time(min(self.frontier.bound, int(held.min(initial=END)))))

    def receive(self, records: Records, input: int = 0) -> None:
        """Take in records of one input, in any order; nothing is applied yet."""
        self._inbox[input].append(records)

    def hold(self, bin: BinId, time: Time) -> None:
        """Apply nothing of `bin` at or after `time`: from then on it belongs to another worker."""
        self._limits[bin] = time

    def unhold(self) -> None:
        """Lift every hold; the ones still in force are set anew for each epoch."""
        self._limits.fill(END)

    def advance(self, frontier: Frontier) -> Outcome:
        """Apply everything that the frontier has passed, in time order within each bin."""
        self.watch.start()
        came = [self._taken(input) for input in range(len(self._inbox))]
        fresh = [list(self._in_time(parts)) for parts in came]
        late = sum(len(records) for parts in came for records in parts)
        late -= sum(len(records) for parts in fresh for records in parts)
        bounds = np.minimum(self._limits, frontier.bound)
        drained, woken = self._drain(bounds), self._wake(bounds)
        due = tuple(self._due(input, drained[input], parts, bounds) for input, parts in enumerate(fresh))
        counts = np.sum([self._counted(records) for records in due], axis=0)
        self.touched |= counts > 0
        applied = sum(map(len, due))
        self.frontier = frontier
        if not applied and not woken:
            return Outcome(self.fold.no_output, 0, late)
        output, later = self.fold.apply(due, self.states, bounds, self.worker, self.watch)
        for input, records in enumerate(later):
            self._postpone(input, records)
        self.applied += counts
        self.watch.stop(counts)
        return Outcome(output, applied, late)

    def release(self, bin: BinId) -> Parcel:
        """Give a bin away: its state and everything pending in it."""
        if not self.resident[bin]:
            raise ProtocolError(f"bin {bin} is not on worker {self.worker} at {self.frontier}: nothing to release")
        self.resident[bin] = False
        self._limits[bin] = self._next_due[bin] = END
        pending = self._pending.pop(bin, ())
        return Parcel(bin, self.states.pop(bin, None), tuple(queue.pending() for queue in pending))

    def install(self, parcel: Parcel) -> None:
        """Take a bin in; records that came before it are applied with the next advance."""
        if self.resident[parcel.bin]:
            raise ProtocolError(f"bin {parcel.bin} is on worker {self.worker} already at {self.frontier}")
        self.resident[parcel.bin] = True
        if parcel.state is not None:
            self.states[parcel.bin] = parcel.state
        early = self._pending.pop(parcel.bin, ())
        # What the bin brings came first: in this order it is redone after a crash, too.
        self.queue(parcel.bin, parcel.pending)
        self.queue(parcel.bin, [queue.pending() for queue in early])

    def queue(self, bin: BinId, waiting: Sequence[Records | None]) -> None:
        """Let records of each input wait in a bin, behind those that wait there already."""
        for input, records in enumerate(waiting):
            if records is not None:
                self._push(input, bin, records)

    def copy(self, bin: BinId) -> Parcel:
        """A bin as it is, to be kept; it stays, and shares its memory with the copy."""
        pending = self._pending.get(bin, ())
        return Parcel(bin, self.states.get(bin), tuple(queue.pending() for queue in pending))

    def _counted(self, due: Records) -> npt.NDArray[np.int64]:
        """How many of some records each bin has."""
        if len(due) < len(self.applied) or not self.fold.ordered:
            return np.bincount(due.bins, minlength=len(self.applied))
        # They are sorted by bin: finding where each bin begins is much cheaper than looking at every record.
        return np.diff(np.searchsorted(due.bins, np.arange(len(self.applied) + 1, dtype=np.uint32)))

    def _taken(self, input: int) -> list[Records]:
        """What has come at one input; the inbox is empty then."""
        came = list(self._inbox[input])
        self._inbox[input].clear()
        return came

    def _in_time(self, parts: Iterable[Records]) -> Iterator[Records]:
        """Without what came too late."""
        for records in parts:
            yield records.where(records.times >= self.frontier.bound)

    def _due(self, input: int, drained: list[Records], fresh: Iterable[Records], bounds: Bounds) -> Records:
        """What of one input may be applied now: that had to wait, and is fresh; sorted if the fold asks for it."""
        # Nothing is applied to a bin that is not here, however early.
        limits = np.where(self.resident, bounds, BEGIN)
        parts, early, schema = list(drained), [], self.fold.inputs[input]
        for records in fresh:
            ready = records.times < limits.take(records.bins)
            if ready.all():
                parts.append(records)
            else:
                parts += records.pieces(ready)
                early.append(records.where(~ready))
        waiting = Records.concat(early, schema)
        self.touched[waiting.bins] = True
        self._postpone(input, waiting)
        due = Records.concat(parts, schema)
        return due.sorted() if self.fold.ordered else due

    def _drain(self, bounds: Bounds) -> tuple[list[Records], ...]:
        """Of each input what has waited in some bin, and may be applied now."""
        drained: tuple[list[Records], ...] = tuple([] for _ in self._inbox)
        if not self._pending:
            return drained
        bins = np.flatnonzero(self.resident & (self._next_due < bounds))
        self.touched[bins] = True
        for bin, bound in zip(map(BinId, bins.tolist()), bounds[bins].tolist(), strict=True):
            for queue, parts in zip(self._pending[bin], drained, strict=True):
                records = queue.drain(bound)
                if records is not None:
                    parts.append(records)
            self._note(bin)
        return drained

    def _wake(self, bounds: Bounds) -> bool:
        """Has any bin's state something to do by itself?"""
        if not isinstance(self.states, Joint):
            return False
        woken = self.resident & (self.states.due < bounds)
        self.touched |= woken
        return bool(woken.any())

    def _postpone(self, input: int, records: Records) -> None:
        for bin, group in records.sorted().groups():
            self._push(input, bin, group)

    def _push(self, input: int, bin: BinId, records: Records) -> None:
        queues = self._pending.get(bin)
        if queues is None:
            queues = self._pending[bin] = tuple(Notificator() for _ in self._inbox)
        queues[input].push(records)
        self._note(bin)

    def _note(self, bin: BinId) -> None:
        self._next_due[bin] = due = min([queue.next_time for queue in self._pending[bin]])
        if due == END:
            del self._pending[bin]
