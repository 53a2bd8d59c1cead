"""Open loop: when each record is due, whatever the system does.

The schedule is fixed before the run; a record that is late is late, and its latency counts from when it was due.
Neighbours: source.py generates what is due, latency.py measures against it.  Paper: the evaluation's harness.
"""

from dataclasses import dataclass

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Schedule:
    """Records due at a constant rate from a start on: record i at start + i / rate.

    >>> schedule = Schedule(start_ns=0, rate=1000)
    >>> schedule.due_by(2_000_000), schedule.due_ns(2)
    (2, 2000000)
    """

    start_ns: int
    rate: float

    def due_by(self, now_ns: int) -> int:
        """How many records are due before `now_ns`."""
        return max(0, int((now_ns - self.start_ns) * self.rate / SECOND_NS))

    def due_ns(self, record: float) -> int:
        """When a record is due."""
        return self.start_ns + int(record * SECOND_NS / self.rate)
