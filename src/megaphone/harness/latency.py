"""Latency: from when a record was due to when its epoch was done, one sample per record.

Kept in a histogram with a fixed relative error, like HdrHistogram's; samples are put in by the thousand.
Neighbours: timeline.py has one per interval.  Paper: the evaluation's harness.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

SUB_BITS = 5
"""32 steps for each doubling: no sample is off by more than 1/32."""


QUANTILES = {"p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
"""What is told of every interval and every stretch, with the maximum, each under its true name."""

Summary = dict[str, float]
"""Milliseconds by name, `p25_ms` to `p99.9_ms` and `max_ms`, and `records`: how many samples."""


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

    def summary(self) -> Summary:
        """The percentiles, the maximum, and how many samples there are.

        >>> histogram = Histogram()
        >>> histogram.record(np.array([2_000_000, 4_000_000]))
        >>> histogram.summary()["max_ms"], histogram.summary()["records"]
        (4.0, 2)
        """
        told = {f"{name}_ms": round(self.quantile(q) / 1e6, 3) for name, q in QUANTILES.items()}
        return {**told, "max_ms": round(self._max / 1e6, 3), "records": len(self)}

    def ccdf(self) -> list[tuple[float, float]]:
        """For each bucket in use: its upper edge in milliseconds, and the share of samples above the buckets before it.

        >>> histogram = Histogram()
        >>> histogram.record(np.array([1_000_000, 1_000_000, 1_000_000, 9_000_000]))
        >>> [share for _, share in histogram.ccdf()]
        [1.0, 0.25]
        """
        used = np.flatnonzero(self._counts)
        before = np.cumsum(self._counts)[used] - self._counts[used]
        edges = [min(_upper_edge(int(bucket)), self._max) / 1e6 for bucket in used]
        return list(zip(edges, (1 - before / max(1, len(self))).tolist(), strict=True))

    def saved(self) -> dict[str, Mapping[str, int] | int]:
        """As plain data; `Histogram.read` takes it back."""
        used = np.flatnonzero(self._counts).tolist()
        return {"max": self._max, "counts": {str(bucket): int(self._counts[bucket]) for bucket in used}}

    @classmethod
    def read(cls, saved: Mapping[str, Any]) -> "Histogram":
        """A histogram that was saved."""
        histogram = cls()
        histogram._max = saved["max"]
        for bucket, count in saved["counts"].items():
            histogram._counts[int(bucket)] = count
        return histogram


def _buckets(samples: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    values = np.maximum(samples, 0).astype(np.float64)
    # The exponent and the leading bits of a double are a log-linear bucket number already.
    mantissa, exponent = np.frexp(np.maximum(values, 1))
    sub = ((mantissa - 0.5) * (2 << SUB_BITS)).astype(np.int64)
    return (exponent.astype(np.int64) << SUB_BITS) + np.minimum(sub, (1 << SUB_BITS) - 1)


def _upper_edge(bucket: int) -> int:
    exponent, sub = bucket >> SUB_BITS, bucket & ((1 << SUB_BITS) - 1)
    return int(np.ldexp(0.5 + (sub + 1) / (2 << SUB_BITS), exponent))
