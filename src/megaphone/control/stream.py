"""The control stream into the operators: which reconfigurations are to come, and which may happen now.

A reconfiguration is issued at a time no record has been applied at; it happens when the operator's output frontier
has reached that time. Until then its bins are held where they are.
From: controller.py.  To: configuration.py, and an operator's moves.  Paper: the migration mechanism.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from megaphone.bins import BinId
from megaphone.configuration import Move
from megaphone.progress import Frontier, Time


@dataclass(frozen=True, slots=True)
class Reconfiguration:
    """Moves that happen at a time."""

    time: Time
    moves: tuple[Move, ...]


class Pending:
    """One operator's reconfigurations that have been issued and have not happened."""

    def __init__(self) -> None:
        """Start with none."""
        self._queue: deque[Reconfiguration] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Reconfiguration]:
        return iter(self._queue)

    @property
    def next_time(self) -> Time | None:
        """When the first of them is to happen."""
        return self._queue[0].time if self._queue else None

    def add(self, reconfiguration: Reconfiguration) -> None:
        """Append one; times do not decrease."""
        self._queue.append(reconfiguration)

    def take_back(self) -> Reconfiguration:
        """The last one is not to happen any more."""
        return self._queue.pop()

    def on_output_frontier(self, frontier: Frontier) -> Iterator[Move]:
        """Let every reconfiguration happen that the operator has caught up with.

        It is S's output frontier that counts, not F's input: only then is every earlier record applied.
        """
        happened: set[BinId] = set()
        while self._queue and not frontier.less_than(self._queue[0].time):
            # A bin moves once an epoch: its next owner must have it before it can give it away.
            if happened & {move.bin for move in self._queue[0].moves}:
                return
            happened |= {move.bin for move in self._queue[0].moves}
            yield from self._queue.popleft().moves

    def holds(self) -> dict[BinId, Time]:
        """For each bin that is to leave: the first time its present owner may not apply."""
        first: dict[BinId, Time] = {}
        for reconfiguration in self._queue:
            for move in reconfiguration.moves:
                first.setdefault(move.bin, reconfiguration.time)
        return first
