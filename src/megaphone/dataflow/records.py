"""Records: Arrow rows, each with its bin and its time.

What travels from F to S, waits in a notificator, and reaches a vectorised fold.
Neighbours: routing.py, exchange.py, hosting.py, folds.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from megaphone.bins import BinArray, BinId
from megaphone.dataflow.rows import no_rows
from megaphone.progress import Time

Times = npt.NDArray[np.int64]
Order = npt.NDArray[np.intp]

FEW = 32
"""So many slices are cheaper to put together than as many rows are to pick one by one."""


@dataclass(frozen=True, slots=True)
class Records:
    """Rows of one input: `data` row i belongs to bin `bins[i]` and happened at `times[i]`.

    >>> records = Records.at(Time(7), np.array([1, 0]), pa.record_batch({"word": ["a", "b"]}))
    >>> [(bin, rows.data["word"].to_pylist()) for bin, rows in records.sorted().groups()]
    [(0, ['b']), (1, ['a'])]
    """

    bins: BinArray
    times: Times
    data: pa.RecordBatch

    @classmethod
    def at(cls, time: Time, bins: npt.NDArray[Any], data: pa.RecordBatch) -> "Records":
        """Rows that all happened at one time; the times take no memory."""
        return cls(bins.astype(np.uint32, copy=False), np.broadcast_to(np.int64(time), len(bins)), data)

    @classmethod
    def empty(cls, schema: pa.Schema) -> "Records":
        """No rows of a schema."""
        return cls(np.empty(0, np.uint32), np.empty(0, np.int64), no_rows(schema))

    @classmethod
    def concat(cls, parts: Sequence["Records"], schema: pa.Schema) -> "Records":
        """All rows of some parts, in their order."""
        parts = [part for part in parts if len(part)]
        if len(parts) < 2:
            return parts[0] if parts else cls.empty(schema)
        return cls(
            _concat([part.bins for part in parts]),
            _concat([part.times for part in parts]),
            pa.concat_batches([part.data for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.bins)

    @property
    def at_one_time(self) -> bool:
        """Do all rows bear the same time, by construction?"""
        return is_uniform(self.times)

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column as NumPy, without a copy where Arrow can."""
        values: npt.NDArray[Any] = self.data.column(name).to_numpy(zero_copy_only=False)
        return values

    def take(self, order: npt.NDArray[Any]) -> "Records":
        """The rows at some positions."""
        return Records(_take(self.bins, order), _take(self.times, order), self.data.take(pa.array(order)))

    def where(self, mask: npt.NDArray[np.bool_]) -> "Records":
        """The rows a mask selects; the very same object when it selects all."""
        if mask.all():
            return self
        return self.take(np.flatnonzero(mask))

    def pieces(self, mask: npt.NDArray[np.bool_]) -> "list[Records]":
        """The rows a mask selects, as they lie there, without a copy; with one, if they lie all over."""
        edges = np.flatnonzero(mask[1:] != mask[:-1]) + 1
        if len(edges) > FEW:
            return [self.where(mask)]
        return [
            self.slice(start, stop)
            for start, stop in pairwise((0, *edges.tolist(), len(mask)))
            if mask[start:stop].any()
        ]

    def slice(self, start: int, stop: int) -> "Records":
        """Rows start to stop, without a copy."""
        return Records(self.bins[start:stop], self.times[start:stop], self.data.slice(start, stop - start))

    def sorted(self) -> "Records":
        """By bin, then by time, else in order of arrival."""
        if self.at_one_time:
            return self.take(argsort(self.bins))
        # Records come in runs that are sorted by time already, which is what this sort is quick at.
        by_time = np.argsort(self.times, kind="stable")
        return self.take(by_time[argsort(self.bins[by_time])])

    def spans(self) -> Iterator[tuple[BinId, int, int]]:
        """Each bin with the rows it has, from start to stop, of records that are sorted."""
        for start, stop in runs(self.bins):
            yield BinId(int(self.bins[start])), start, stop

    def groups(self) -> Iterator[tuple[BinId, "Records"]]:
        """The rows of each bin, of records that are sorted."""
        for bin, start, stop in self.spans():
            yield bin, self.slice(start, stop)


def is_uniform(values: npt.NDArray[Any]) -> bool:
    """Are all values the same, by construction?"""
    return values.strides == (0,)


def _concat(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    if all(is_uniform(part) and part[0] == parts[0][0] for part in parts):
        return np.broadcast_to(parts[0][0], sum(map(len, parts)))
    return np.concatenate(parts)


def _take(values: npt.NDArray[Any], order: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.broadcast_to(values[0], len(order)) if is_uniform(values) and len(values) else values.take(order)


def argsort(values: npt.NDArray[Any]) -> Order:
    """A stable order of small unsigned integers, by radix where NumPy has it (16 bits)."""
    if not len(values) or values.max() < 2**16:
        return np.argsort(values.astype(np.uint16), kind="stable")
    low = np.argsort((values & 0xFFFF).astype(np.uint16), kind="stable")
    high = (values[low] >> 16).astype(np.uint16)
    return low[np.argsort(high, kind="stable")]


def runs(values: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Where each run of equal values starts and stops."""
    if not len(values):
        return
    edges = np.flatnonzero(values[1:] != values[:-1]) + 1
    starts = [0, *edges.tolist()]
    yield from zip(starts, [*starts[1:], len(values)], strict=True)
