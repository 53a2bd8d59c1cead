"""Step and plan: moves in the order in which they happen.

A step is a set of moves at one time; a plan is steps, each issued when the one before has completed. A plan is data:
it can be checked, printed, saved and read back.  Neighbours: strategies.py makes them, controller.py follows them.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from megaphone.bins import BinId, WorkerId
from megaphone.configuration import Assignment, Move
from megaphone.errors import PlanError
from megaphone.progress import BEGIN, END, Time

FORMAT = 1


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
    """

    steps: int
    bytes: int
    seconds: float
    measured: float
    """The part of the bins whose size was measured; the others are assumed to be as large as those."""

    def __str__(self) -> str:
        amount = f"{self.bytes / 1e6:.1f} MB" if self.bytes >= 1e5 else f"{self.bytes / 1e3:.1f} kB"
        size = f"about {amount}" if self.measured else "an unknown number of bytes"
        return f"{size} in {self.steps} steps and {self.seconds:.1f} s"


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
    def moves(self) -> tuple[Move, ...]:
        """All moves of all steps."""
        return tuple(move for step in self.steps for move in step.moves)

    def check(self, current: Assignment, workers: int) -> Assignment:
        """Refuse what cannot be followed from `current`; return where the plan ends."""
        if self.gap < 0:
            raise PlanError(f"a gap of {self.gap} epochs; choose 0 or more")
        if self.latency_target is not None and not 0 < self.latency_target < float("inf"):
            raise PlanError(f"a latency target of {self.latency_target} s; choose more than 0")
        if self.bins != len(current):
            raise PlanError(f"plan is for {self.bins} bins, the operators have {len(current)}")
        last = BEGIN
        owners = current.owners.tolist()
        for number, step in enumerate(self.steps):
            _check_time(number, step.time, last)
            last = last if step.time is None else step.time
            _check_step(step, owners, workers)
        return Assignment(owners)

    def to_json(self) -> str:
        """The plan as text that `from_json` reads back."""
        steps = [
            {"time": step.time, "moves": [[move.bin, move.source, move.target] for move in step.moves]}
            for step in self.steps
        ]
        head = {"megaphone_plan": FORMAT, "bins": self.bins, "gap": self.gap, "strategy": self.strategy}
        target = {} if self.latency_target is None else {"latency_target": self.latency_target}
        return json.dumps({**head, **target, "steps": steps})

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """A plan from its text; what is not one is refused with the reason."""
        try:
            raw = json.loads(text)
        except json.JSONDecodeError as error:
            raise PlanError(f"not a plan: {error}") from None
        if not isinstance(raw, dict) or raw.get("megaphone_plan") != FORMAT:
            raise PlanError(f'not a plan of format {FORMAT}: no "megaphone_plan": {FORMAT} in it')
        try:
            steps = tuple(_read_step(step) for step in raw["steps"])
            target = raw.get("latency_target")
            return cls(
                int(raw["bins"]),
                steps,
                int(raw.get("gap", 0)),
                str(raw.get("strategy", "by hand")),
                None if target is None else float(target),
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise PlanError(f"malformed plan: {type(error).__name__} {error}") from None

    def save(self, path: str | Path) -> None:
        """Write the plan to a file."""
        Path(path).write_text(self.to_json() + "\n")

    @classmethod
    def read(cls, path: str | Path) -> "Plan":
        """Read a plan from a file."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise PlanError(f"not a plan: {error}") from None

    def __str__(self) -> str:
        head = f"{self.strategy}: {len(self.moves)} bins"
        if self.latency_target is None:
            head += f" in {len(self.steps)} steps"
        else:
            head += f", records within {self.latency_target:g} s"
        head += f", {self.gap} epochs apart" if self.gap else ""
        head += f"; {self.estimate}" if self.estimate else ""
        return "\n".join([head, *(f"  step {number}: {step}" for number, step in enumerate(self.steps))])


def _check_time(number: int, time: Time | None, last: Time) -> None:
    if time is not None and not BEGIN <= time < END:
        raise PlanError(f"step {number} is at time {time}; choose one from {BEGIN} to {END - 1}")
    if time is not None and time < last:
        raise PlanError(f"step {number} is at time {time}, behind the step before it, at {last}")


def _check_step(step: Step, owners: list[WorkerId], workers: int) -> None:
    """Check one step and give the bins their new owners."""
    seen: dict[BinId, Move] = {}
    for move in step.moves:
        if not 0 <= move.bin < len(owners):
            raise PlanError(f"bin {move.bin} of {len(owners)}; choose 0 to {len(owners) - 1}")
        if not 0 <= move.target < workers:
            raise PlanError(
                f"bin {move.bin} would go to worker {move.target}, but there are {workers} workers; "
                f"choose 0 to {workers - 1}"
            )
        if move.bin in seen:
            raise PlanError(
                f"bin {move.bin} would go to workers {seen[move.bin].target} and {move.target} in one step; "
                "choose one, or two steps"
            )
        if owners[move.bin] != move.source:
            raise PlanError(f"bin {move.bin} is on worker {owners[move.bin]} by then, not on worker {move.source}")
        if move.target == move.source:
            raise PlanError(f"bin {move.bin} is on worker {move.source} already; leave the move out")
        seen[move.bin] = move
        owners[move.bin] = move.target


def _read_step(raw: Any) -> Step:
    time = raw.get("time")
    moves = tuple(Move(BinId(int(b)), WorkerId(int(s)), WorkerId(int(t))) for b, s, t in raw["moves"])
    return Step(moves, None if time is None else Time(int(time)))


def step_to(current: Assignment, owners: Iterable[tuple[int, int]], time: Time | None = None) -> Step:
    """The step that gives bins new owners; bins that are there already stay out of it."""
    moves = []
    for bin, worker in owners:
        if not 0 <= bin < len(current):
            raise PlanError(f"bin {bin} of {len(current)}; choose 0 to {len(current) - 1}")
        if current[BinId(bin)] != worker:
            moves.append(Move(BinId(bin), current[BinId(bin)], WorkerId(worker)))
    return Step(tuple(moves), time)
