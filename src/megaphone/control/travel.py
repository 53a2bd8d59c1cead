"""Whether the bins of a migration can travel, by what their workers say.

An inquiry asks every worker that has some of them, operator by operator, until all is known. It only says what is to be
asked and what has been found out: who carries it out decides how long that may take.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from megaphone.bins import WorkerId
from megaphone.configuration import Assignment, Move


@dataclass(frozen=True, slots=True)
class Stuck:
    """A bin that cannot travel, and why: its state cannot be turned into bytes."""

    bin: int
    reason: str


@dataclass(frozen=True, slots=True)
class Question:
    """Which of these bins of an operator cannot leave a worker?"""

    worker: WorkerId
    operator: str
    bins: Sequence[int]


class Inquiry:
    """Finds out which of the bins that some moves are about cannot travel.

    >>> here, there = Assignment([0] * 4), Assignment([0, 1, 0, 1])
    >>> inquiry = Inquiry(here.moves_to(there), here, ["count"])
    >>> (question,) = inquiry.questions
    >>> inquiry.hear(question, [], unknown=[3])
    Question(worker=0, operator='count', bins=[3])
    >>> inquiry.hear(_, [Stuck(3, "TypeError: cannot pickle 'generator' object")], unknown=[])
    >>> inquiry.obstacle
    "state of operator count in bin 3 on worker 0 cannot travel: TypeError: cannot pickle 'generator' object; keep \
only what can be pickled"
    """

    def __init__(self, moves: Iterable[Move], residence: Assignment, operators: Iterable[str]) -> None:
        """Ask for each bin where it is now: a plan may move it more than once."""
        bins = np.unique(np.fromiter((move.bin for move in moves), np.int64))
        owners = residence.owners[bins]
        self.questions = [
            Question(WorkerId(int(worker)), operator, bins[owners == worker].tolist())
            for worker in np.unique(owners)
            for operator in operators
        ]
        """The first ones."""
        self.unknown = sum(len(question.bins) for question in self.questions)
        """States of which it is not known."""
        self._stuck: list[tuple[Question, Stuck]] = []

    def hear(self, question: Question, stuck: Iterable[Stuck], unknown: Sequence[int]) -> Question | None:
        """What a worker has answered; what it is to be asked next, if anything."""
        self._stuck += [(question, one) for one in stuck]
        self.unknown -= len(question.bins) - len(unknown)
        return None if self._stuck or not unknown else replace(question, bins=unknown)

    @property
    def obstacle(self) -> str | None:
        """Why the moves cannot all happen, as far as is known."""
        if not self._stuck:
            return None
        question, first = self._stuck[0]
        return cannot_travel(question.operator, question.worker, first)


def cannot_travel(operator: str, worker: WorkerId, stuck: Stuck) -> str:
    """The sentence about a bin that cannot leave a worker."""
    return (
        f"state of operator {operator} in bin {stuck.bin} on worker {worker} cannot travel: {stuck.reason}; "
        "keep only what can be pickled"
    )
