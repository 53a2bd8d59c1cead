"""Step and plan: moves in the order in which they happen.

A step is a set of moves at one time; a plan is steps, each issued when the one before has completed. A plan is data:
it can be checked, printed, saved and read back.  Neighbours: strategies.py makes them, controller.py follows them.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path
from typing import Any, Literal

import msgspec

from megaphone import checks
from megaphone.bins import BinId, WorkerId
from megaphone.configuration import Assignment, Move
from megaphone.control.documents import Int64, Malformed, convert, parse
from megaphone.errors import PlanError
from megaphone.printing import printable
from megaphone.progress import BEGIN, Time

FORMAT: Literal[1] = 1

LISTS = (tuple, list)

MAX_FILE = 256 << 20
"""Bytes of a plan's file: a million bins, each in a step of its own, take 80 million."""


class StepDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A step as text has it: each move is a bin, the worker it is on, and the one it goes to."""

    moves: list[tuple[Int64, Int64, Int64]]
    time: Int64 | None = None


class PlanDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A plan as text has it."""

    megaphone_plan: Literal[1]
    bins: Int64
    steps: list[StepDocument]
    gap: Int64 = 0
    strategy: str = "by hand"
    latency_target: float | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """Moves that happen together: at `time`, or as soon as the step before has completed.

    >>> print(Step((Move(BinId(3), WorkerId(0), WorkerId(1)),), time=Time(40)))
    at 40: 3:0>1
    """

    moves: tuple[Move, ...]
    time: Time | None = None

    def __str__(self) -> str:
        when = "" if self.time is None else f"at {self.time}: "
        return when + " ".join(map(str, self.moves))


@dataclass(frozen=True, slots=True)
class Estimate:
    """What following a plan would come to.

    >>> print(Estimate(steps=4, bytes=12_345_678, seconds=1.25, measured=1.0))
    about 12.3 MB in 4 steps and 1.2 s
    >>> print(Estimate(steps=4, bytes=9_876, seconds=1.25, measured=1.0))
    about 9.9 kB in 4 steps and 1.2 s
    >>> print(Estimate(steps=4, bytes=0, seconds=0.8, measured=0.0))
    an unknown number of bytes in 4 steps and 0.8 s
    >>> print(Estimate(steps=1, bytes=9_876, seconds=None, measured=1.0, not_before=Time(40)))
    about 9.9 kB in 1 steps, not before time 40
    """

    steps: int
    bytes: int
    seconds: float | None
    """None if a step waits for a time that is still to come: nobody knows when that is."""
    measured: float
    """The part of the bins whose size was measured; the others are assumed to be as large as those."""
    not_before: Time | None = None
    """The time that the last step waits for, if it is still to come."""
    obstacle: str | None = None
    """Why it would fail, as far as that is known."""

    def __str__(self) -> str:
        amount = f"{self.bytes / 1e6:.1f} MB" if self.bytes >= 1e5 else f"{self.bytes / 1e3:.1f} kB"
        size = f"about {amount}" if self.measured else "an unknown number of bytes"
        end = f", not before time {self.not_before}" if self.seconds is None else f" and {self.seconds:.1f} s"
        would = f"; it would fail: {self.obstacle}" if self.obstacle else ""
        return f"{size} in {self.steps} steps{end}{would}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps over a number of bins, with `gap` epochs between one step and the next.

    With a latency target, in seconds, as many steps at a time are issued together as epochs stay within it.

    >>> plan = Plan(bins=4, steps=(Step((Move(BinId(1), WorkerId(0), WorkerId(1)),)),))
    >>> Plan.from_json(plan.to_json()) == plan
    True
    >>> plan.check(Assignment([0, 0, 0, 0]), workers=1)
    Traceback (most recent call last):
    megaphone.errors.PlanError: bin 1 would go to worker 1, but there are 1 workers; choose 0 to 0
    """

    bins: int
    steps: tuple[Step, ...]
    gap: int = 0
    strategy: str = "by hand"
    latency_target: float | None = None
    estimate: Estimate | None = field(default=None, compare=False)
    """From a dry run; not saved."""

    @property
    def first_time(self) -> Time | None:
        """The first time that a step has, and so the earliest."""
        return next((step.time for step in self.steps if step.time is not None), None)

    @property
    def last_time(self) -> Time | None:
        """The last time that a step has."""
        return next((step.time for step in reversed(self.steps) if step.time is not None), None)

    @property
    def moves(self) -> tuple[Move, ...]:
        """All moves of all steps."""
        return tuple(move for step in self.steps for move in step.moves)

    def check(self, current: Assignment, workers: int) -> Assignment:
        """Refuse what cannot be followed from `current`; return where the plan ends."""
        checks.gap(self.gap)
        checks.label(self.strategy, "a strategy called")
        if self.latency_target is not None:
            checks.latency_target(self.latency_target)
        if checks.whole(self.bins, "a plan for {} bins", 1) != len(current):
            raise PlanError(f"plan is for {self.bins} bins, the operators have {len(current)}")
        # What somebody puts into a plan may be anything, whatever its types say.
        steps: Any = self.steps
        if not isinstance(steps, LISTS):
            raise PlanError(f"a plan whose steps are {checks.shown(steps)}; give a tuple of steps")
        last, owners = BEGIN, current.owners.tolist()
        for number, step in enumerate(steps):
            if not (isinstance(step, Step) and isinstance(step.moves, LISTS)):
                raise PlanError(f"step {number} is {checks.shown(step)}; give Step(a tuple of moves)")
            if step.time is not None:
                last = _check_time(number, step.time, last)
            _check_moves(number, step.moves, owners, workers)
        return Assignment(owners)

    def to_json(self) -> str:
        """The plan as text that `from_json` reads back."""
        # NumPy's integers are numbers too, but not for json.
        steps = [
            {
                "time": None if step.time is None else int(step.time),
                "moves": [[int(move.bin), int(move.source), int(move.target)] for move in step.moves],
            }
            for step in self.steps
        ]
        head = {"megaphone_plan": FORMAT, "bins": int(self.bins), "gap": int(self.gap), "strategy": self.strategy}
        target = {} if self.latency_target is None else {"latency_target": float(self.latency_target)}
        return json.dumps({**head, **target, "steps": steps})

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """A plan from its text; what is not one is refused with the reason."""
        try:
            raw = parse(text)
        except Malformed as error:
            raise PlanError(f"not a plan: {error}") from None
        return cls.from_object(raw)

    @classmethod
    def from_object(cls, raw: Any) -> "Plan":
        """A plan that was parsed as part of something else."""
        if not isinstance(raw, dict) or raw.get("megaphone_plan") != FORMAT:
            raise PlanError(f'not a plan of format {FORMAT}: no "megaphone_plan": {FORMAT} in it')
        try:
            document = convert(raw, PlanDocument)
        except Malformed as error:
            raise PlanError(f"malformed plan: {error}") from None
        steps = tuple(map(_read_step, document.steps))
        return cls(document.bins, steps, document.gap, document.strategy, document.latency_target)

    def save(self, path: str | Path) -> None:
        """Write the plan to a file."""
        Path(path).write_text(self.to_json() + "\n")

    @classmethod
    def read(cls, path: str | Path) -> "Plan":
        """Read a plan from a file."""
        try:
            with Path(path).open("rb") as file:
                content = file.read(MAX_FILE + 1)
            if len(content) > MAX_FILE:
                raise PlanError(f"{path} has more than {MAX_FILE} bytes: it is no plan")
            return cls.from_json(content.decode())
        except UnicodeDecodeError as error:
            raise PlanError(f"not a plan: {error}") from None
        except (OSError, ValueError) as error:
            # A name with a zero in it is a ValueError.
            raise PlanError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None

    def __str__(self) -> str:
        head = f"{printable(self.strategy)}: {len(self.moves)} bins"
        if self.latency_target is None:
            head += f" in {len(self.steps)} steps"
        else:
            head += f", records within {self.latency_target:g} s"
        head += f", {self.gap} epochs apart" if self.gap else ""
        head += f"; {self.estimate}" if self.estimate else ""
        return "\n".join([head, *(f"  step {number}: {step}" for number, step in enumerate(self.steps))])


def check_begin(first: Time | None, now: Time) -> None:
    """Refuse the first time of a plan if it is behind a frontier."""
    if first is not None and first < now:
        raise PlanError(f"reconfiguration at time {first} is behind the frontier {now}; choose {now} or later")


def _check_time(number: int, time: Time, last: Time) -> Time:
    time = checks.time(time, f"step {number}")
    if time < last:
        raise PlanError(f"step {number} is at time {time}, behind the step before it, at {last}")
    return time


def _check_moves(number: int, moves: Sequence[Move], owners: list[int], workers: int) -> None:
    """Check the moves of one step and give the bins their new owners."""
    seen: dict[int, int] = {}
    for move in moves:
        if not isinstance(move, Move):
            raise PlanError(f"step {number} moves {checks.shown(move)}; give Move(bin, source, target)")
        bin, source, target = move.bin, move.source, move.target
        if not (type(bin) is int and type(source) is int and type(target) is int):
            bin, source, target = _integers(number, move)
        if not 0 <= bin < len(owners):
            raise PlanError(f"bin {checks.shown(bin)} of {len(owners)}; choose 0 to {len(owners) - 1}")
        if not 0 <= target < workers:
            raise PlanError(
                f"bin {bin} would go to worker {checks.shown(target)}, but there are {workers} workers; "
                f"choose 0 to {workers - 1}"
            )
        if bin in seen:
            raise PlanError(
                f"bin {bin} would go to workers {seen[bin]} and {target} in one step; choose one, or two steps"
            )
        if owners[bin] != source:
            raise PlanError(f"bin {bin} is on worker {owners[bin]} by then, not on worker {checks.shown(source)}")
        if target == source:
            raise PlanError(f"bin {bin} is on worker {source} already; leave the move out")
        seen[bin] = owners[bin] = target


def _integers(number: int, move: Move) -> tuple[BinId, WorkerId, WorkerId]:
    """The parts of a move that are whole numbers, but not Python's own."""
    about = f"step {number} moves {{}}"
    bin, source, target = (checks.whole(part, about) for part in (move.bin, move.source, move.target))
    return BinId(bin), WorkerId(source), WorkerId(target)


def _read_step(document: StepDocument) -> Step:
    moves = starmap(lambda b, s, t: Move(BinId(b), WorkerId(s), WorkerId(t)), document.moves)
    return Step(tuple(moves), None if document.time is None else Time(document.time))


def step_to(current: Assignment, owners: Iterable[tuple[int, int]], time: Time | None = None) -> Step:
    """The step that gives bins new owners; bins that are there already stay out of it."""
    moves = []
    for bin, worker in owners:
        if not 0 <= bin < len(current):
            raise PlanError(f"bin {bin} of {len(current)}; choose 0 to {len(current) - 1}")
        if current[BinId(bin)] != worker:
            moves.append(Move(BinId(bin), current[BinId(bin)], WorkerId(worker)))
    return Step(tuple(moves), time)
