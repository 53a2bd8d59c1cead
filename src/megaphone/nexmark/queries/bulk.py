"""What folds do with the records of many bins at once, so that no bin costs more than a few microseconds.

With `gather` and `scatter`, a fold's state is a NumPy array of rows for each bin. What belongs together (an auction
and its bids) is in one bin, so rows of many bins can be looked at as one table.
Neighbours: closing.py keeps its state so; other queries use parts.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from megaphone.bins import BinArray, BinId
from megaphone.dataflow.folds import States
from megaphone.dataflow.records import Records, argsort, runs

Array = npt.NDArray[Any]
Int64s = npt.NDArray[np.int64]
Places = npt.NDArray[np.intp]

LITTLE = 1 << 16
"""Places that a table may have in any case."""

ROOM = 4
"""A table that is indexed by key may have so many places for each key that is looked up; else it is a search."""


def bins_of(*inputs: Records) -> BinArray:
    """The bins that any records are of, in order."""
    some = np.zeros(max(int(records.bins.max(initial=0)) for records in inputs) + 1, np.bool_)
    for records in inputs:
        some[records.bins] = True
    return np.flatnonzero(some).astype(np.uint32)


def cuts(owners: BinArray, bins: BinArray) -> list[slice]:
    """The rows of each bin, by the bins of rows that are sorted; a bin may have none."""
    starts, stops = owners.searchsorted(bins), owners.searchsorted(bins, "right")
    return list(map(slice, starts.tolist(), stops.tolist()))


def gather(states: States, bins: BinArray, dtype: np.dtype[Any]) -> tuple[Array, BinArray]:
    """The rows of some bins in one array, and each row's bin."""
    parts = [states.get(BinId(bin), b"") for bin in bins.tolist()]
    # As bytes: to join arrays of rows, NumPy would compare their columns for every part.
    rows = np.frombuffer(bytearray().join(parts), dtype)
    return rows, bins.repeat([len(part) for part in parts])


def scatter(states: States, bins: BinArray, rows: Array, owners: BinArray) -> None:
    """Give some bins the rows they own, and no others; a bin without rows has no state."""
    order = argsort(owners)
    owners, size, data = owners[order], rows.dtype.itemsize, rows[order].tobytes()
    for bin in bins.tolist():
        states.pop(BinId(bin), None)
    for start, stop in runs(owners):
        # A copy: a view would keep the rows of all bins in memory for as long as one of them has it.
        states[BinId(int(owners[start]))] = np.frombuffer(data[start * size : stop * size], rows.dtype)


def table(**columns: Array) -> Array:
    """Columns as an array of rows.

    >>> table(id=np.array([7, 8]), price=np.array([1, 2])).tolist()
    [(7, 1), (8, 2)]
    """
    length = len(next(iter(columns.values())))
    rows = np.empty(length, [(name, values.dtype) for name, values in columns.items()])
    for name, values in columns.items():
        rows[name] = values
    return rows


def locate(keys: Int64s, wanted: Int64s) -> Places:
    """Where each wanted key is among some distinct ones; -1 where it is not.

    >>> locate(np.array([30, 10]), np.array([10, 20, 30, 40])).tolist()
    [1, -1, 0, -1]
    """
    if not len(keys):
        return np.full(len(wanted), -1)
    first = keys.min()
    width = int(keys.max() - first) + 1
    if width > ROOM * (len(keys) + len(wanted)):
        return _search(keys, wanted)
    # One more place, for all that are outside.
    places: Places = np.full(width + 1, -1)
    places[keys - first] = np.arange(len(keys))
    at = wanted - first
    return places[np.where((at >= 0) & (at < width), at, width)]


def _search(keys: Int64s, wanted: Int64s) -> Places:
    order = keys.argsort()
    at = order[keys.searchsorted(wanted, sorter=order).clip(max=len(keys) - 1)]
    return np.where(keys[at] == wanted, at, -1)


def tally(keys: Int64s) -> tuple[Int64s, Int64s]:
    """The distinct keys in order, and how often each is there.

    >>> [part.tolist() for part in tally(np.array([30, 10, 30]))]
    [[10, 30], [1, 2]]
    """
    first = keys.min()
    if int(keys.max() - first) > ROOM * len(keys):
        keys = np.sort(keys)
        starts = changes(keys)
        return keys[starts], np.diff(starts, append=len(keys))
    counts = np.bincount(keys - first)
    found = np.flatnonzero(counts)
    return found + first, counts[found]


def highest(places: Int64s, values: Int64s, room: int) -> tuple[Places, Int64s]:
    """The places that have values, all above zero and below `room`, and the highest value of each.

    >>> [part.tolist() for part in highest(np.array([4, 2, 4]), np.array([10, 20, 30]), 5)]
    [[2, 4], [20, 30]]
    """
    if room > ROOM * len(places) + LITTLE:
        some, places = np.unique(places, return_inverse=True)
        return some, highest(places, values, len(some))[1]
    table: Int64s = np.zeros(room, np.int64)
    np.maximum.at(table, places, values)
    found = np.flatnonzero(table)
    return found, table[found]


def changes(*columns: Array) -> Places:
    """Where a run of equal rows begins.

    >>> changes(np.array([5, 5, 6]), np.array([1, 2, 2])).tolist()
    [0, 1, 2]
    """
    if not len(columns[0]):
        return np.empty(0, np.intp)
    differ = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        differ |= column[1:] != column[:-1]
    return np.concatenate(([0], np.flatnonzero(differ) + 1))


def micros(records: Records, name: str) -> Int64s:
    """A timestamp column as the times are: in microseconds."""
    values: Int64s = records.data.column(name).cast(pa.int64()).to_numpy()
    return values


def alarms(schema: pa.Schema, bins: BinArray, times: Int64s) -> Records:
    """Rows without values, to be post-dated: they wake a bin and say nothing."""
    nothing = [pa.nulls(len(bins), field.type) for field in schema]
    return Records(bins, times, pa.record_batch(nothing, schema=schema))


def arrived(records: Records) -> Records:
    """Those that are not alarms."""
    told = records.data.column("date_time")
    return records.where(told.is_valid().to_numpy(zero_copy_only=False)) if told.null_count else records


def texts(records: Records, name: str) -> Array:
    """A column of texts as NumPy's own bytes, which move and travel like numbers."""
    return np.array(records.data.column(name).cast(pa.binary()).to_pylist(), "S")
