"""The ledger: a sink that checks every row and keeps none, so that the soak itself does not grow.

A row is a digit and the running count of that digit: what has come out of a digit by the end of an epoch are the
numbers from one to its count, each once. Knows nothing of bins and workers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from megaphone.harness.chaos.job import DIGITS, KEYS, SEED
from megaphone.harness.source import keys_of


@dataclass(slots=True)
class Count:
    """What has come out, up to an epoch."""

    epoch: int
    rows: int
    highest: list[int]
    """The largest number seen of each digit."""
    lost: int = 0
    doubled: int = 0


class Ledger:
    """Counts rows, an epoch at a time."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.count = Count(-1, 0, [0] * DIGITS)

    def take(self, batch: Any, epoch: int) -> None:
        """One epoch's output, as `foreachBatch` gives it."""
        self.add(batch.toArrow(), epoch)

    def add(self, rows: pa.Table, epoch: int) -> None:
        """One epoch's rows: the numbers of each digit must follow those that have come before."""
        count = self.count
        digits, totals = (column.to_numpy() for column in rows.columns)
        for digit in np.unique(digits).tolist():
            found = totals[digits == digit]
            before, last = count.highest[digit], int(found.max())
            new = np.unique(found[found > before])
            count.doubled += len(found) - len(new)
            count.lost += max(0, last - before) - len(new)
            count.highest[digit] = max(before, last)
        count.epoch, count.rows = epoch, count.rows + len(rows)


def missing(highest: Sequence[int], records: int) -> tuple[int, int]:
    """Rows that have not come out though so many records were read, and rows that have no record behind them.

    >>> missing([0, 1, 0, 0, 0, 0, 0], 1), missing([0, 2, 0, 0, 0, 0, 0], 1), missing([0] * 7, 1)
    ((0, 0), (0, 1), (1, 0))
    """
    counts = np.bincount(keys_of(np.arange(records), KEYS, SEED), minlength=KEYS)
    # A key whose count is n has given out the digits of 1 to n, one after another.
    expected = [int(((counts - digit) // DIGITS + (digit > 0)).sum()) for digit in range(DIGITS)]
    off = [due - seen for due, seen in zip(expected, highest, strict=True)]
    return sum(max(0, rows) for rows in off), sum(max(0, -rows) for rows in off)
