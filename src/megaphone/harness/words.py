"""Word count by hour of the week: a state that is large, plain and vectorised.

Each bin keeps a table with a row for each of its words and a column for each hour of the week.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from megaphone.dataflow.folds import States, vectorised
from megaphone.dataflow.records import Records

HOURS = 7 * 24
OUTPUT = "word string, n long"


class Vocabulary:
    """The words of a bin, and how often each was said in each hour of the week.

    >>> words = Vocabulary()
    >>> words.count(["to", "be", "to"], np.array([3, 3, 4])).tolist()
    [2, 1, 2]
    """

    __slots__ = ("counts", "rows")

    def __init__(self) -> None:
        """Know no word."""
        self.rows: dict[str, int] = {}
        self.counts: npt.NDArray[np.int64] = np.zeros((0, HOURS), np.int64)

    def count(self, words: Sequence[str], hours: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Count some words, and tell how often each has been said."""
        numbers = [self.rows.setdefault(word, len(self.rows)) for word in words]
        if len(self.rows) > len(self.counts):
            self._grow()
        np.add.at(self.counts, (np.array(numbers), hours), 1)
        totals: npt.NDArray[np.int64] = self.counts[numbers].sum(axis=1)
        return totals

    def _grow(self) -> None:
        room = max(len(self.rows), len(self.counts) * 5 // 4)
        grown = np.zeros((room, HOURS), np.int64)
        grown[: len(self.counts)] = self.counts
        self.counts = grown


@vectorised
def count_by_hour(records: Records, states: States, _: Any) -> dict[str, Any]:
    """The fold: count the words of each bin."""
    words, hours = records.data["word"].to_pylist(), records.column("hour")
    counts = [states[bin].count(words[start:stop], hours[start:stop]) for bin, start, stop in records.spans()]
    return {"word": records.data["word"], "n": np.concatenate(counts)}
