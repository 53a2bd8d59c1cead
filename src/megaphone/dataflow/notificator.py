"""The notificator: a bin's records that wait for their time.

Nothing is replayed before the frontier has passed it, and what is replayed comes in time order.
A priority queue of sorted runs: a push costs O(log n) amortised, a drain is a binary search per run and a slice.
Neighbours: hosting.py owns one per bin and input.  Paper: the extended notificator.
"""

import numpy as np

from megaphone.dataflow.records import Records
from megaphone.progress import END, Time


class Notificator:
    """Records in advance of the frontier, replayed in time order once it has passed them.

    >>> import pyarrow as pa
    >>> pending = Notificator()
    >>> word = pa.record_batch({"word": ["late", "soon"]})
    >>> pending.push(Records(np.zeros(2, np.uint32), np.array([9, 5]), word))
    >>> pending.next_time, pending.drain(Time(6)).data["word"].to_pylist(), len(pending)
    (5, ['soon'], 1)
    """

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        """Start with nothing pending."""
        self._runs: list[Records] = []

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    @property
    def next_time(self) -> Time:
        """The earliest pending time, END if nothing is pending."""
        return Time(min([int(run.times[0]) for run in self._runs], default=END))

    def push(self, records: Records) -> None:
        """Let records wait, in any order."""
        if not len(records):
            return
        self._runs.append(_in_time_order(records))
        # Merging only runs of like size keeps their number logarithmic and each record's copies too.
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            last, before = self._runs.pop(), self._runs.pop()
            self._runs.append(_merge([before, last]))

    def drain(self, bound: Time) -> Records | None:
        """Take out what is due strictly before `bound`, in time order."""
        if len(self._runs) == 1 and self._runs[0].times[-1] < bound:
            return self._runs.pop()
        due, rest = [], []
        for run in self._runs:
            cut = int(np.searchsorted(run.times, bound, side="left"))
            due += [run.slice(0, cut)] if cut else []
            rest += [run.slice(cut, len(run))] if cut < len(run) else []
        self._runs = rest
        return _merge(due) if due else None

    def pending(self) -> Records | None:
        """Everything that waits, in time order; it stays."""
        return _merge(self._runs) if self._runs else None


def _in_time_order(records: Records) -> Records:
    times = records.times
    if records.at_one_time or bool((times[1:] >= times[:-1]).all()):
        return records
    return records.take(np.argsort(times, kind="stable"))


def _merge(runs: list[Records]) -> Records:
    if len(runs) == 1:
        return runs[0]
    return _in_time_order(Records.concat(runs, runs[0].data.schema))
