"""Shelves: rows of all of a worker's bins by key, in NumPy arrays, found without a scan and without a loop over bins.

A row's place is its bin and its key in one number, and rows are sorted by it: a bin's rows lie together, and can be cut
out when it leaves. New rows are few and sorted among themselves; the old ones stand in groups of neighbouring bins,
which take in their new ones when there are too many, those first that have the most. So no epoch has to move all rows,
whatever their number, and a bin that comes only those of its neighbours.
Neighbours: q3.py, q6.py and q8.py keep their state so.
"""

import math
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from megaphone.bins import BinArray, BinId
from megaphone.dataflow.joint import Joint
from megaphone.dataflow.records import argsort
from megaphone.errors import PlanError
from megaphone.nexmark.queries.bulk import ROOM, Array, Int64s, Places

KEY_BITS = 42
"""Of a place; the bits above are the bin. There is room for one more than 2^20: where the last bin ends."""
KEYS = (1 << KEY_BITS) - 1
GROUPS = 32
FEW = 4096
"""So many rows may be new in any case."""
LATELY = 16
"""Times that rows were put here, of which the average is taken."""
TIDIED = 2
"""Groups that get rid of rows of departed bins at a time."""

Columns = tuple[Array, ...]
"""Rows, column by column; the first has their places, or their keys."""

Keep = Callable[[Columns], npt.NDArray[np.bool_]]
"""Which of some rows, sorted by place, must be kept."""


def places(bins: BinArray, keys: Int64s) -> Int64s:
    """Where rows of some bins and keys belong.

    >>> places(np.array([0, 2], np.uint32), np.array([5, 7])).tolist()
    [5, 8796093022215]
    """
    if (keys >> KEY_BITS).any():
        raise PlanError(f"keys from {keys.min()} to {keys.max()}; choose keys from 0 to {KEYS}")
    return bins.astype(np.int64) << KEY_BITS | keys


class Shelves:
    """Rows of many bins; a key may have many, and they stay in the order they were put there.

    >>> shelves = Shelves(bins=2)
    >>> shelves.put((np.array([7, 5, 7]), np.array([70, 50, 71])))
    >>> which, (keys, values) = shelves.find(np.array([5, 6, 7]))
    >>> which.tolist(), keys.tolist(), values.tolist()
    ([0, 2, 2], [5, 7, 7], [50, 70, 71])
    """

    def __init__(self, bins: int = 1) -> None:
        """Begin empty."""
        self._per_group = -(-bins // GROUPS)
        groups = -(-bins // self._per_group)
        self._edges: Int64s = np.arange(groups + 1) * self._per_group << KEY_BITS
        self._old: list[Columns] = [()] * groups
        self._old_rows = 0
        self._highest: Int64s = np.full(groups, -1)
        """No key in a group is above this."""
        self._new: Columns = ()
        self._came: list[Columns] = []
        self._pace = 0.0
        """How many rows are put here each time, on average."""
        self._gone: npt.NDArray[np.bool_] = np.zeros(bins, np.bool_)
        """Bins that have left, and whose rows are still here."""

    def put(self, rows: Columns, keep: Keep | None = None) -> None:
        """Put rows behind those that are there; now and then, those not to be kept are dropped."""
        if len(rows[0]):
            self._welcome(rows[0])
            self._came.append(rows)
        self._sort_in()
        self._pace += (len(rows[0]) - self._pace) / LATELY
        self._take_turns(keep)

    def find(self, wanted: Int64s) -> tuple[Places, Columns]:
        """All rows at some places: of each row, which of the places it is at, and the row; if there are any."""
        self._welcome(wanted)
        self._sort_in()
        order = _order(wanted)
        some = wanted if order is None else wanted[order]
        parts = [(_find(rows, some[own]), own) for rows, own in self._parts(some)]
        found = [(own[which], rows) for (which, rows), own in parts if len(which)]
        if not found:
            return np.empty(0, np.intp), ()
        which = np.concatenate([part for part, _ in found])
        which = which if order is None else order[which]
        first, *rest = concatenated(*(rows for _, rows in found))
        columns = (first & KEYS, *rest)
        by_which = _order(which)
        if by_which is None:
            return which, columns
        return which[by_which], tuple([column[by_which] for column in columns])

    def has(self, wanted: Int64s) -> npt.NDArray[np.bool_]:
        """Is there a row at a place?"""
        self._welcome(wanted)
        self._sort_in()
        known: npt.NDArray[np.bool_] = np.zeros(len(wanted), np.bool_)
        order = _order(wanted)
        some = wanted if order is None else wanted[order]
        for (there, *_), own in self._parts(some):
            known[own] |= there.take(there.searchsorted(some[own]), mode="clip") == some[own]
        if order is not None:
            known[order] = known.copy()
        return known

    def get(self, bin: BinId) -> Columns:
        """The rows of a bin with their keys, in memory of their own; nothing if there are none."""
        self._sort_in()
        if self._gone[bin]:
            return ()
        rows = _merged(_cut(self._old[bin // self._per_group], bin), _cut(self._new, bin))
        return (rows[0] & KEYS, *(column.copy() for column in rows[1:])) if rows else ()

    def give(self, bin: BinId, rows: Columns) -> None:
        """Take in the rows of a bin that has none here."""
        own = int(bin) << KEY_BITS | rows[0]
        self._welcome(own)
        self._came.append((own, *rows[1:]))

    def drop(self, bin: BinId) -> None:
        """A bin has left: its rows count no more, and go when its group is tidied."""
        self._sort_in()
        self._gone[bin] = True

    def _welcome(self, wanted: Int64s) -> None:
        """Bins that have left are here again: get rid of what they had."""
        if self._gone.any():
            bins = wanted >> KEY_BITS
            self._take_in(np.unique(bins[self._gone[bins]] // self._per_group).tolist(), None)

    def _sort_in(self) -> None:
        """Sort what came among the new rows."""
        if not self._came:
            return
        rows, self._came = concatenated(*self._came), []
        self._new = _merged(self._new, in_order(rows))

    def _take_turns(self, keep: Keep | None) -> None:
        untidy = np.unique(np.flatnonzero(self._gone) // self._per_group)[:TIDIED].tolist() if self._gone.any() else []
        # All new rows are woven each time, and the more old ones the fewer may be new: this is the least of both.
        most = max(FEW, math.isqrt(int(self._old_rows * self._pace)))
        full = self._fullest(len(self._new[0]) - most) if self._new else []
        if full or untidy:
            self._take_in({*full, *untidy}, keep)

    def _fullest(self, many: int) -> list[int]:
        """The fewest groups that have so many new rows."""
        if many <= 0:
            return []
        new = np.diff(self._new[0].searchsorted(self._edges))
        order = (-new).argsort(kind="stable")
        found: list[int] = order[: int((new[order].cumsum() < many).sum()) + 1].tolist()
        return found

    def _take_in(self, groups: Iterable[int], keep: Keep | None) -> None:
        """Let groups take in their new rows."""
        self._sort_in()
        ends = self._new[0].searchsorted(self._edges).tolist() if self._new else [0] * (len(self._old) + 1)
        stay = np.ones(ends[-1], np.bool_)
        for group in groups:
            own = slice(ends[group], ends[group + 1])
            stay[own] = False
            if own.start < own.stop:
                self._highest[group] = max(self._highest[group], (self._new[0][own] & KEYS).max())
            rows = _merged(self._old[group], tuple([column[own] for column in self._new]))
            self._old_rows += self._tidied(group, rows, keep)
        if not stay.all():
            self._new = tuple([column[stay] for column in self._new])

    def _tidied(self, group: int, rows: Columns, keep: Keep | None) -> int:
        """Let a group have rows, but those of departed bins and those not to be kept; by how much has it grown?"""
        before, bins = self._old[group], slice(group * self._per_group, (group + 1) * self._per_group)
        if rows and self._gone[bins].any():
            here = ~self._gone[rows[0] >> KEY_BITS]
            rows = tuple([column[here] for column in rows])
        self._gone[bins] = False
        if rows and keep is not None:
            kept = keep(rows)
            rows = tuple([column[kept] for column in rows])
        self._old[group] = rows
        return (len(rows[0]) if rows else 0) - (len(before[0]) if before else 0)

    def _parts(self, wanted: Int64s) -> Iterable[tuple[Columns, Places]]:
        """Where to look, and for which of the wanted places, which are sorted."""
        ends = wanted.searchsorted(self._edges)
        # Ids grow: what is asked for is mostly younger than all that a group has taken in.
        known = np.flatnonzero((wanted & KEYS) <= self._highest.repeat(np.diff(ends)))
        cuts = known.searchsorted(ends).tolist()
        asked = [known[start:stop] for start, stop in pairwise(cuts)]
        for rows, own in zip((*self._old, self._new), (*asked, np.arange(len(wanted))), strict=True):
            if rows and len(rows[0]) and len(own):
                yield rows, own


class Relations(Joint):
    """Shelves as the joint states of an operator, one for each of its relations."""

    number = 1

    def __init__(self, bins: int) -> None:
        """All empty."""
        super().__init__(bins)
        self.shelves = tuple(Shelves(bins) for _ in range(self.number))

    def get(self, bin: BinId) -> tuple[Columns, ...] | None:
        """A bin's rows in each relation."""
        rows = tuple(shelves.get(bin) for shelves in self.shelves)
        return rows if any(rows) else None

    def _drop(self, bin: BinId) -> None:
        for shelves in self.shelves:
            shelves.drop(bin)

    def _put(self, bin: BinId, state: tuple[Columns, ...]) -> None:
        for shelves, rows in zip(self.shelves, state, strict=True):
            if rows:
                shelves.give(bin, rows)


def _order(values: npt.NDArray[Any]) -> Places | None:
    """How to sort values and leave equal ones in their order; None if they are sorted."""
    if bool((values[1:] >= values[:-1]).all()):
        return None
    # Keys mostly come in order, which the first sort is quick at; the second counts bins.
    by_key = (values & KEYS).argsort(kind="stable")
    return by_key[argsort(values[by_key] >> KEY_BITS)]


def in_order(rows: Columns) -> Columns:
    """Rows sorted by place; of those with equal places the first stays first."""
    order = _order(rows[0])
    return rows if order is None else tuple([column[order] for column in rows])


def distinct(places: Int64s) -> Int64s:
    """Each place once, in order; a key must be in one bin only.

    >>> distinct(np.array([7, 5, 7])).tolist()
    [5, 7]
    """
    keys = places & KEYS
    first, last = int(keys.min(initial=KEYS)), int(keys.max(initial=0))
    if last - first > ROOM * len(keys):
        return np.unique(places)
    by_key: Int64s = np.full(max(last - first + 1, 0), -1)
    by_key[keys - first] = places
    return in_order((by_key[by_key >= 0],))[0]


def _cut(rows: Columns, bin: BinId) -> Columns:
    """A bin's rows."""
    if not rows:
        return ()
    start, stop = rows[0].searchsorted((bin << KEY_BITS, bin + 1 << KEY_BITS)).tolist()
    return tuple([column[start:stop] for column in rows]) if start < stop else ()


def _merged(old: Columns, new: Columns) -> Columns:
    """Two parts, each sorted, as one; of rows with equal places the old ones come first."""
    if not old or not new or not len(new[0]):
        return old or new
    at = old[0].searchsorted(new[0], "right") + np.arange(len(new[0]))
    others = np.ones(len(old[0]) + len(at), np.bool_)
    others[at] = False
    return tuple([_woven(*columns, at, others) for columns in zip(old, new, strict=True)])


def _woven(old: Array, new: Array, at: Places, others: npt.NDArray[np.bool_]) -> Array:
    column = np.empty(len(others), np.result_type(old, new))
    column[at], column[others] = new, old
    return column


def _find(rows: Columns, wanted: Int64s) -> tuple[Places, Columns]:
    """Which of the wanted places, sorted, each row is at, and the row."""
    starts = rows[0].searchsorted(wanted)
    there = np.flatnonzero(rows[0].take(starts, mode="clip") == wanted)
    starts = starts[there]
    many = rows[0].searchsorted(wanted[there], "right") - starts
    found = np.arange(many.sum()) + (starts - (many.cumsum() - many)).repeat(many)
    return there.repeat(many), tuple([column[found] for column in rows])


def concatenated(*parts: Columns) -> Columns:
    """Rows behind rows."""
    return parts[0] if len(parts) == 1 else tuple([np.concatenate(columns) for columns in zip(*parts, strict=True)])
