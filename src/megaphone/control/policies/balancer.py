"""The balancer: the same load on every worker, by moving the least state that will do.

Load is the time that bins take, where workers have told it, else their records. What `tolerance` allows is left alone;
what is moved brings the busiest worker to within half of it, and a move that brings next to nothing is not made.
Neighbours: balance.py finds the target, restraint.py says when.
"""

from collections import deque
from typing import Literal

import numpy as np

from megaphone import checks
from megaphone.control.balance import even, imbalance
from megaphone.control.load import Rates
from megaphone.control.policies.observation import Observation
from megaphone.control.policies.policy import Decision, Journal, Migrate, Wish
from megaphone.control.policies.restraint import Restraint

GAIN = 1 / 3
"""Of the tolerance, how much better it must get to be worth a migration."""


class Balancer:
    """Wishes for another assignment when the busiest worker has more than its share.

    >>> from megaphone.configuration import Assignment
    >>> load, sizes = np.array([0.4, 0.1, 0.4, 0.1]), np.array([9_000_000, 0, 5_000_000, 0])
    >>> seen = Observation(0.0, 7, 2, False, Assignment([0, 1, 0, 1]), load * 1e4, load, sizes, {})
    >>> print(Balancer(patience=1).decide(seen).reason)
    worker 0 has 1.60 times the mean load; moving 2 bins of about 5.0 MB brings the busiest to 1.00
    """

    def __init__(
        self,
        tolerance: float = 0.15,
        *,
        patience: int = 3,
        cooldown: float = 30.0,
        by: Literal["time", "records"] = "time",
    ) -> None:
        """Let the busiest worker have `tolerance` more than the mean.

        `patience` is how many times in a row it must have more, `cooldown` how many seconds a migration is left to
        take effect. With `by="records"` a record counts as a record, whatever time it takes.
        """
        self._tolerance = checks.positive(tolerance, "a tolerance of {}")
        self._by = checks.choice(by, "balance by {}", ("time", "records"))
        self._restraint = Restraint(patience, cooldown)
        self._uneven: deque[Rates] = deque(maxlen=self._restraint.patience)
        """The load of each bin at the last looks, all of which found it uneven."""
        self._epoch = -1
        self._journal = Journal()

    @property
    def history(self) -> list[Decision]:
        """What was decided, and why."""
        return self._journal.decisions

    def decide(self, seen: Observation) -> Wish | None:
        """Even the load, if it has been uneven for some time."""
        return self._journal.note(seen, self._judge(seen))

    def _judge(self, seen: Observation) -> Wish | str:
        """The wish, or why there is none."""
        if seen.moving:
            return "a migration is under way"
        if seen.epoch == self._epoch:
            return "no epoch has come since the last look"
        self._epoch = seen.epoch
        load = seen.work if self._by == "time" and seen.work.any() else seen.records
        busiest = imbalance(seen.assignment, load, seen.workers)
        if busiest <= 1 + self._tolerance:
            self._restraint.calm()
            self._uneven.clear()
            return f"the busiest worker has {busiest:.2f} times the mean load"
        self._uneven.append(load)
        wait = self._restraint.why_wait(seen.at_s, "balance")
        if wait:
            return f"{_told(seen, load, busiest)}; {wait}"
        return self._even(seen, np.asarray(np.mean(self._uneven, axis=0), np.float64))

    def _even(self, seen: Observation, load: Rates) -> Wish | str:
        busiest = imbalance(seen.assignment, load, seen.workers)
        told = _told(seen, load, busiest)
        target = even(seen.assignment, load, seen.sizes, seen.workers, self._tolerance)
        after = imbalance(target, load, seen.workers)
        if busiest - after < GAIN * self._tolerance:
            heaviest, part = int(load.argmax()), load.max() / load.sum() * seen.workers
            return f"{told}, and moving bins brings nothing: the heaviest, {heaviest}, has {part:.2f} times the mean"
        self._restraint.acted(seen.at_s)
        self._uneven.clear()
        bins = [move.bin for move in seen.assignment.moves_to(target)]
        size = f"{len(bins)} bin{'s' if len(bins) > 1 else ''} of about {seen.sizes[bins].sum() / 1e6:.1f} MB"
        return Migrate(target, f"{told}; moving {size} brings the busiest to {after:.2f}")


def _told(seen: Observation, load: Rates, busiest: float) -> str:
    who = int(np.bincount(seen.assignment.owners, load).argmax())
    return f"worker {who} has {busiest:.2f} times the mean load"
