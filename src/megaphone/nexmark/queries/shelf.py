"""Shelves: rows of a bin by key, in NumPy arrays, so that they are found without a scan and travel as memory.

Most are sorted and stay where they are; the last few are not, and are looked through for many bins at once. So neither
many rows nor many bins make an epoch slow. A key has its rows in one bin only.
Neighbours: q3.py, q5.py, q6.py and q8.py keep their state so.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from megaphone.nexmark.queries.bulk import Array, Int64s, Places

FEW = 32
SHARE = 8
"""New rows are sorted in when there are more than a few, and more than one for so many old ones."""

Columns = tuple[Array, ...]
"""Rows, column by column; the first has the keys."""

Keep = Callable[[Columns], npt.NDArray[np.bool_]]
"""Which of some rows, sorted by key, must be kept."""

Cuts = Sequence[slice]
"""For each shelf, which of the keys in hand are of its bin."""


class Shelf:
    """Rows of one bin by key; a key may have many, and they stay in the order they were put there."""

    __slots__ = ("new", "old")

    def __init__(self) -> None:
        """Begin empty."""
        self.old: Columns = ()
        """Sorted."""
        self.new: Columns = ()

    def __len__(self) -> int:
        return sum(len(part[0]) for part in (self.old, self.new) if part)

    def add(self, rows: Columns, keep: Keep | None = None) -> None:
        """Put rows behind those that are there; now and then, those not to be kept are dropped."""
        # A copy: a view would keep the rows of all bins in memory.
        self.new = join(self.new, rows) if self.new else tuple([column.copy() for column in rows])
        if len(self.new[0]) > max(FEW, len(self.old[0]) // SHARE if self.old else 0):
            self._sort_in(keep)

    def find(self, keys: Int64s) -> tuple[Places, Columns]:
        """All rows of some keys, as `find` does."""
        return find([self], keys, [slice(0, len(keys))])

    def has(self, keys: Int64s) -> npt.NDArray[np.bool_]:
        """Is there a row of a key?"""
        return has([self], keys, [slice(0, len(keys))])

    def _sort_in(self, keep: Keep | None) -> None:
        rows = join(self.old, self.new) if self.old else self.new
        order = rows[0].argsort(kind="stable")
        self.old, self.new = tuple([column[order] for column in rows]), ()
        if keep is not None:
            kept = keep(self.old)
            self.old = tuple([column[kept] for column in self.old])


def put(shelves: Sequence[Shelf], rows: Columns, cuts: Cuts, keep: Keep | None = None) -> None:
    """Add to many shelves; `keep` says which rows must stay.

    >>> shelves = [Shelf(), Shelf()]
    >>> put(shelves, (np.array([5, 7, 7]), np.array([50, 70, 71])), [slice(0, 1), slice(1, 3)])
    >>> [len(shelf) for shelf in shelves]
    [1, 2]
    """
    for shelf, cut in zip(shelves, cuts, strict=True):
        if cut.start < cut.stop:
            shelf.add(tuple([column[cut] for column in rows]), keep)


def find(shelves: Sequence[Shelf], keys: Int64s, cuts: Cuts) -> tuple[Places, Columns]:
    """All rows of some keys: of each row, which of the keys it belongs to, and the row; if there are any.

    >>> shelf = Shelf()
    >>> shelf.add((np.array([7, 5, 7]), np.array([70, 50, 71])))
    >>> which, (_, values) = find([shelf], np.array([5, 6, 7]), [slice(0, 3)])
    >>> which.tolist(), values.tolist()
    ([0, 2, 2], [50, 70, 71])
    """
    found = [part for part in (_find_old(shelves, keys, cuts), _find_new(shelves, keys)) if len(part[0])]
    if len(found) < 2:
        return found[0] if found else (np.empty(0, np.intp), ())
    which = np.concatenate([part for part, _ in found])
    order = which.argsort(kind="stable")
    return which[order], tuple([column[order] for column in join(*(rows for _, rows in found))])


def has(shelves: Sequence[Shelf], keys: Int64s, cuts: Cuts) -> npt.NDArray[np.bool_]:
    """Is there a row of a key?"""
    known: npt.NDArray[np.bool_] = np.zeros(len(keys), np.bool_)
    for shelf, cut in zip(shelves, cuts, strict=True):
        if cut.start < cut.stop and shelf.old:
            old, mine = shelf.old[0], keys[cut]
            known[cut] = old.take(old.searchsorted(mine), mode="clip") == mine
    some = [shelf.new[0] for shelf in shelves if shelf.new]
    if some:
        new = np.sort(np.concatenate(some))
        known |= new.take(new.searchsorted(keys), mode="clip") == keys
    return known


def _find_old(shelves: Sequence[Shelf], keys: Int64s, cuts: Cuts) -> tuple[Places, Columns]:
    starts, stops = np.zeros((2, len(keys)), np.intp)
    for shelf, cut in zip(shelves, cuts, strict=True):
        if cut.start < cut.stop and shelf.old:
            old, mine = shelf.old[0], keys[cut]
            starts[cut], stops[cut] = old.searchsorted(mine), old.searchsorted(mine, "right")
    which, places = _ranges(starts, stops)
    ends = which.searchsorted([cut.stop for cut in cuts]).tolist()
    found = [
        tuple([column[places[start:end]] for column in shelf.old])
        for shelf, start, end in zip(shelves, [0, *ends], ends, strict=False)
        if start < end
    ]
    return which, join(*found) if found else ()


def _find_new(shelves: Sequence[Shelf], keys: Int64s) -> tuple[Places, Columns]:
    some = [shelf.new for shelf in shelves if shelf.new]
    if not some:
        return np.empty(0, np.intp), ()
    rows = join(*some)
    order = rows[0].argsort(kind="stable")
    new = rows[0][order]
    which, places = _ranges(new.searchsorted(keys), new.searchsorted(keys, "right"))
    return which, tuple([column[order[places]] for column in rows])


def _ranges(starts: Places, stops: Places) -> tuple[Places, Places]:
    """Every place from a start to its stop, and which of the ranges it is in."""
    many = stops - starts
    which: Places = np.arange(len(many)).repeat(many)
    before = many.cumsum() - many
    return which, np.arange(len(which)) + (starts - before)[which]


def join(*parts: Columns) -> Columns:
    """Rows behind rows."""
    return tuple([np.concatenate(columns) for columns in zip(*parts, strict=True)])
