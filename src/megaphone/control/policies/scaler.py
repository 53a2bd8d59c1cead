"""The scaler, in the manner of DS2: true rates decide how many workers there should be.

A worker's true rate is what it applies in a second of its own time, without what it waits. From what comes in and the
true rates follows at once how many workers that takes; nothing is tried out step by step. What is learnt the hard way
is remembered: Spark's own time for a record, which more workers do not make less, and workers that brought nothing.
Neighbours: observation.py has the rates, restraint.py says when.  Paper: names DS2 (OSDI 2018) as a controller.
"""

from dataclasses import dataclass
from math import ceil

from megaphone import checks
from megaphone.control.balance import imbalance
from megaphone.control.policies.observation import Observation
from megaphone.control.policies.policy import Decision, Journal, Rescale, Wish
from megaphone.control.policies.restraint import Restraint
from megaphone.errors import PlanError

BEHIND = 1.05
"""So many times what is applied comes in: the query falls behind. Epochs of uneven length look like a bit of it."""

HOPELESS = 0.05
"""Of the time, what must be left to workers for more of them to be of use."""

WORTH = 0.2
"""Of what more workers promised, the part they must have brought for still more to be asked for."""


class Scaler:
    """Wishes for another number of workers when those there are have too much to do, or too little.

    >>> import numpy as np
    >>> from megaphone.configuration import Assignment
    >>> from megaphone.control.policies.observation import Flow
    >>> work, owners = np.array([0.4, 0.4, 0.5, 0.4]), Assignment([0, 1, 0, 1])
    >>> flows = {"count": Flow(arrived=17_000, applied=17_000, work=1.7)}
    >>> seen = Observation(0.0, 7, 2, False, owners, work * 1e4, work, np.zeros(4, np.int64), flows)
    >>> print(Scaler(most=8, patience=1).decide(seen).reason)
    17,000 records/s come in, and a worker can do 10,000: 2 are busy 85% of the time, 4 would be 42%
    """

    def __init__(
        self,
        most: int,
        *,
        least: int = 1,
        low: float = 0.3,
        high: float = 0.7,
        patience: int = 3,
        cooldown: float = 60.0,
    ) -> None:
        """Keep workers busy between `low` and `high` of their time, with `least` to `most` of them.

        `most` is yours to say: more workers than cores do no more. `patience` is how many times in a row there must be
        need, `cooldown` how many seconds a change is left to take effect.
        """
        self._least = checks.whole(least, "at least {} workers", 1)
        self._most = checks.whole(most, "at most {} workers", 1)
        if self._least > self._most:
            raise PlanError(f"{least} to {most} workers; choose no fewer at most than at least")
        self._low = checks.part(low, "workers busy {} of their time")
        self._high = checks.part(high, "workers busy {} of their time")
        if self._low >= self._high:
            raise PlanError(f"workers busy from {low} to {high} of their time; choose the lower part first")
        self._restraint = Restraint(patience, cooldown)
        self._journal = Journal()
        self._could: dict[int, float] = {}
        """Records a second that so many workers could do, when last seen."""
        self._spark_s = 0.0
        """Spark's own time for a record, as seen when it mattered."""

    @property
    def history(self) -> list[Decision]:
        """What was decided, and why."""
        return self._journal.decisions

    def decide(self, seen: Observation) -> Wish | None:
        """As many workers as the input takes, if that has been another number for some time."""
        return self._journal.note(seen, self._judge(seen))

    def _judge(self, seen: Observation) -> Wish | str:
        """The wish, or why there is none."""
        if seen.moving:
            return "a migration is under way"
        flow = Total.of(seen)
        if not (flow.work and flow.applied):
            return "no worker has told how long its records take"
        self._could[seen.workers] = seen.workers * flow.true_rate
        if flow.behind:
            self._spark_s = flow.spark_s
        wanted, told = self._choose(seen, flow)
        if wanted == seen.workers:
            self._restraint.calm()
            return told
        wait = self._restraint.why_wait(seen.at_s, "more" if wanted > seen.workers else "fewer")
        if wait:
            return f"{told}; {wait}"
        self._restraint.acted(seen.at_s)
        return Rescale(wanted, told)

    def _choose(self, seen: Observation, flow: "Total") -> tuple[int, str]:
        """How many workers there should be, and why."""
        told, room = flow.told(), flow.room(self._spark_s)
        if flow.busy > self._high * room:
            if room < HOPELESS:
                return seen.workers, f"{told}; Spark itself takes the rest, and more workers would not help"
            if self._brought_nothing(seen.workers):
                return seen.workers, f"{told}; they can do no more than fewer could"
            wanted, why_not = max(seen.workers, self._enough(flow, room)), "there may be no more"
        elif flow.busy < self._low * room and not flow.behind:
            wanted, why_not = min(seen.workers, self._enough(flow, room)), "fewer would not do"
        else:
            wanted, why_not = seen.workers, "as they should be"
        wanted = self._allowed(seen, wanted)
        then = f"{wanted} would be {flow.demand / wanted:.0%}" if wanted != seen.workers else why_not
        return wanted, f"{told}, {then}"

    def _enough(self, flow: "Total", room: float) -> int:
        """Workers that would be busy half-way between low and high: far from both, whatever the noise."""
        return ceil(flow.demand / ((self._low + self._high) / 2 * room))

    def _allowed(self, seen: Observation, workers: int) -> int:
        # A worker without a bin has nothing to do.
        return max(self._least, min(workers, self._most, len(seen.assignment)))

    def _brought_nothing(self, workers: int) -> bool:
        """Can these workers do no more than the next smaller number of them that there was?"""
        fewer = max((number for number in self._could if number < workers), default=None)
        if fewer is None:
            return False
        return self._could[workers] < self._could[fewer] * (1 + WORTH * (workers / fewer - 1))


@dataclass(frozen=True, slots=True)
class Total:
    """The operators of a query together: workers share their time among them."""

    workers: int
    arrived: float
    applied: float
    work: float
    demand: float
    """Seconds of workers' time in a second that it would take to apply all that comes in."""
    busiest: float
    """The part of its time that the busiest worker spends on records."""

    @classmethod
    def of(cls, seen: Observation) -> "Total":
        """What is seen, summed up."""
        flows = seen.flows.values()
        work = sum(flow.work for flow in flows)
        return cls(
            seen.workers,
            sum(flow.arrived for flow in flows),
            sum(flow.applied for flow in flows),
            work,
            sum(flow.demand for flow in flows),
            min(1.0, imbalance(seen.assignment, seen.work, seen.workers) * work / seen.workers),
        )

    @property
    def true_rate(self) -> float:
        """Records that a worker applies in a second of its own time."""
        return self.applied / self.work

    @property
    def busy(self) -> float:
        """The part of their time that all that comes in would take of the workers there are."""
        return self.demand / self.workers

    @property
    def behind(self) -> bool:
        """Does more come in than is applied?"""
        return self.arrived > BEHIND * self.applied

    @property
    def spark_s(self) -> float:
        """Spark's own time for a record, at most: when it falls behind, a query does nothing but records."""
        return (1 - self.busiest) / self.applied

    def room(self, spark_s: float) -> float:
        """The part of the time that is left to workers if Spark takes so long for a record."""
        left = 1 - self.arrived * spark_s
        # A query that keeps up leaves its workers what they take.
        return max(left, 1e-9 if self.behind else self.busiest)

    def told(self) -> str:
        """In words."""
        rates = f"{self.arrived:,.0f} records/s come in, and a worker can do {self.true_rate:,.0f}"
        return f"{rates}: {self.workers} are busy {self.busy:.0%} of the time"
