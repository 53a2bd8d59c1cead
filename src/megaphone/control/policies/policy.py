"""Policy: turns what it sees into a wish, with a reason in words. A wish may be refused, like anybody's.

Neighbours: observation.py is what it sees; balancer.py and scaler.py are two; the engine's follower asks them.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import Protocol

from megaphone.configuration import Assignment
from megaphone.control.policies.observation import Observation
from megaphone.printing import printable

MOST = 1000
"""Decisions that are remembered."""


@dataclass(frozen=True, slots=True)
class Migrate:
    """Have the bins where `target` says."""

    target: Assignment
    reason: str


@dataclass(frozen=True, slots=True)
class Rescale:
    """Go on with so many workers."""

    workers: int
    reason: str


Wish = Migrate | Rescale


class Policy(Protocol):
    """Asked every few seconds; says what it wishes, if anything."""

    def decide(self, seen: Observation) -> Wish | None:
        """What should be otherwise, by what is seen now."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy decided, and why: to act if there is a wish, else to leave things, so many times in a row."""

    at_s: float
    epoch: int
    reason: str
    wish: Wish | None = None
    times: int = 1

    def __str__(self) -> str:
        again = f" ({self.times} times)" if self.times > 1 else ""
        return printable(f"epoch {self.epoch}: {'' if self.wish is None else 'acts: '}{self.reason}{again}")


class Journal:
    """A policy's decisions, oldest first. Of those in a row that left things as they are, the last."""

    def __init__(self) -> None:
        """Nothing is decided yet."""
        self._decisions: deque[Decision] = deque(maxlen=MOST)

    @property
    def decisions(self) -> list[Decision]:
        """All that are remembered."""
        return list(self._decisions)

    def note(self, seen: Observation, outcome: Wish | str) -> Wish | None:
        """A wish, or the reason for none; gives the wish."""
        if not isinstance(outcome, str):
            self._decisions.append(Decision(seen.at_s, seen.epoch, outcome.reason, outcome))
            return outcome
        decision = Decision(seen.at_s, seen.epoch, outcome)
        if self._decisions and self._decisions[-1].wish is None:
            decision = replace(decision, times=self._decisions.pop().times + 1)
        self._decisions.append(decision)
        return None
