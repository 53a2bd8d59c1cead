"""Latency: from when a record was due to when its epoch was done, one sample per record.

Kept in a histogram with a fixed relative error, like HdrHistogram's; samples are put in by the thousand.
Neighbours: timeline.py has one per interval.  Paper: the evaluation's harness.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

SUB_BITS = 5
"""32 steps for each doubling: no sample is off by more than 1/32."""


class Histogram:
    """Counts of durations in nanoseconds, in log-linear buckets; merged by adding.

    >>> histogram = Histogram()
    >>> histogram.record(np.arange(1, 1001) * 1_000_000)
    >>> [round(histogram.quantile(q) / 1e6) for q in (0.5, 0.99, 1.0)]
    [503, 1000, 1000]
    """

    def __init__(self) -> None:
        """Start empty."""
        self._counts: npt.NDArray[np.int64] = np.zeros(64 << SUB_BITS, np.int64)
        self._max = 0

    def __len__(self) -> int:
        return int(self._counts.sum())

    @property
    def max(self) -> int:
        """The largest sample, exactly."""
        return self._max

    def record(self, samples: npt.NDArray[np.int64]) -> None:
        """Put samples in."""
        if len(samples):
            np.add.at(self._counts, _buckets(samples), 1)
            self._max = max(self._max, int(samples.max()))

    def merge(self, others: "Iterable[Histogram]") -> "Histogram":
        """All samples of this one and others."""
        merged = Histogram()
        for histogram in (self, *others):
            merged._counts += histogram._counts
            merged._max = max(merged._max, histogram._max)
        return merged

    def quantile(self, q: float) -> int:
        """The duration that a share `q` of the samples does not exceed."""
        total = len(self)
        if not total:
            return 0
        bucket = int(np.searchsorted(np.cumsum(self._counts), max(1, np.ceil(q * total))))
        return min(_upper_edge(bucket), self._max)


def _buckets(samples: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    values = np.maximum(samples, 0).astype(np.float64)
    # The exponent and the leading bits of a double are a log-linear bucket number already.
    mantissa, exponent = np.frexp(np.maximum(values, 1))
    sub = ((mantissa - 0.5) * (2 << SUB_BITS)).astype(np.int64)
    return (exponent.astype(np.int64) << SUB_BITS) + np.minimum(sub, (1 << SUB_BITS) - 1)


def _upper_edge(bucket: int) -> int:
    exponent, sub = bucket >> SUB_BITS, bucket & ((1 << SUB_BITS) - 1)
    return int(np.ldexp(0.5 + (sub + 1) / (2 << SUB_BITS), exponent))
