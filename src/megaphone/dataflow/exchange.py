"""The exchange: the one row schema that crosses the shuffle.

Every operator's records cross as (slot, worker, kind, payload) rows; the payload is an Arrow stream of the records
with their bins and times. Adds and loses nothing.  From: routing.py.  To: hosting.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from megaphone.bins import WorkerId
from megaphone.dataflow.records import Records, is_uniform
from megaphone.progress import Time

BIN, HASH, TIME = "_bin", "_hash", "_time"
"""Columns beside the user's own, hash and time before F, bin and time behind it; an input may not use these names."""

CLOCK = "clock"
"""What a payload calls the column that has its times."""

FRONTIER = 1 << 16
"""Kinds below are data of that input; FRONTIER + input is the largest time that one F saw on that input."""

SCHEMA = pa.schema(
    [("slot", pa.int32()), ("worker", pa.int32()), ("kind", pa.int32()), ("payload", pa.binary())],
)
DDL = "slot int, worker int, kind int, payload binary"

PAYLOAD_BYTES = 384 << 10
"""Bytes in one payload: few enough payloads to cost nothing, and none as large as half a region of the JVM's heap,
which its collector would put aside and look after by itself (decisions/0005)."""


def encode(parts: Sequence[Records], clock: str | None = None) -> pa.Buffer:
    """Records of one worker and input, all by epoch or all by column, as one payload.

    `clock` names the data column that has their times as they are, if there is one: they are not sent twice then.
    """
    sink = pa.BufferOutputStream()
    small = all(part.bins.max(initial=0) < 2**16 for part in parts)
    batches = [_with_bins_and_times(part, np.uint16 if small else np.uint32, clock) for part in parts]
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def _with_bins_and_times(records: Records, bin_type: Any, clock: str | None) -> pa.RecordBatch:
    told, columns, names = {}, list(records.data.columns), list(records.data.schema.names)
    for name, values, kind in ((BIN, records.bins, bin_type), (TIME, records.times, np.int64)):
        if name == TIME and clock is not None:
            told[CLOCK] = clock
        elif is_uniform(values):
            told[name.removeprefix("_")] = str(int(values[0]))
        else:
            columns.append(pa.array(values.astype(kind, copy=False)))
            names.append(name)
    return pa.record_batch(columns, names=names).replace_schema_metadata(told)


def decode(payload: Any, schema: pa.Schema) -> Iterator[Records]:
    """A payload as records again, its data columns being those of `schema`."""
    with pa.ipc.open_stream(payload) as stream:
        told = stream.schema.metadata or {}
        for batch in stream:
            data = pa.record_batch(batch.columns[: len(schema)], schema=schema)
            yield Records(_values(BIN, np.uint32, batch, told), _values(TIME, np.int64, batch, told), data)


def _values(name: str, kind: Any, batch: pa.RecordBatch, told: Mapping[bytes, bytes]) -> npt.NDArray[Any]:
    """A column of ours; what is the same in all rows was told once, and times may be in a column of the user's."""
    uniform = told.get(name.removeprefix("_").encode())
    if uniform is not None:
        return np.broadcast_to(kind(int(uniform)), len(batch))
    clock = told.get(CLOCK.encode()) if name == TIME else None
    column = batch.column(name if clock is None else clock.decode())
    values: npt.NDArray[Any] = column.cast(pa.from_numpy_dtype(kind)).to_numpy()
    return values


def data_row(
    worker: WorkerId, slots: int, input: int, parts: Sequence[Records], clock: str | None = None
) -> pa.RecordBatch:
    """A worker's records as an exchange row."""
    return _row(worker % slots, worker, input, encode(parts, clock))


def frontier_rows(slots: int, input: int, seen: Time) -> Iterator[pa.RecordBatch]:
    """The largest time an F has seen on an input, told to every slot; by it the slot also knows which one it is."""
    for slot in range(slots):
        yield _row(slot, -1, FRONTIER + input, pa.py_buffer(int(seen).to_bytes(8, "little", signed=True)))


def seen_of(payload: bytes) -> Time:
    """The time in a frontier row."""
    return Time(int.from_bytes(payload, "little", signed=True))


def _row(slot: int, worker: int, kind: int, payload: pa.Buffer) -> pa.RecordBatch:
    offsets = pa.py_buffer(np.array([0, payload.size], np.int32))
    binary = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, payload])
    heads = [pa.array([value], pa.int32()) for value in (slot, worker, kind)]
    return pa.record_batch([*heads, binary], schema=SCHEMA)
