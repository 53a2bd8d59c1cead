"""What folds do with the records of many bins at once, so that no bin costs anything by itself.

What belongs together (an auction and its bids) is in one bin, so rows of many bins can be looked at as one table.
Neighbours: the queries; shelves.py.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from megaphone.bins import BinArray
from megaphone.dataflow.records import Records, argsort

Array = npt.NDArray[Any]
Int64s = npt.NDArray[np.int64]
Places = npt.NDArray[np.intp]

LITTLE = 1 << 16
"""Places that a table may have in any case."""

ROOM = 4
"""A table that is indexed by key may have so many places for each key that is looked up; else it is a search."""

WIDE = 16
"""The same if keys are counted: that is much cheaper than to sort them."""


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


def tally(keys: Int64s) -> tuple[Int64s, Int64s]:
    """The distinct keys in order, and how often each is there.

    >>> [part.tolist() for part in tally(np.array([30, 10, 30]))]
    [[10, 30], [1, 2]]
    """
    if not len(keys):
        return keys, keys
    first = keys.min()
    if int(keys.max() - first) > WIDE * len(keys):
        keys = np.sort(keys)
        starts = changes(keys)
        return keys[starts], np.diff(starts, append=len(keys))
    counts = np.bincount(keys - first)
    found = np.flatnonzero(counts != 0)
    return found + first, counts[found]


def among(values: Int64s) -> tuple[Int64s, Places]:
    """Values in order, all that are there and perhaps those between them, and which of them each is.

    >>> [part.tolist() for part in among(np.array([7, 5, 7]))], among(np.array([1, 10**9]))[0].tolist()
    ([[5, 6, 7], [2, 0, 2]], [1, 1000000000])
    """
    first, last = int(values.min()), int(values.max())
    if last - first >= ROOM * len(values) + LITTLE:
        return np.unique(values, return_inverse=True)
    return np.arange(first, last + 1), values - first


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


def lowest(values: Int64s, starts: Places, stops: Places) -> Int64s:
    """The least of the values from each start on and before its stop, which is after it.

    >>> lowest(np.array([3, 1, 4, 1, 5]), np.array([0, 2, 4]), np.array([5, 3, 5])).tolist()
    [1, 4, 5]
    """
    # Of runs of 1, 2, 4, 8... values: any other is two of them that overlap.
    runs = [values]
    for level in range(len(values).bit_length() - 1):
        runs.append(np.minimum(runs[-1][: -(1 << level)], runs[-1][1 << level :]))
    begins = np.cumsum([0, *map(len, runs)])
    least, levels = np.concatenate(runs), np.log2(stops - starts).astype(np.int64)
    found: Int64s = np.minimum(least[begins[levels] + starts], least[begins[levels] + stops - (1 << levels)])
    return found


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


@dataclass(frozen=True, eq=False)
class ByBin:
    """Places, sorted by bin.

    >>> ByBin.of(np.array([5, 6, 7]), np.array([2, 1, 2], np.uint32)).bin(2).tolist()
    [5, 7]
    """

    at: Places
    owners: BinArray

    @classmethod
    def of(cls, at: Places, owners: BinArray) -> "ByBin":
        """Sort them."""
        order = argsort(owners)
        return cls(at[order], owners[order])

    def bin(self, bin: int) -> Places:
        """Those of a bin."""
        # Of their own type: else all of them are converted first.
        start, stop = self.owners.searchsorted(np.array((bin, bin + 1), self.owners.dtype))
        return self.at[start:stop]


class Dense:
    """A number for each key, none of them below zero: an array from the least key on. For keys that are close together.

    >>> numbers = Dense()
    >>> numbers.add(7, np.array([1, 0, 2])); numbers.add(5, np.array([4]))
    >>> numbers.of(np.array([4, 5, 7, 9, 99])).tolist()
    [0, 4, 1, 2, 0]
    """

    def __init__(self) -> None:
        """All are zero."""
        self.first = 0
        self.numbers: Int64s = np.zeros(0, np.int64)

    def add(self, first: int, more: Int64s) -> None:
        """Add to those of the keys from one on."""
        self.make_room(first, first + len(more))
        self.numbers[first - self.first :][: len(more)] += more

    def put(self, keys: Int64s, numbers: Int64s | int) -> None:
        """Let some keys have these."""
        if len(keys):
            self.make_room(int(keys.min()), int(keys.max()) + 1)
            self.numbers[keys - self.first] = numbers

    def of(self, keys: Int64s) -> Int64s:
        """Those of some keys."""
        at = keys - self.first
        there = (at >= 0) & (at < len(self.numbers))
        return np.where(there, self.numbers.take(at, mode="clip"), 0) if len(self.numbers) else np.zeros_like(keys)

    def make_room(self, first: int, stop: int) -> None:
        """For keys from `first` on: those at the front that are zero again go."""
        if self.first <= first and stop <= self.first + len(self.numbers):
            return
        used = np.flatnonzero(self.numbers) + self.first
        begin, end = min([first, *used[:1]]), max([stop, *(used[-1:] + 1)])
        room = np.zeros(2 * int(end - begin), np.int64)
        room[used - begin] = self.numbers[used - self.first]
        self.first, self.numbers = int(begin), room
