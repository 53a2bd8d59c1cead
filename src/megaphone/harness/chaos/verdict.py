"""The verdict: what the sink has, against what it must have. Exactly once means: this, and nothing twice.

Knows nothing of bins, workers or epochs of ours: it reads what Spark's file sink has committed, and how many records
Spark's offset log says were read by then, and counts those records anew.
Neighbours: job.py is the query, harness/source.py the records.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import numpy as np

from megaphone.harness.chaos.job import DIGITS, KEYS, SEED
from megaphone.harness.source import keys_of


@dataclass(frozen=True, slots=True)
class Verdict:
    """Rows that are missing and rows that are there twice, of so many."""

    epoch: int
    rows: int
    lost: int
    doubled: int

    @property
    def right(self) -> bool:
        """Nothing lost, nothing doubled."""
        return self.lost == 0 and self.doubled == 0


class Judge:
    """Reads each output file once, however often it is asked."""

    def __init__(self, output: Path, offsets: Path) -> None:
        """Judge a query by where its sink and its offset log are."""
        self._output = output
        self._offsets = offsets
        self._read: set[str] = set()
        self._rows: Counter[tuple[int, int]] = Counter()

    @property
    def epoch(self) -> int:
        """The last epoch whose outputs are committed."""
        return max((batch for batch, _ in self._logs()), default=-1)

    def judge(self) -> Verdict:
        """What the sink has by now."""
        last = self.epoch
        if last < 0:
            return Verdict(last, 0, 0, 0)
        for path in self._committed(last) - self._read:
            self._read.add(path)
            rows = map(json.loads, Path(path).read_text().splitlines())
            self._rows.update((row["digit"], row["total"]) for row in rows)
        expected = expected_rows(records_read(self._offsets, last))
        lost = sum((expected - self._rows).values())
        doubled = sum((self._rows - expected).values())
        return Verdict(last, sum(self._rows.values()), lost, doubled)

    def _logs(self) -> Iterable[tuple[int, Path]]:
        """The sink's own log: a file per epoch, and now and then one that has all of the ones before."""
        for path in (self._output / "_spark_metadata").glob("[0-9]*"):
            if path.suffix in ("", ".compact"):
                yield int(path.name.removesuffix(".compact")), path

    def _committed(self, last: int) -> set[str]:
        logs = sorted(self._logs(), reverse=True)
        found: set[str] = set()
        for batch, path in logs:
            if batch > last:
                continue
            for line in path.read_text().splitlines()[1:]:
                found.add(unquote(urlparse(json.loads(line)["path"]).path))
            if path.suffix == ".compact":
                break
        return found


def records_read(offsets: Path, epoch: int) -> int:
    """How many records were read by the end of an epoch, as Spark's offset log says."""
    lines = (offsets / str(epoch)).read_text().splitlines()
    return next(int(json.loads(line)["record"]) for line in lines if line.startswith('{"record"'))


def expected_rows(records: int) -> Counter[tuple[int, int]]:
    """What must come out for the first so many records, counted from scratch.

    >>> sum(expected_rows(1000).values())
    1000
    """
    counts = np.bincount(keys_of(np.arange(records), KEYS, SEED), minlength=KEYS)
    digits: Counter[int] = Counter()
    for total in counts.tolist():
        digits.update(n % DIGITS for n in range(1, total + 1))
    return Counter((digit, n) for digit, total in digits.items() for n in range(1, total + 1))
