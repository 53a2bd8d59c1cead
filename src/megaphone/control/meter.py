"""The meter: how long epochs and moves take, and what each operator's bins do. It only watches; nothing hangs on it.

Neighbours: epochs.py tells it what happens, forecast.py and pacing.py ask it.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from megaphone.bins import WorkerId
from megaphone.configuration import Move
from megaphone.control.load import NOTHING, UNKNOWN, Load, Numbers, Rates, Tally

LATELY = 32
"""Epochs that are remembered one by one."""

EPOCH_S = 0.2
"""How long an epoch takes, as long as none was measured."""

BYTES_PER_S = 500e6
"""How fast bins travel, as long as no move was measured: what one process gave another here, at the slower end."""

ENOUGH = 1 << 20
"""Bytes from which the speed of a move says something: below, it is all about the first byte."""


class Meter:
    """Measures one run of a query, since it was started."""

    def __init__(self, operators: Iterable[str], bins: int, clock: Callable[[], float] | None = None) -> None:
        """Know nothing yet."""
        self.bins = bins
        self.loads = {name: Load(bins) for name in operators}
        self.bytes_moved = 0
        self.memory: dict[WorkerId, int] = {}
        """Bytes that each worker's process had when it last reported."""
        self._clock = clock or time.monotonic
        self._opened_s: float | None = None
        self._reported_s: float | None = None
        self._intervals: deque[float] = deque(maxlen=LATELY)
        self._between: deque[float] = deque(maxlen=LATELY)
        self._steady: deque[float] = deque(maxlen=LATELY)
        self._steps: deque[float] = deque(maxlen=LATELY)
        self._pulled: deque[tuple[int, float]] = deque(maxlen=LATELY)

    def epoch_opens(self) -> None:
        """An epoch begins, and the one before is committed."""
        now = self._clock()
        if self._opened_s is not None:
            self._intervals.append(now - self._opened_s)
            for load in self.loads.values():
                load.pass_time(now - self._opened_s)
        if self._reported_s is not None:
            self._between.append(now - self._reported_s)
        self._opened_s, self._reported_s = now, None

    def hear(
        self,
        operator: str,
        worker: WorkerId,
        applied: Tally,
        sizes: Tally,
        busy_ns: int,
        moved: int,
        pull_ns: int,
        spent: Tally = NOTHING,
    ) -> None:
        """What a worker reports of an epoch."""
        self.loads[operator].hear(worker, applied, sizes, busy_ns, spent)
        if moved >= ENOUGH and pull_ns:
            self._pulled.append((moved, pull_ns / 1e9))
        self.bytes_moved += moved

    def all_have_reported(self, moving: bool) -> float:
        """Everything of the epoch is applied: how long it has taken, with what Spark needs between two of them."""
        self._reported_s = self._clock()
        assert self._opened_s is not None
        took = self._reported_s - self._opened_s + min(self._between, default=0.0)
        (self._steps if moving else self._steady).append(took)
        return took

    @property
    def last_epoch_s(self) -> float:
        """From the beginning of the last epoch to that of this one."""
        return self._intervals[-1] if self._intervals else 0.0

    @property
    def steady_s(self) -> float:
        """How long an epoch without a step takes, once it has data."""
        return median(self._steady) if self._steady else EPOCH_S

    @property
    def step_s(self) -> float:
        """How long an epoch with a step takes, or as long as there was none, from one epoch to the next."""
        lately = self._steps or self._intervals
        return median(lately) if lately else EPOCH_S

    @property
    def bytes_per_s(self) -> float:
        """How fast bins have travelled lately."""
        seconds = sum(seconds for _, seconds in self._pulled)
        return sum(size for size, _ in self._pulled) / seconds if seconds else BYTES_PER_S

    @property
    def rates(self) -> Rates:
        """Records a second for each bin, over all operators."""
        return sum((load.rates for load in self.loads.values()), np.zeros(self.bins))

    @property
    def work(self) -> Rates:
        """Seconds of a worker's time that each bin takes in a second, over all operators."""
        return sum((load.work for load in self.loads.values()), np.zeros(self.bins))

    @property
    def idle_s(self) -> float:
        """How long ago the last epoch ended, if no other has begun since."""
        return 0.0 if self._reported_s is None else self._clock() - self._reported_s

    @property
    def sizes(self) -> Numbers:
        """Bytes of each bin over all operators, measured or assumed."""
        return sum((load.sizes for load in self.loads.values()), np.zeros(self.bins, np.int64))

    def weights(self, moves: Iterable[Move]) -> list[float]:
        """What moving each bin comes to."""
        return _weights(self.sizes, moves)

    @property
    def reading(self) -> "Reading":
        """What is known now, to be looked at later."""
        return Reading(self.rates, self.sizes, self.known, self.step_s, self.steady_s, self.bytes_per_s)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Which bins' size was measured on every operator."""
        known: npt.NDArray[np.bool_] = np.all([load.bytes != UNKNOWN for load in self.loads.values()], axis=0)
        return known


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What a meter has measured until one moment."""

    rates: Rates
    """Records a second for each bin, over all operators."""
    sizes: Numbers
    """Bytes of each bin over all operators, measured or assumed."""
    known: npt.NDArray[np.bool_]
    """Which bins' size was measured on every operator."""
    step_s: float
    steady_s: float
    bytes_per_s: float

    def weights(self, moves: Iterable[Move]) -> list[float]:
        """What moving each bin comes to."""
        return _weights(self.sizes, moves)

    def bytes_of(self, moves: Iterable[Move]) -> int:
        """The bytes of these bins."""
        return int(self.sizes[_bins(moves)].sum())

    def measured(self, moves: Iterable[Move]) -> float:
        """The part of these bins whose size was measured on every operator."""
        known = self.known[_bins(moves)]
        return float(known.mean()) if len(known) else 1.0


def _bins(moves: Iterable[Move]) -> Numbers:
    return np.fromiter((move.bin for move in moves), np.int64)


def _weights(sizes: Numbers, moves: Iterable[Move]) -> list[float]:
    """What moving each bin comes to: its bytes, and one more since an empty bin is not for nothing."""
    weights: list[float] = (1.0 + sizes[_bins(moves)]).tolist()
    return weights
