"""Basis: what a plan is made from, as it was at one moment.

A plan may take seconds to make and to check, and under the lock of a query no epoch is opened meanwhile: so it is made
from a copy, without the lock. Under it the plan is accepted only if what it was made from is still so.
"""

from dataclasses import dataclass

from megaphone.checks import integer, worker_count
from megaphone.configuration import Assignment
from megaphone.control.meter import Reading
from megaphone.control.plan import Plan, check_begin
from megaphone.progress import Time


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """Where the bins will be when everything accepted so far is done, how many workers there are, what was measured."""

    expected: Assignment
    """Never changed, and another one with every plan that is accepted or cancelled: the version of the basis."""
    workers: int
    now: Time
    """Nothing has been applied at it."""
    reading: Reading

    def with_workers(self, asked: int | None) -> int:
        """How many workers there are while a rescale to as many as are asked for is under way; refuse too many."""
        if asked is None:
            return self.workers
        found, bins = integer(asked), len(self.expected)
        # A query that has more workers than bins may keep them.
        keeps = found is not None and bins < found <= self.workers
        return self.workers if keeps else max(self.workers, worker_count(asked, bins))

    def check(self, plan: Plan, asked: int | None = None) -> "Checked":
        """Refuse a plan that cannot be followed from here; a rescale says to how many workers."""
        workers = self.with_workers(asked)
        end, first = plan.check(self.expected, workers), plan.first_time
        check_begin(first, self.now)
        return Checked(self, plan, end, first, None if asked is None else int(asked), workers)


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """A plan that can be followed, as long as its basis holds."""

    basis: Basis
    plan: Plan
    end: Assignment
    """Where the bins are when it is done."""
    first_time: Time | None
    then_workers: int | None
    """What a rescale asks for."""
    workers: int
    """How many there are while it is under way."""
