"""Transfer of bins: from the old owner's memory to the new owner's, over Flight.

The old owner serves what it released until the epoch is committed; the new owner pulls while Spark still reads the
source and shuffles. An old owner that is lost is not waited for: its bins are recovered instead.
One message never carries more than a chunk; on one machine the memory itself is lent instead.
Neighbours: worker.py has both ends, memory.py lends.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from megaphone.bins import BinId
from megaphone.dataflow.state import Packed, Parcel, unpack
from megaphone.durability.ledger import Line
from megaphone.engine.spark.attention import Attended
from megaphone.engine.spark.memory import LEND_FROM, Loans, borrow, machine, room
from megaphone.engine.spark.messages import Arrival, Loan, ParcelHead, PullRequest, dump, load
from megaphone.engine.spark.rpc import Caller, guarded_stream, raise_own
from megaphone.errors import FoldError, MegaphoneError, ProtocolError

CHUNKS = pa.schema([("chunk", pa.binary())])


Shipment = tuple[Packed, Line]
"""A bin as bytes, and its line in the ledger."""

Delivery = tuple[Parcel, Line, int]
"""A bin that has arrived, its line, and the bytes it took."""


def serve(parcels: Iterable[Shipment], loans: Loans | None) -> flight.GeneratorStream:
    """Parcels as a stream: for each a head, then its memory in chunks, or on loan."""
    return flight.GeneratorStream(CHUNKS, guarded_stream(_batches(parcels, loans)))


def _batches(
    parcels: Iterable[Shipment], loans: Loans | None
) -> Iterator[tuple[pa.RecordBatch, pa.Buffer] | pa.RecordBatch]:
    for packed, line in parcels:
        loan = _lend(packed, loans)
        yield _chunk(b""), pa.py_buffer(dump(ParcelHead(packed.bin, packed.sizes, line, loan)))
        if loan is None:
            yield from map(_chunk, packed.chunks())


def _lend(packed: Packed, loans: Loans | None) -> Loan | None:
    if loans is None or sum(packed.sizes) < LEND_FROM:
        return None
    try:
        return loans.lend(packed.parts)
    except OSError:
        # No more files or memory to lend: the stream needs neither.
        return None


def _chunk(data: memoryview | bytes) -> pa.RecordBatch:
    buffer = pa.py_buffer(data)
    offsets = pa.py_buffer(np.array([0, buffer.size], np.int32))
    return pa.record_batch([pa.Array.from_buffers(pa.binary(), 1, [None, offsets, buffer])], schema=CHUNKS)


def pull(caller: Caller, arrival: Arrival, operator: str, epoch: int) -> Iterator[Delivery]:
    """Fetch bins from their old owner; nothing is lent to who does as if all were on machines of their own."""
    try:
        near = machine() if caller.unix else ""
        yield from _pull(caller, arrival, PullRequest(operator, epoch, arrival.bins, near))
    except OSError:
        # The same kernel, but not the same processes to be seen: two containers. What came is simply fetched anew.
        yield from _pull(caller, arrival, PullRequest(operator, epoch, arrival.bins, ""))


def _pull(caller: Caller, arrival: Arrival, request: PullRequest) -> Iterator[Delivery]:
    try:
        with caller.client(arrival.seat.address) as client:
            yield from _read(client.do_get(flight.Ticket(dump(request)), caller.options))
    except flight.FlightError as error:
        raise_own(error)


def _read(reader: flight.FlightStreamReader) -> Iterator[Delivery]:
    while True:
        try:
            head = load(reader.read_chunk().app_metadata.to_pybytes(), ParcelHead)
        except StopIteration:
            return
        parts = borrow(head.loan) if head.loan else [_fill(reader, size) for size in head.sizes]
        yield unpack(BinId(head.bin), parts), head.line, sum(head.sizes)


def _fill(reader: flight.FlightStreamReader, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """One buffer, put together from its chunks in memory the new state will own."""
    memory = room(size)
    filled = 0
    while filled < size:
        data = reader.read_chunk().data.column(0).buffers()[2]
        memory[filled : filled + data.size] = np.frombuffer(data, np.uint8)
        filled += data.size
    return memory


class Pulls:
    """The bins on their way to one operator of one worker, in one epoch."""

    def __init__(
        self,
        epoch: int,
        arrivals: Sequence[Arrival],
        pull: Callable[[Arrival], Iterator[Delivery]],
        alive: Callable[[Arrival], bool],
        recover: Callable[[Arrival], Iterable[Delivery]],
    ) -> None:
        """Begin to pull, one stream for each old owner; if one is lost, its bins are recovered from the checkpoint."""
        self.epoch = epoch
        self.sizes: list[tuple[int, int]] = []
        """Bins that were taken, and the bytes of each; those that had to be recovered are not among them."""
        self.nanoseconds = 0
        """From the beginning until the last of them was here."""
        self._alive = alive
        self._recover = recover
        begin = time.perf_counter_ns()
        self._streams = [(arrival, Attended(partial(self._everything, pull, arrival, begin))) for arrival in arrivals]

    @property
    def bytes(self) -> int:
        """Bytes that were taken."""
        return sum(size for _, size in self.sizes)

    @property
    def done(self) -> bool:
        """Has everything arrived?"""
        return all(stream.done for _, stream in self._streams)

    def take(self) -> Iterator[tuple[Parcel, Line]]:
        """All bins, once they are here; raises what went wrong on the way."""
        for arrival, stream in self._streams:
            for parcel, line, size in self._take(arrival, stream):
                if size:
                    self.sizes.append((int(parcel.bin), size))
                yield parcel, line

    def _take(self, arrival: Arrival, stream: Attended[list[Delivery]]) -> Iterable[Delivery]:
        try:
            return stream.result(partial(self._alive, arrival))
        except FoldError:
            # A state that cannot be pickled is the user's to mend, and no fault of its owner's.
            raise
        except (MegaphoneError, flight.FlightError, OSError):
            return self._recover(arrival)

    def _everything(
        self, pull: Callable[[Arrival], Iterator[Delivery]], arrival: Arrival, begin: int
    ) -> list[Delivery]:
        # By bin: what could not be borrowed is fetched once more.
        arrived = {delivery[0].bin: delivery for delivery in pull(arrival)}
        if missing := set(arrival.bins) - arrived.keys():
            raise ProtocolError(f"bins {sorted(missing)} did not come from worker {arrival.source}")
        self.nanoseconds = max(self.nanoseconds, time.perf_counter_ns() - begin)
        return list(arrived.values())
