"""The manifest: what of a query must be the same whenever it goes on from its checkpoint.

A bin's number comes from the hash of the key columns, and records wait and are logged with their columns: who changes
these would look for state where it is not. A fold's code and its outputs may change.
Neighbours: store.py keeps it, the engine compares.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from megaphone.dataflow.folds import KeyFold
from megaphone.dataflow.operators import Input, OperatorSpec
from megaphone.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Shape:
    """One operator, as far as its state depends on it."""

    state: str
    """Per key, or per bin."""
    clock: str
    """The epoch, or a column."""
    keys: tuple[str, ...]
    """For each input, what its records are hashed by."""
    columns: tuple[str, ...]
    """For each input, its columns with their types."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a control had when its checkpoint was begun, and how many workers were last asked for."""

    bins: int
    workers: int
    operators: dict[str, Shape]


def shape_of(spec: OperatorSpec, exchanges: tuple[str, ...]) -> Shape:
    """What must not change of an operator; `exchanges` says how each input is hashed."""
    columns = tuple(", ".join(f"{field.name} {field.type}" for field in input.schema) for input in spec.inputs)
    return Shape(
        "per key" if isinstance(spec.fold, KeyFold) else "per bin",
        "epoch" if spec.by_epoch else f"column {', '.join(map(_clock, spec.inputs))}",
        exchanges,
        columns,
    )


def _clock(input: Input) -> str:
    """A time column. Earlier versions read one without a zone in that of the session: their times were others."""
    kind = input.clock
    return f"{input.time} as written" if kind == pa.timestamp("us") else str(input.time)


def check(before: Manifest, now: Manifest, where: str) -> None:
    """Refuse to go on with state that does not fit; say everything that differs."""
    if differences := list(_differences(before, now)):
        raise CheckpointError(
            f"the query does not fit its checkpoint {where}: {'; '.join(differences)}; {_remedy(before, now)}"
            "undo the change, or start with a new checkpoint location, without that state"
        )


def _remedy(before: Manifest, now: Manifest) -> str:
    """What to do when operators have other names than in the checkpoint."""
    if before.operators.keys() == now.operators.keys():
        return ""
    return (
        "operators without a name are numbered as they are built: if they were built twice, as when a notebook cell is "
        "run again, make a new Control and build them once; otherwise "
    )


def _differences(before: Manifest, now: Manifest) -> Iterator[str]:
    if before.bins != now.bins:
        yield f"the checkpoint has {before.bins} bins, the control {now.bins}"
    for name in sorted(before.operators.keys() - now.operators.keys()):
        yield f"operator {name} is in the checkpoint and not in the query"
    for name in sorted(now.operators.keys() - before.operators.keys()):
        yield f"operator {name} is in the query and not in the checkpoint"
    for name in sorted(before.operators.keys() & now.operators.keys()):
        yield from _changes(name, before.operators, now.operators)


def _changes(name: str, before: Mapping[str, Shape], now: Mapping[str, Shape]) -> Iterator[str]:
    was, is_now = before[name], now[name]
    for what, old, new in (
        ("is keyed by", was.keys, is_now.keys),
        ("reads", was.columns, is_now.columns),
        ("tells time by", (was.clock,), (is_now.clock,)),
        ("keeps its state", (was.state,), (is_now.state,)),
    ):
        if old != new:
            yield f"operator {name} {what} {' and '.join(old)} in the checkpoint, {' and '.join(new)} in the query"
