"""Rounds: what happens to the query, ten migrations and two kills at a time.

A round begins and ends with two workers that share the bins evenly. Worker 0 is never killed: what grows in a worker
grows there.
"""

import random
import time
from collections.abc import Callable, Iterator

from megaphone.harness.soak.job import BINS
from megaphone.harness.soak.query import Soaked

Action = Callable[[Soaked], None]

ROUND_S = 60.0
"""How long a round takes where there is time."""


def actions(chance: random.Random, silent: bool) -> Iterator[Action]:
    """A round: every verb, every strategy; one of the kills falls into a migration."""
    yield lambda query: query.wait(query.do("rescale", workers=4, strategy="batched"))
    yield lambda query: _killed_while_moving(query, 1 + chance.randrange(3))
    yield lambda query: query.wait(query.do("drain", who=chance.randrange(4), strategy="optimized"))
    yield lambda query: query.wait(query.do("rebalance", by="bins", strategy="all_at_once"))
    yield lambda query: query.wait(query.do("rescale", workers=3, strategy="fluid"))
    yield _paused
    yield lambda query: query.silence(1) if silent else query.kill(1)
    yield _cancelled
    yield lambda query: query.wait(query.do("rescale", workers=2))
    yield lambda query: query.wait(query.do("migrate", target={"0": 1, "1": 0}, latency_target=0.5))
    yield lambda query: query.wait(query.do("migrate", target=[bin % 2 for bin in range(BINS)], strategy="batched"))


def rounds(query: Soaked, count: int, seconds: float, chance: random.Random) -> None:
    """So many rounds, spread over some time; they take longer if they must."""
    todo = [action for number in range(count) for action in actions(chance, silent=number == 0)]
    begin = time.monotonic()
    for number, action in enumerate(todo):
        time.sleep(max(0.0, begin + seconds * number / len(todo) - time.monotonic()))
        action(query)
    query.settle()


def _turned(query: Soaked) -> list[int]:
    """Every bin on the next of the workers that are there."""
    workers = sorted(query.workers())
    return [workers[(bin + 1) % len(workers)] for bin in range(BINS)]


def _killed_while_moving(query: Soaked, worker: int) -> None:
    number = query.do("migrate", target=_turned(query), strategy="fluid")
    query.kill(worker)
    query.wait(number)


def _paused(query: Soaked) -> None:
    number = query.do("migrate", target=[0] * BINS, strategy="fluid")
    query.do("pause")
    query.pass_epochs(3)
    query.do("resume")
    query.wait(number)


def _cancelled(query: Soaked) -> None:
    number = query.do("migrate", target=_turned(query), strategy="fluid")
    query.do("cancel")
    query.wait(number)
