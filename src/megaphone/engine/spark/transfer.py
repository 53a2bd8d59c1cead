"""Transfer of bins: from the old owner's memory to the new owner's, over Flight.

The old owner serves what it released until the epoch is committed; the new owner pulls while Spark still reads the
source and shuffles. One message never carries more than a chunk; on one machine the memory itself is lent instead.
Neighbours: worker.py has both ends, memory.py lends.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from megaphone.bins import BinId
from megaphone.dataflow.state import Packed, Parcel, unpack
from megaphone.engine.spark.memory import LEND_FROM, Loans, borrow, machine
from megaphone.engine.spark.messages import Arrival, Loan, ParcelHead, PullRequest, dump, load
from megaphone.engine.spark.rpc import Caller, guarded_stream, raise_own
from megaphone.errors import ProtocolError, WorkerLost

CHUNKS = pa.schema([("chunk", pa.binary())])


def serve(parcels: Iterable[Packed], loans: Loans | None) -> flight.GeneratorStream:
    """Parcels as a stream: for each a head, then its memory in chunks, or on loan."""
    return flight.GeneratorStream(CHUNKS, guarded_stream(_batches(parcels, loans)))


def _batches(
    parcels: Iterable[Packed], loans: Loans | None
) -> Iterator[tuple[pa.RecordBatch, pa.Buffer] | pa.RecordBatch]:
    for packed in parcels:
        loan = _lend(packed, loans)
        yield _chunk(b""), pa.py_buffer(dump(ParcelHead(packed.bin, packed.sizes, loan)))
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


def pull(caller: Caller, arrival: Arrival, operator: str, epoch: int) -> Iterator[tuple[Parcel, int]]:
    """Fetch bins from their old owner: each parcel with the bytes it took."""
    try:
        yield from _pull(caller, arrival, PullRequest(operator, epoch, arrival.bins, machine()))
    except OSError:
        # The same kernel, but not the same processes to be seen: two containers. What came is simply fetched anew.
        yield from _pull(caller, arrival, PullRequest(operator, epoch, arrival.bins, ""))


def _pull(caller: Caller, arrival: Arrival, request: PullRequest) -> Iterator[tuple[Parcel, int]]:
    try:
        reader = caller.client(arrival.address).do_get(flight.Ticket(dump(request)), caller.options)
        yield from _read(reader)
    except flight.FlightError as error:
        raise_own(error)


def _read(reader: flight.FlightStreamReader) -> Iterator[tuple[Parcel, int]]:
    while True:
        try:
            head = load(reader.read_chunk().app_metadata.to_pybytes(), ParcelHead)
        except StopIteration:
            return
        parts = borrow(head.loan) if head.loan else [_fill(reader, size) for size in head.sizes]
        yield unpack(BinId(head.bin), parts), sum(head.sizes)


def _fill(reader: flight.FlightStreamReader, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """One buffer, put together from its chunks in memory the new state will own."""
    memory = np.empty(size, np.uint8)
    filled = 0
    while filled < size:
        data = reader.read_chunk().data.column(0).buffers()[2]
        memory[filled : filled + data.size] = np.frombuffer(data, np.uint8)
        filled += data.size
    return memory


class Pulls:
    """The bins on their way to one operator of one worker, in one epoch."""

    def __init__(self, pool: ThreadPoolExecutor, caller: Caller, operator: str, epoch: int, arrivals: list[Arrival]):
        """Begin to pull, one stream for each old owner."""
        self.epoch = epoch
        self.bytes = 0
        self._lock = threading.Lock()
        self._arrived: dict[BinId, Parcel] = {}
        self._futures: list[Future[None]] = [
            pool.submit(self._run, caller, arrival, operator, epoch) for arrival in arrivals
        ]

    @property
    def done(self) -> bool:
        """Has everything arrived?"""
        return all(future.done() for future in self._futures)

    def take(self) -> Mapping[BinId, Parcel]:
        """All parcels, once they are here; raises what went wrong on the way."""
        for future in self._futures:
            future.result()
        arrived, self._arrived = self._arrived, {}
        return arrived

    def _run(self, caller: Caller, arrival: Arrival, operator: str, epoch: int) -> None:
        try:
            self._receive(pull(caller, arrival, operator, epoch))
        except WorkerLost:
            # Once more: the old owner has everything until the epoch is committed, and a connection may just be torn.
            self._receive(pull(caller, arrival, operator, epoch))
        if missing := set(arrival.bins) - self._arrived.keys():
            raise ProtocolError(f"bins {sorted(missing)} did not come from worker {arrival.source} at epoch {epoch}")

    def _receive(self, parcels: Iterable[tuple[Parcel, int]]) -> None:
        for parcel, size in parcels:
            with self._lock:
                self.bytes += 0 if parcel.bin in self._arrived else size
                self._arrived[parcel.bin] = parcel
