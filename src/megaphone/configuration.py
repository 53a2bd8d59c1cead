"""The configuration: which worker owns a bin, as a function of time.

An entry holds from its time on until a later one for the same bin; entries that no record can ask for any more are
retired as the frontier passes them. `dataflow` reads it, `control` writes it: they meet only here.
Paper: configuration updates.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from megaphone.bins import MAX_SHIFT, BinId, WorkerId
from megaphone.checks import whole
from megaphone.errors import PlanError
from megaphone.progress import BEGIN, Frontier, Time

Owners = npt.NDArray[np.int32]

MAX_WORKER = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Move:
    """One bin goes from one worker to another.

    >>> print(Move(BinId(3), source=WorkerId(0), target=WorkerId(1)))
    3:0>1
    """

    bin: BinId
    source: WorkerId
    target: WorkerId

    def __str__(self) -> str:
        return f"{self.bin}:{self.source}>{self.target}"


@dataclass(frozen=True, slots=True)
class Update:
    """An atomic set of configuration changes: from `time` on, these bins have these owners."""

    time: Time
    owners: tuple[tuple[BinId, WorkerId], ...]


class Assignment:
    """The owner of every bin at one time.

    >>> Assignment.round_robin(bins=4, workers=2)
    Assignment([0, 1, 0, 1])
    """

    __slots__ = ("_workers", "owners")

    def __init__(self, owners: Iterable[int] | Owners) -> None:
        """Own a private, read-only copy of the owners, one per bin."""
        table = np.array(_numbers(owners), dtype=np.int32)
        table.flags.writeable = False
        self.owners: Owners = table
        self._workers: list[WorkerId] | None = None

    @classmethod
    def round_robin(cls, bins: int, workers: int) -> "Assignment":
        """Bin b on worker b mod workers: the configuration before any update."""
        return cls(np.arange(bins, dtype=np.int32) % np.int32(workers))

    def __getitem__(self, bin: BinId) -> WorkerId:
        return WorkerId(int(self.owners[bin]))

    def __len__(self) -> int:
        return len(self.owners)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Assignment) and np.array_equal(self.owners, other.owners)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Assignment({self.owners.tolist()})"

    def moves_to(self, target: "Assignment") -> Iterator[Move]:
        """The moves that turn this assignment into `target`, in bin order."""
        for index in np.flatnonzero(self.owners != target.owners):
            bin = BinId(int(index))
            yield Move(bin, self[bin], target[bin])

    def after(self, owners: Iterable[tuple[int, int]]) -> "Assignment":
        """This assignment with some owners replaced."""
        table = self.owners.copy()
        for bin, worker in owners:
            table[bin] = worker
        return Assignment(table)

    def bins_of(self, worker: WorkerId) -> npt.NDArray[np.int64]:
        """The bins that `worker` owns, ascending."""
        return np.flatnonzero(self.owners == worker)

    def workers(self) -> list[WorkerId]:
        """The workers that own a bin, ascending."""
        if self._workers is None:
            self._workers = [WorkerId(int(w)) for w in np.unique(self.owners)]
        return self._workers


def _numbers(owners: Iterable[int] | Owners) -> npt.NDArray[Any]:
    """Owners that are whole numbers, and that a table has room for."""
    if not isinstance(owners, np.ndarray):
        listed = list(islice(owners, 2**MAX_SHIFT + 1))
        if not set(map(type, listed)) <= {int}:
            listed = [whole(owner, f"bin {bin} on worker {{}}", 0) for bin, owner in enumerate(listed)]
        if max(listed, default=0) > MAX_WORKER or min(listed, default=0) < 0:
            listed = [whole(owner, f"bin {bin} on worker {{}}", 0, MAX_WORKER) for bin, owner in enumerate(listed)]
        owners = np.array(listed, dtype=np.int64)
    if owners.ndim != 1 or owners.dtype.kind not in "iu":
        raise PlanError(f"an assignment of shape {owners.shape} and type {owners.dtype}; give a worker for every bin")
    if len(owners) > 2**MAX_SHIFT:
        raise PlanError(f"an assignment of more than {2**MAX_SHIFT} bins; choose fewer")
    if owners.dtype != np.int32 and len(owners) and not 0 <= owners.min() <= owners.max() <= MAX_WORKER:
        raise PlanError(f"an assignment to workers {owners.min()} to {owners.max()}; choose 0 to {MAX_WORKER}")
    return owners


class Configuration:
    """Assignments by time: `owner(time, bin)`, with updates to come and old entries retired.

    >>> config = Configuration(Assignment([2, 2]), since=Time(4))
    >>> config.insert(Update(Time(8), ((BinId(0), WorkerId(1)),)))
    >>> config.insert(Update(Time(16), ((BinId(0), WorkerId(0)),)))
    >>> [config.owner(Time(t), BinId(0)) for t in (4, 7, 8, 15, 16, 99)]
    [2, 2, 1, 1, 0, 0]
    >>> config.retire(Frontier(Time(9))); len(config)
    2
    """

    def __init__(self, initial: Assignment, since: Time = BEGIN) -> None:
        """Start with one assignment, in force from `since` on."""
        self._entries: list[tuple[Time, Assignment]] = [(since, initial)]

    @classmethod
    def of(cls, entries: Sequence[tuple[Time, Assignment]]) -> "Configuration":
        """The configuration with just these entries, oldest first."""
        made = cls(entries[0][1], entries[0][0])
        made._entries = list(entries)
        return made

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> Sequence[tuple[Time, Assignment]]:
        """What is in force from when, oldest first."""
        return tuple(self._entries)

    @property
    def last(self) -> Assignment:
        """The assignment after every update known so far."""
        return self._entries[-1][1]

    @property
    def bins(self) -> int:
        """The number of bins."""
        return len(self.last)

    def insert(self, update: Update) -> None:
        """Put an update after all others; one at the time of the last joins it."""
        last_time, last = self._entries[-1]
        if update.time < last_time:
            raise PlanError(
                f"reconfiguration at time {update.time} is behind the one at {last_time}; choose {last_time} or later"
            )
        entry = (update.time, last.after(update.owners))
        if update.time == last_time:
            self._entries[-1] = entry
        else:
            self._entries.append(entry)

    def take_back(self, time: Time, moves: Iterable[Move]) -> None:
        """Take the last update back, whose moves were to happen at a time.

        >>> config = Configuration(Assignment([2, 2]))
        >>> config.insert(Update(Time(8), ((BinId(0), WorkerId(1)),)))
        >>> config.take_back(Time(8), [Move(BinId(0), WorkerId(2), WorkerId(1))])
        >>> config.entries
        ((-9223372036854775808, Assignment([2, 2])),)
        """
        *before, (since, last) = self._entries
        assert since == time
        owners = last.after((move.bin, move.source) for move in moves)
        # What changes nothing goes: an update that comes now may be for an earlier time.
        self._entries = before if before and before[-1][1] == owners else [*before, (since, owners)]

    def assignment(self, time: Time) -> Assignment:
        """Who owns what at `time`."""
        for since, assignment in reversed(self._entries):
            if since <= time:
                return assignment
        raise PlanError(f"time {time} is before the first entry, {self._entries[0][0]}")

    def owner(self, time: Time, bin: BinId) -> WorkerId:
        """The worker that applies records of `bin` at `time`."""
        return self.assignment(time)[bin]

    def owners(self, times: npt.NDArray[np.int64] | Time, bins: npt.NDArray[Any]) -> Owners:
        """The owner of each (time, bin); one time may stand for all."""
        routed: Owners
        if not isinstance(times, np.ndarray):
            routed = self.assignment(Time(times)).owners.take(bins)
            return routed
        routed = self._entries[0][1].owners.take(bins)
        for since, assignment in self._entries[1:]:
            later = times >= since
            if later.any():
                routed = np.where(later, assignment.owners.take(bins), routed)
        return routed

    def retire(self, frontier: Frontier) -> None:
        """Forget the entries that no time at or after the frontier can ask for."""
        while len(self._entries) > 1 and not frontier.less_than(self._entries[1][0]):
            self._entries.pop(0)
