"""F, on the map side: every record of a partition addressed to the owner of its bin at its time.

From: a streaming or batch DataFrame.  To: the shuffle, then host.py.  Paper: the migration mechanism.
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from megaphone.bins import Bins, WorkerId
from megaphone.configuration import Assignment, Configuration
from megaphone.dataflow import exchange
from megaphone.dataflow.records import Records
from megaphone.dataflow.routing import address, by_worker, worker_of_hashes
from megaphone.engine.spark.process import leave_quietly, settle_in
from megaphone.engine.spark.task import Binding, Epoch, Partition, current_epoch
from megaphone.faults import reach
from megaphone.progress import BEGIN, Time

GATHER_BYTES = 1 << 20
"""F works on about this much at once: Spark's batches of 10,000 rows are too small to be worth a round of NumPy."""


def router(binding: Binding, input: int) -> Partition:
    """F as Spark calls it."""

    def megaphone_F(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle_in()
        leave_quietly()
        yield from route(binding, input, batches)

    return megaphone_F


def route(binding: Binding, input: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """F: address every record of a partition, and tell every slot the largest time seen."""
    epoch = current_epoch(binding)
    configuration = epoch.configuration if epoch else _single_epoch_configuration(binding)
    read = _Reader(binding, input, epoch.answer.epoch if epoch else 0)
    send = by_worker if binding.spec.workers else partial(address, configuration)
    outbox = _Outbox(binding, input)
    seen = BEGIN
    for batch in _gather(batches):
        reach("in-F", epoch is not None and _is_moving(binding, epoch))
        records = read(batch)
        if not records.at_one_time:
            seen = Time(max(seen, int(records.times.max())))
        row_bytes = max(1.0, records.data.nbytes / len(records))
        for worker, routed in send(records):
            yield from outbox.put(worker, routed, row_bytes)
    yield from outbox.rest()
    yield from exchange.frontier_rows(binding.slots, input, seen)


def _is_moving(binding: Binding, epoch: Epoch) -> bool:
    return bool(epoch.answer.operators[binding.spec.name].moves)


def _single_epoch_configuration(binding: Binding) -> Configuration:
    return Configuration(Assignment.round_robin(binding.bins, binding.slots))


def _gather(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= GATHER_BYTES:
            yield pa.concat_batches(held)
            held, size = [], 0
    if held:
        yield pa.concat_batches(held)


class _Outbox:
    """What is to be sent to each worker, payload by payload."""

    def __init__(self, binding: Binding, input: int) -> None:
        self._slots, self._input, self._clock = binding.slots, input, binding.spec.inputs[input].time
        self._waiting: dict[WorkerId, list[Records]] = defaultdict(list)
        self._room: dict[WorkerId, float] = defaultdict(lambda: exchange.PAYLOAD_BYTES)

    def put(self, worker: WorkerId, records: Records, row_bytes: float) -> Iterator[pa.RecordBatch]:
        """Add records of a worker; the payloads that are full."""
        start = 0
        while start < len(records):
            stop = start + max(1, int(self._room[worker] / row_bytes))
            piece = records.slice(start, min(stop, len(records)))
            self._waiting[worker].append(piece)
            self._room[worker] -= len(piece) * row_bytes
            if stop <= len(records):
                yield self._payload(worker)
            start = stop

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What is not full."""
        for worker in list(self._waiting):
            yield self._payload(worker)

    def _payload(self, worker: WorkerId) -> pa.RecordBatch:
        del self._room[worker]
        return exchange.data_row(worker, self._slots, self._input, self._waiting.pop(worker), self._clock)


class _Reader:
    """Turns Spark's rows (the user's columns by position, and the hash) into records."""

    def __init__(self, binding: Binding, input: int, epoch: int) -> None:
        workers = binding.spec.workers
        self._bin_of = partial(worker_of_hashes, workers) if workers else Bins.of_count(binding.bins).of_hashes
        self._input = binding.spec.inputs[input]
        self._epoch = Time(epoch)

    def __call__(self, batch: pa.RecordBatch) -> Records:
        bins = self._bin_of(batch.column(exchange.HASH).to_numpy())
        data = pa.record_batch(batch.columns[: len(self._input.schema)], schema=self._input.schema)
        if self._input.time is None:
            return Records.at(self._epoch, bins, data)
        return Records(bins, self._input.times(data.column(self._input.time)), data)
