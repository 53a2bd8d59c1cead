"""What folds do with the records of many bins at once, so that no bin costs anything by itself.

What belongs together (an auction and its bids) is in one bin, so rows of many bins can be looked at as one table.
Neighbours: the queries; shelves.py.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from megaphone.dataflow.records import Records

Array = npt.NDArray[Any]
Int64s = npt.NDArray[np.int64]
Places = npt.NDArray[np.intp]

LITTLE = 1 << 16
"""Places that a table may have in any case."""

ROOM = 4
"""A table that is indexed by key may have so many places for each key that is looked up; else it is a search."""


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


def texts(records: Records, name: str) -> Array:
    """A column of texts as NumPy's own bytes, which move and travel like numbers."""
    return np.array(records.data.column(name).cast(pa.binary()).to_pylist(), "S")
