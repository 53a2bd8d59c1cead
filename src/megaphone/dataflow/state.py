"""How a bin becomes bytes and back.

A parcel is a bin on its way: its state and its pending records, nothing else. A NumPy array or an Arrow table inside
the state travels as its own memory, cut in chunks but not re-encoded; any other object as a pickle.
Neighbours: hosting.py makes and installs parcels, the engine carries them.  Paper: the state shipping protocol.
"""

import io
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa

from megaphone.bins import BinId
from megaphone.dataflow.records import Records

PROTOCOL = 5
"""The pickle protocol: the first that leaves memory beside the pickle."""

CHUNK = 4 << 20
"""Bytes in one message: large enough to run at memory speed, small enough that none grows with the state."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """A bin's state and pending records (one entry per input), as they were just before it left."""

    bin: BinId
    state: Any
    pending: tuple[Records | None, ...]


@dataclass(frozen=True, slots=True)
class Packed:
    """A parcel as bytes: first a pickle, then the memory it refers to."""

    bin: BinId
    parts: tuple[memoryview, ...]

    @property
    def sizes(self) -> list[int]:
        """Bytes in each part."""
        return [part.nbytes for part in self.parts]

    def chunks(self, size: int = CHUNK) -> Iterator[memoryview]:
        """The parts' memory, a few megabytes at a time, without a copy."""
        for part in self.parts:
            for start in range(0, part.nbytes, size):
                yield part[start : start + size]


def pack(parcel: Parcel) -> Packed:
    """Turn a parcel into bytes.

    >>> packed = pack(Parcel(BinId(3), {"counts": np.arange(4)}, (None,)))
    >>> packed.sizes[1:], [len(chunk) for chunk in packed.chunks(24)][-2:]
    ([32], [24, 8])
    >>> unpack(packed.bin, packed.parts).state["counts"].tolist()
    [0, 1, 2, 3]
    """
    head = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    pending = [None if records is None else _dump(records) for records in parcel.pending]
    Pickler(head, protocol=PROTOCOL, buffer_callback=buffers.append).dump((parcel.state, pending))
    return Packed(parcel.bin, (head.getbuffer(), *(buffer.raw() for buffer in buffers)))


def unpack(bin: BinId, parts: Sequence[Any]) -> Parcel:
    """Rebuild a parcel from its parts; arrays can be written to if the parts can."""
    state, pending = pickle.loads(parts[0], buffers=parts[1:])
    return Parcel(bin, state, tuple(None if raw is None else Records(*raw) for raw in pending))


class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Sends Arrow data in its stream form: unlike in its own pickle, a slice then carries only its own rows.

    A class of the user's own script, which no worker could import, travels by value.
    """

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, pa.Table):
            return _table, (_stream(value),)
        if isinstance(value, pa.RecordBatch):
            return _batch, (_stream(value),)
        if isinstance(value, pa.ChunkedArray):
            return _chunked_array, (_stream(pa.table([value], [""])),)
        if isinstance(value, pa.Array):
            return _array, (_stream(pa.record_batch([value], [""])),)
        return super().reducer_override(value)


def _stream(data: pa.Table | pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write(data)
    return sink.getvalue()


def _table(stream: pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(stream).read_all()


def _batch(stream: pa.Buffer) -> pa.RecordBatch:
    return pa.ipc.open_stream(stream).read_next_batch()


def _chunked_array(stream: pa.Buffer) -> pa.ChunkedArray:
    return _table(stream).column(0)


def _array(stream: pa.Buffer) -> pa.Array:
    return _batch(stream).column(0)


def _dump(records: Records) -> tuple[Any, ...]:
    return np.ascontiguousarray(records.bins), np.ascontiguousarray(records.times), records.data
