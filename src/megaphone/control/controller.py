"""The controller: issues the next step when the last one has completed.

One migration at a time, in the order they were asked for. Each can be paused between steps, resumed, and cancelled:
what has moved stays moved.  Neighbours: plan.py is what it follows, epochs.py asks it once an epoch.
"""

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, islice
from threading import Event
from typing import Literal

from megaphone.bins import BinId
from megaphone.checks import not_negative
from megaphone.configuration import Assignment
from megaphone.control.plan import Plan, Step, check_begin
from megaphone.errors import PlanError
from megaphone.printing import printable
from megaphone.progress import Time

Phase = Literal["waiting", "running", "paused", "done", "cancelled", "failed", "interrupted"]
"""Of an interrupted migration the query has ended; from its checkpoint it goes on."""

HISTORY = 100
"""Migrations that have ended and are still remembered, without their plans; how many there were is counted for ever."""

MAX_REASON = 1000
"""Characters of a reason that are remembered."""

GIVEN_UP: tuple[Phase, ...] = ("cancelled", "failed")
"""Phases in which no further step is issued; a step in flight still completes."""


@dataclass(frozen=True, slots=True)
class MigrationSummary:
    """What is remembered of a migration that has ended: what it was, when, how it ended, and its figures."""

    number: int
    phase: Phase
    strategy: str
    latency_target: float | None
    gap: int
    steps: int
    completed: int
    bins: int
    bins_moved: int
    bytes_moved: int
    asked_s: float
    began_s: float | None
    ended_s: float | None
    reason: str | None

    @property
    def duration_s(self) -> float:
        """Seconds from the first step until the end, or until now."""
        return 0.0 if self.began_s is None else (self.ended_s or time.time()) - self.began_s

    @property
    def summary(self) -> "MigrationSummary":
        """Itself: a migration that has not ended has one, too."""
        return self

    def wait(self, timeout: float | None = None) -> "MigrationSummary":
        """It has ended: return at once, as a migration that has ended does."""
        _check_timeout(timeout)
        return self

    def __str__(self) -> str:
        steps = f"{self.completed} of {self.steps} steps, " if self.latency_target is None else ""
        because = f"; {self.reason}" if self.reason else ""
        return printable(f"{self.strategy} {self.phase}: {steps}{self.bins_moved} of {self.bins} bins{because}")


@dataclass(slots=True, eq=False)
class Migration:
    """A plan on its way: what has been issued, what has completed, and how long it took."""

    plan: Plan
    then_workers: int | None = None
    """With its end the workers from this number on are not needed any more."""
    number: int = 0
    """Which command asked for it."""
    phase: Phase = "waiting"
    issued: int = 0
    completed: int = 0
    bytes_moved: int = 0
    stride: int = 1
    """With a latency target, how many of the plan's steps the next one is made of."""
    asked_s: float = field(default_factory=time.time)
    began_s: float | None = None
    ended_s: float | None = None
    reason: str | None = None
    """Why it failed."""
    cleared: bool = True
    """Is it known that the bins can travel that it has still to move, or has it been waited for in vain?"""
    workers_before: int | None = None
    """How many workers there were before a rescale; if it fails, those that were started for it are not needed."""
    _ended: Event = field(default_factory=Event, repr=False)
    _sums: list[int] | None = field(default=None, repr=False)
    """Bins that have moved after so many steps."""

    @property
    def strategy(self) -> str:
        """The strategy that made its plan."""
        return self.plan.strategy

    @property
    def steps(self) -> int:
        """Steps of its plan."""
        return len(self.plan.steps)

    @property
    def bins(self) -> int:
        """Bins that are to move."""
        return self._bins_after(len(self.plan.steps))

    @property
    def bins_moved(self) -> int:
        """Bins that have arrived."""
        return self._bins_after(self.completed)

    def _bins_after(self, steps: int) -> int:
        # Counted once: a plan may have a million steps, and is looked at in every epoch.
        if self._sums is None:
            self._sums = list(accumulate((len(step.moves) for step in self.plan.steps), initial=0))
        return self._sums[steps]

    @property
    def duration_s(self) -> float:
        """Seconds from the first step until the end, or until now."""
        return 0.0 if self.began_s is None else (self.ended_s or time.time()) - self.began_s

    def wait(self, timeout: float | None = None) -> "Migration":
        """Block until it has ended: its phase says whether it is done, cancelled, failed or interrupted."""
        if not self._ended.wait(_check_timeout(timeout)):
            raise TimeoutError(f"migration not complete after {timeout} s: {self}")
        return self

    def end(self, phase: Phase, reason: str | None = None) -> None:
        """Nothing more happens to it; a reason says why it failed."""
        self.phase, self.ended_s, self.reason = phase, time.time(), reason
        self._ended.set()

    @property
    def summary(self) -> MigrationSummary:
        """How it is, without its plan."""
        plan = self.plan
        return MigrationSummary(
            self.number,
            self.phase,
            plan.strategy,
            plan.latency_target,
            plan.gap,
            len(plan.steps),
            self.completed,
            self.bins,
            self.bins_moved,
            self.bytes_moved,
            self.asked_s,
            self.began_s,
            self.ended_s,
            self.reason and self.reason[:MAX_REASON],
        )

    def __str__(self) -> str:
        return str(self.summary)


def _check_timeout(timeout: float | None) -> float | None:
    return None if timeout is None else not_negative(timeout, "a wait of {} s")


class Controller:
    """Follows plans, a step at a time."""

    def __init__(self, current: Assignment) -> None:
        """Begin at an assignment, with nothing to do."""
        self._expected = current
        self._queue: deque[Migration] = deque()
        self._in_flight = False
        self.resume_at: Time | None = None
        self.emptied: list[int] = []
        """By rescales that have ended and were not acted on: from which numbers on workers may have nothing to do."""
        self.ended: Counter[Phase] = Counter()
        """How many migrations have ended, by how, since the query was first started."""
        self._past: deque[MigrationSummary] = deque(maxlen=HISTORY)

    @property
    def expected(self) -> Assignment:
        """Where every plan accepted so far will end: what the next one starts from."""
        return self._expected

    @property
    def history(self) -> list[Migration | MigrationSummary]:
        """The last migrations that have ended, and, whole, all that have not; in the order they were asked for."""
        return sorted([*self._past, *self._queue], key=lambda migration: migration.number)

    @property
    def past(self) -> tuple[MigrationSummary, ...]:
        """The last migrations that have ended, in that order."""
        return tuple(self._past)

    @property
    def under_way(self) -> tuple[Migration, ...]:
        """The migration under way, and those that wait behind it."""
        return tuple(self._queue)

    def ended_since(self, count: int) -> list[MigrationSummary]:
        """Those that have ended since so many had; the last of them, if there were more than are remembered."""
        fresh = self.ended.total() - count
        return list(self._past)[-fresh:] if fresh else []

    @property
    def current(self) -> Migration | None:
        """The migration under way."""
        return self._queue[0] if self._queue else None

    @property
    def in_flight(self) -> bool:
        """Has a step been issued that has not completed?"""
        return self._in_flight

    def check(self, plan: Plan, workers: int, now: Time) -> Assignment:
        """Refuse a plan that cannot be followed; else say where it ends."""
        expected = plan.check(self._expected, workers)
        check_begin(plan.first_time, now)
        return expected

    def submit(
        self, plan: Plan, workers: int, now: Time, then_workers: int | None = None, number: int = 0
    ) -> Migration:
        """Accept a plan, or refuse it and change nothing."""
        return self.accept(plan, self.check(plan, workers, now), then_workers, number)

    def accept(self, plan: Plan, end: Assignment, then_workers: int | None = None, number: int = 0) -> Migration:
        """Accept a plan that was checked from where the bins will be; `end` is where they are when it is done."""
        self._expected = end
        migration = Migration(plan, then_workers, number)
        if plan.steps:
            self._queue.append(migration)
        else:
            self._end(migration, "done")
        return migration

    def expect(self, assignment: Assignment) -> None:
        """Nothing is to do, and the bins are where they have been put."""
        assert not self._queue
        self._expected = assignment

    def take_up(
        self, migrations: Iterable[Migration], in_flight: bool, resume_at: Time | None, current: Assignment
    ) -> None:
        """Go on with migrations that had not ended when the driver died."""
        self.resume_at = resume_at
        self._queue = deque(migrations)
        self._in_flight = in_flight
        self._expect_from(current)

    def _expect_from(self, current: Assignment) -> None:
        going_on = (migration for migration in self._queue if migration.phase not in GIVEN_UP)
        steps = (step for migration in going_on for step in self._left(migration))
        self._expected = current.after((move.bin, move.target) for step in steps for move in step.moves)

    def remember(self, past: Iterable[MigrationSummary]) -> None:
        """Remember migrations that had ended before; how many there were is known already."""
        self._past = deque(past, maxlen=HISTORY)

    def ready(self, now: Time) -> bool:
        """Would `next_step` issue one if asked at `now`, gap aside?"""
        steps = self._next()
        return bool(steps) and not self._in_flight and (steps[0].time is None or steps[0].time <= now)

    def next_step(self, epoch: Time, now: Time) -> Step | None:
        """The step to issue in this epoch, if its turn has come; a timed one is issued as early as it may be."""
        steps = self._next()
        if not steps or self._in_flight or (self.resume_at is not None and epoch < self.resume_at):
            return None
        migration = self._queue[0]
        if migration.began_s is None:
            migration.phase, migration.began_s = "running", time.time()
        migration.issued += len(steps)
        self._in_flight = True
        time_of_first = steps[0].time
        at = time_of_first if time_of_first is not None and time_of_first >= now else None
        return Step(tuple(move for step in steps for move in step.moves), at)

    def step_completed(self, epoch: Time, bytes_moved: int = 0) -> None:
        """The step in flight has happened on every operator, and its epoch is committed."""
        migration = self._queue[0]
        self._in_flight = False
        self.resume_at = Time(epoch + migration.plan.gap)
        migration.completed = migration.issued
        migration.bytes_moved += bytes_moved
        if migration.phase in GIVEN_UP:
            self._finish(migration.phase, migration.reason)
        elif migration.completed == len(migration.plan.steps):
            self._finish("done")

    def take_back(self) -> None:
        """The step in flight will not happen, after all."""
        migration = self._queue[0]
        migration.issued, self._in_flight = migration.completed, False

    def check_told(self, verb: str) -> None:
        """Refuse to pause, resume or cancel what is not there, or has been cancelled."""
        if verb == "cancel":
            self._require()
        else:
            self._stoppable()

    def pause(self) -> Migration:
        """Issue no further step until `resume`."""
        migration = self._stoppable()
        migration.phase = "paused"
        return migration

    def resume(self) -> Migration:
        """Go on where `pause` stopped."""
        migration = self._stoppable()
        migration.phase = "running" if migration.began_s is not None else "waiting"
        return migration

    def cancel(self, current: Assignment) -> Migration:
        """Issue no further step of this migration nor of those queued behind it, which started from its end."""
        migration = self._require()
        while len(self._queue) > 1:
            self._end(self._queue.pop(), "cancelled")
        if migration.phase != "failed":
            migration.phase = "cancelled"
        self._expected = current
        if not self._in_flight:
            self._finish(migration.phase, migration.reason)
        return migration

    def fail(self, number: int, current: Assignment, reason: str) -> Migration | None:
        """End a migration, once its step in flight has completed, and those that started from its end."""
        migration = next((migration for migration in self._queue if migration.number == number), None)
        if migration is None:
            return None
        while self._queue[-1] is not migration:
            self._end(self._queue.pop(), "failed", f"migration {number}, which comes before it, has failed")
        migration.phase, migration.reason = "failed", reason
        if migration is not self._queue[0]:
            self._end(self._queue.pop(), "failed", reason)
        elif not self._in_flight:
            self._finish("failed", reason)
        self._expect_from(current)
        return migration

    def reject(self, number: int, reason: str, plan: Plan) -> Migration:
        """Remember a command that cannot be followed as a migration that has failed; nothing else changes."""
        migration = Migration(plan, number=number)
        self._end(migration, "failed", reason)
        return migration

    def interrupt(self) -> None:
        """The query has ended, and with it the waiting for what was still to migrate."""
        while self._queue:
            reason = "the query has ended; the migration goes on when it is started again from its checkpoint"
            self._end(self._queue.popleft(), "interrupted", reason)

    @property
    def uncleared(self) -> Migration | None:
        """The migration that issues no step before it is known whether its bins can travel."""
        migration = self.current
        waits = migration is not None and not migration.cleared and migration.phase not in GIVEN_UP
        return migration if waits and not self._in_flight else None

    @property
    def left(self) -> tuple[Step, ...]:
        """What the migration under way has still to issue."""
        return () if self.current is None else tuple(self._left(self.current))

    def _next(self) -> list[Step]:
        """The steps of the plan that would be issued together."""
        migration = self.current
        if migration is None or migration.phase in ("paused", *GIVEN_UP) or not migration.cleared:
            return []
        together: list[Step] = []
        bins: set[BinId] = set()
        for step in islice(self._left(migration), migration.stride):
            moving = {move.bin for move in step.moves}
            # A step has one time, and a bin moves once in it.
            if together and (step.time is not None or bins & moving):
                break
            together.append(step)
            bins |= moving
        return together

    def _left(self, migration: Migration) -> Iterator[Step]:
        steps = migration.plan.steps
        # Not a copy of what is left: it is asked for in every epoch, and may be a million steps.
        yield from map(steps.__getitem__, range(migration.issued, len(steps)))

    def _finish(self, phase: Phase, reason: str | None = None) -> None:
        if phase != "done":
            # A migration that is given up leaves no gap to wait for.
            self.resume_at = None
        self._end(self._queue.popleft(), phase, reason)

    def _end(self, migration: Migration, phase: Phase, reason: str | None = None) -> None:
        migration.end(phase, reason)
        # Its plan may be large, and is of no use any more but to who holds the migration.
        self._past.append(migration.summary)
        self.ended[phase] += 1
        workers = {"done": migration.then_workers, "failed": migration.workers_before}.get(phase)
        if workers is not None and workers not in self.emptied:
            self.emptied.append(workers)

    def _stoppable(self) -> Migration:
        migration = self._require()
        # Until its last step has completed it is still current: pausing would bring it back to life.
        if migration.phase in GIVEN_UP:
            raise PlanError(f"the migration under way is {migration.phase} already; its last step is still to complete")
        return migration

    def _require(self) -> Migration:
        if self.current is None:
            raise PlanError("no migration is under way")
        return self.current
