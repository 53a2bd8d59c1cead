"""Native operators: what a worker would run if its state never had to move.

Hand-written logic, one instance per worker: no bins, no configuration, no notificator; records come in their order of
arrival, and whoever must wait for the frontier does so by itself. Here to measure what being migrateable costs.
Neighbours: hosting.py is what it does without.  Paper: the evaluation's native implementations.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from megaphone.bins import BinId, WorkerId
from megaphone.dataflow.columns import conform
from megaphone.dataflow.folds import Applied, Bounds, Fold, States, _Base
from megaphone.dataflow.hosting import Host, Outcome
from megaphone.dataflow.records import Records
from megaphone.dataflow.stopwatch import Stopwatch
from megaphone.progress import Frontier


class Logic(Protocol):
    """A worker's share of a hand-written operator: it is its own state."""

    @property
    def step(self) -> Callable[..., Any]:
        """`step(*inputs, bound=...)`: take in what has come; everything before `bound` has. Gives output columns."""


@dataclass(frozen=True, slots=True)
class NativeFold(_Base):
    """Makes a worker's logic, and steps it."""

    make: Callable[[], Logic]

    def new_states(self, bins: int) -> States:
        """The logic of a worker that has seen nothing."""
        return States(self.make)

    def apply(
        self, due: tuple[Records, ...], states: States, bounds: Bounds, worker: WorkerId, watch: Stopwatch
    ) -> Applied:
        """One step."""
        try:
            output = conform(states[BinId(worker)].step(*due, bound=int(bounds[worker])), self.output)
        except Exception as error:
            raise self._failed("a step", worker) from error
        return output, ()


class NativeHost(Host):
    """One worker's logic, kept where a bin with the worker's number would be."""

    def advance(self, frontier: Frontier) -> Outcome:
        """Hand everything over as it came."""
        fresh = tuple(Records.concat(self._taken(input), schema) for input, schema in enumerate(self.fold.inputs))
        self.touched[self.worker] = True
        self.frontier = frontier
        many = sum(map(len, fresh))
        self.applied[self.worker] += many
        bounds = np.full(len(self.resident), frontier.bound)
        output, _ = self.fold.apply(fresh, self.states, bounds, self.worker, self.watch)
        return Outcome(output, many, 0)


def host_for(worker: WorkerId, fold: Fold, bins: int, owned: Iterable[int] = ()) -> Host:
    """The host that a fold asks for."""
    return (NativeHost if isinstance(fold, NativeFold) else Host)(worker, fold, bins, owned)


class Waiting:
    """Records that came before the frontier passed them.

    >>> import pyarrow as pa
    >>> waiting, rows = Waiting(), pa.record_batch({"n": [1, 2, 3]})
    >>> records = Records(np.zeros(3, np.uint32), np.array([5, 9, 7]), rows)
    >>> waiting.due(records, 8).data["n"].to_pylist(), waiting.due(records.slice(0, 0), 10).data["n"].to_pylist()
    ([1, 3], [2])
    """

    def __init__(self) -> None:
        """Nothing waits."""
        self._early: Records | None = None

    def due(self, fresh: Records, bound: int) -> Records:
        """What the frontier has passed, of the fresh and of what waited; the rest waits on."""
        every = Records.concat([self._early, fresh], fresh.data.schema) if self._early else fresh
        passed = every.times < bound
        self._early = every.where(~passed)
        return every.where(passed)
