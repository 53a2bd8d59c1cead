"""An operator's definition: what it reads, how it hashes, what it folds. No engine in it.

Neighbours: the engines build these from what users call, workers receive them.  Paper: the operator interfaces.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa

from megaphone.dataflow.clock import is_clock, span
from megaphone.dataflow.exchange import BIN, HASH, TIME
from megaphone.dataflow.folds import BinFold, Fold, KeyFold, VectorFold, is_ordered, is_vectorised
from megaphone.dataflow.keys import check_keys
from megaphone.dataflow.records import Times
from megaphone.dataflow.rows import refuse_twins
from megaphone.errors import PlanError
from megaphone.progress import END

State = Callable[[], Any] | None
"""How the first state of a key or bin is made."""


@dataclass(frozen=True, slots=True)
class Input:
    """One input: its columns, the key columns (none if hashed by the user), and where its time comes from."""

    schema: pa.Schema
    keys: tuple[str, ...]
    time: str | None = None
    """Column that holds the time; None means the epoch."""
    lateness: int = 0
    """How far behind the largest time seen a record may still come, in the unit of that column; or a timedelta."""

    def __post_init__(self) -> None:
        refuse_twins(self.schema, "the input")
        for name in self.keys:
            if name not in self.schema.names:
                raise PlanError(f"no key column '{name}'; the input has {', '.join(self.schema.names)}")
        check_keys(self.schema, self.keys)
        if self.time is not None and self.time not in self.schema.names:
            raise PlanError(f"no time column '{self.time}'; the input has {', '.join(self.schema.names)}")
        for name in (BIN, HASH, TIME):
            if name in self.schema.names:
                raise PlanError(f"the input has a column '{name}', a name that Megaphone uses itself; rename it")
        if self.clock is not None and not is_clock(self.clock):
            raise PlanError(f"time column '{self.time}' is of type {self.clock}; choose long or timestamp")
        # Frozen, but what was given may be a timedelta, or a number of NumPy's.
        object.__setattr__(self, "lateness", span(self.lateness, self.time, self.clock))

    @property
    def clock(self) -> pa.DataType | None:
        """What the time column counts; None if it is epochs."""
        return None if self.time is None else self.schema.field(self.time).type

    @property
    def zoned(self) -> bool | None:
        """Have its times a time zone? None if they are no timestamps."""
        clock = self.clock
        return clock.tz is not None if clock is not None and pa.types.is_timestamp(clock) else None

    def times(self, column: pa.Array) -> Times:
        """The times in this input's time column.

        >>> Input(pa.schema([("at", pa.int64())]), keys=(), time="at").times(pa.array([5, None]))
        Traceback (most recent call last):
        megaphone.errors.PlanError: null in the time column 'at'; filter such rows out before the operator
        """
        if column.null_count:
            raise PlanError(f"null in the time column '{self.time}'; filter such rows out before the operator")
        times: Times = column.cast(pa.int64()).to_numpy()
        # The frontier would follow such a record to the end of time, and all others would be late.
        if len(times) and times.max() == END:
            raise PlanError(f"time {END} in the time column '{self.time}'; choose times before it")
        return times


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """A stateful operator: its name, its inputs, its fold."""

    name: str
    inputs: tuple[Input, ...]
    fold: Fold
    workers: int | None = None
    """If it is native, without bins: how many workers share its records, for ever."""

    def __post_init__(self) -> None:
        if len({input.time is None for input in self.inputs}) > 1:
            raise PlanError(f"operator {self.name} has one input by epoch and one by column; choose one for both")
        if len({input.zoned for input in self.inputs} - {None}) > 1:
            fact = f"operator {self.name} has times with a zone at one input, and without at the other"
            raise PlanError(f"{fact}; cast one of the columns")

    def without_fold(self) -> "OperatorSpec":
        """As the tasks of a stream carry it: they route and feed, and only workers fold."""
        return replace(self, fold=cast(Fold, None))

    @property
    def by_epoch(self) -> bool:
        """Is a record's time its epoch?"""
        return self.inputs[0].time is None

    @property
    def zoned(self) -> bool | None:
        """Have its times a time zone? None if they are no timestamps."""
        return next((input.zoned for input in self.inputs if input.zoned is not None), None)

    @property
    def unit(self) -> str:
        """What a step of its time is: an epoch, a microsecond, or whatever the numbers in its column mean."""
        clock = self.inputs[0].clock
        if clock is None:
            return "epoch"
        return "microsecond" if pa.types.is_timestamp(clock) else "number"


def check_alike(name: str, inputs: Sequence[Input]) -> None:
    """Refuse inputs whose keys are of different types: equal ones would have different hashes."""
    kinds = [", ".join(str(input.schema.field(key).type) for key in input.keys) for input in inputs]
    if len(set(kinds)) > 1:
        raise PlanError(f"operator {name} has inputs keyed by {' and by '.join(kinds)}; cast one of them")


def key_operator(
    name: str, input: Input, fold: Callable[..., Any], output: pa.Schema, state: State = None
) -> OperatorSpec:
    """A state machine: `fold(key, val, state)`, or vectorised."""
    if is_vectorised(fold):
        return bin_operator(name, (input,), fold, output, state or dict)
    return OperatorSpec(name, (input,), KeyFold(name, (input.schema,), output, input.keys, fold, state))


def bin_operator(
    name: str, inputs: Sequence[Input], fold: Callable[..., Any], output: pa.Schema, state: Callable[..., Any]
) -> OperatorSpec:
    """A unary or binary operator: `fold(time, data, ..., state, notificator, ...)`, or vectorised."""
    schemas = tuple(input.schema for input in inputs)
    if is_vectorised(fold):
        return OperatorSpec(name, tuple(inputs), VectorFold(name, schemas, output, state, fold, is_ordered(fold)))
    clocks = tuple(input.clock for input in inputs)
    return OperatorSpec(name, tuple(inputs), BinFold(name, schemas, output, state, fold, clocks))
