"""Fakes and checks, for our tests and users'.

`check_strategy` and `check_operator` state a contract once, for every strategy and every operator. `recompute` says
what an operator must give, in the plainest way: it shares no code with the engines, so it also catches what they share.
Neighbours: engine/local.py runs what is checked here.  Paper: the properties Correctness and Migration.
"""

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from megaphone.configuration import Assignment
from megaphone.control.plan import Step
from megaphone.control.strategies import Strategy, make_plan
from megaphone.dataflow.operators import OperatorSpec
from megaphone.dataflow.records import Records
from megaphone.dataflow.rows import rows_to_batch
from megaphone.engine.local import LocalEngine

Timed = tuple[int, Any]
"""A time, and what happened then: a record or an output."""


def check_strategy(strategy: Strategy) -> None:
    """Hold a strategy to its contract on some small, some skewed and some random migrations.

    >>> from megaphone.control.strategies import fluid
    >>> check_strategy(fluid)
    >>> check_strategy(lambda current, target: iter([Step(())]))
    Traceback (most recent call last):
    AssertionError: step 0 from Assignment([0, 1]) to Assignment([0, 1]) moves nothing
    """
    for current, target in _migrations():
        steps = list(strategy(current, target))
        check_steps(current, target, steps)
        again = list(strategy(current, target))
        _insist(steps == again, f"from {current} to {target}: other steps when asked again")


def check_steps(current: Assignment, target: Assignment, steps: Iterable[Step]) -> None:
    """Each bin that must move is moved once, by its owner, to its target; no other bin is touched."""
    way = f"from {current} to {target}"
    left = {move.bin: move for move in current.moves_to(target)}
    for number, step in enumerate(steps):
        _insist(bool(step.moves), f"step {number} {way} moves nothing")
        for move in step.moves:
            _insist(left.pop(move.bin, None) == move, f"step {number} {way}: {move} is wrong, or there twice")
    _insist(not left, f"{way}: {' '.join(map(str, left.values()))} never happened")


def check_operator(spec: OperatorSpec, epochs: Sequence[Sequence[Sequence[Any]]], bins: int = 8) -> None:
    """Hold an operator to its contract: state that moves every epoch gives the outputs of state that stays.

    `epochs` has the rows of each input, epoch by epoch. Outputs may come in another order.

    >>> from megaphone.dataflow.operators import Input, key_operator
    >>> words = Input(pa.schema([("word", pa.string())]), keys=("word",))
    >>> count = lambda word, _, n: ((n or 0) + 1, [(word, (n or 0) + 1)])
    >>> spec = key_operator("count", words, count, pa.schema([("word", pa.string()), ("n", pa.int64())]), dict)
    >>> check_operator(spec, [[[("a",), ("b",)]], [[("a",)]]])
    """
    stayed, moved = _outputs(spec, epochs, bins, _stay), _outputs(spec, epochs, bins, _move_all)
    _insist(stayed == moved, f"lost by moving: {stayed - moved}; gained: {moved - stayed}")


def recompute(
    fold: Callable[..., Iterable[Any] | None],
    inputs: Sequence[Iterable[Timed]],
    exchanges: Sequence[Callable[[Any], Hashable]],
    state: Callable[[], Any] = dict,
) -> list[Timed]:
    """The (time, output) pairs that a unary or binary operator must give, by one scan of each bin for each time.

    `exchanges` names the bin of a record, an input each. Quadratic, so that it can be seen to be right.

    >>> def echo(time, data, state, notificator):
    ...     for word, echoes in data:
    ...         if echoes:
    ...             notificator.notify_at(time + 10, (word, echoes - 1))
    ...         yield word
    >>> recompute(echo, [[(2, ("b", 0)), (1, ("a", 2))]], [lambda record: record[0]])
    [(2, 'b'), (1, 'a'), (11, 'a'), (21, 'a')]
    """
    bins: dict[Hashable, list[tuple[int, int, Any]]] = {}
    for input, (records, exchange) in enumerate(zip(inputs, exchanges, strict=True)):
        for time, record in records:
            bins.setdefault(exchange(record), []).append((time, input, record))
    return [output for waiting in bins.values() for output in _recompute_bin(fold, waiting, len(inputs), state())]


def recompute_machine(fold: Callable[[Any, Any, Any], Any], records: Iterable[tuple[int, Any, Any]]) -> list[Timed]:
    """The (time, output) pairs that a state machine must give for (time, key, val) records.

    >>> count = lambda word, _, n: ((n or 0) + 1, [(word, (n or 0) + 1)])
    >>> recompute_machine(count, [(2, "a", None), (1, "b", None), (1, "a", None)])
    [(1, ('b', 1)), (1, ('a', 1)), (2, ('a', 2))]
    """
    states: dict[Any, Any] = {}
    outputs: list[Timed] = []
    for time, key, value in sorted(records, key=lambda record: record[0]):
        states[key], given = fold(key, value, states.get(key))
        outputs += [(time, output) for output in given]
    return outputs


def make_records(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> Records:
    """Records from (bin, time, column, column, ...) rows.

    >>> make_records([(3, 10, "a"), (0, 12, "b")], pa.schema([("word", pa.string())])).times.tolist()
    [10, 12]
    """
    rows = list(rows)
    bins, times = np.array([row[0] for row in rows], np.uint32), np.array([row[1] for row in rows], np.int64)
    return Records(bins, times, rows_to_batch([tuple(row[2:]) for row in rows], schema))


@dataclass(frozen=True, slots=True)
class _Diary:
    """The oracle's notificator: a list, and the input whose records it takes."""

    waiting: list[tuple[int, int, Any]]
    input: int

    def notify_at(self, time: int, record: Any) -> None:
        self.waiting.append((time, self.input, record))


def _recompute_bin(
    fold: Callable[..., Iterable[Any] | None], waiting: list[tuple[int, int, Any]], inputs: int, state: Any
) -> Iterator[Timed]:
    diaries = [_Diary(waiting, input) for input in range(inputs)]
    while waiting:
        now = min(time for time, _, _ in waiting)
        data = [[record for time, of, record in waiting if (time, of) == (now, input)] for input in range(inputs)]
        waiting[:] = [entry for entry in waiting if entry[0] != now]
        for output in fold(now, *data, state, *diaries) or ():
            yield now, output


def _insist(held: bool, otherwise: str) -> None:
    # Not `assert`: a check must check under `python -O` too.
    if not held:
        raise AssertionError(otherwise)


def _migrations() -> Iterator[tuple[Assignment, Assignment]]:
    chance = random.Random(20190820)
    yield Assignment([0, 1]), Assignment([0, 1])
    yield Assignment([0, 0, 0, 0]), Assignment([1, 1, 1, 1])
    yield Assignment([0, 1, 0, 1]), Assignment([1, 0, 1, 0])
    yield Assignment.round_robin(bins=64, workers=2), Assignment.round_robin(bins=64, workers=5)
    for workers in (1, 2, 3, 8, 30):
        for bins in (2, 16, 128):
            current, target = ([chance.randrange(workers) for _ in range(bins)] for _ in range(2))
            yield Assignment(current), Assignment(target)


def _outputs(
    spec: OperatorSpec, epochs: Sequence[Sequence[Sequence[Any]]], bins: int, before: Callable[[LocalEngine], None]
) -> Counter[str]:
    """All outputs of a run, as text, since a row need not be hashable."""
    engine = LocalEngine(spec, workers=3, bins=bins)
    outputs: Counter[str] = Counter()
    for inputs in epochs:
        before(engine)
        outputs.update(map(repr, engine.epoch(*inputs)))
    outputs.update(map(repr, engine.close()))
    return outputs


def _stay(engine: LocalEngine) -> None:
    """Move nothing."""


def _move_all(engine: LocalEngine) -> None:
    expected = engine.epochs.controller.expected
    engine.migrate(make_plan(expected, Assignment((expected.owners + 1) % 3), "all_at_once"))
