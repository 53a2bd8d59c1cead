"""Folds: the user's logic at three depths, one interface to the host.

Per key, per bin and time, and vectorised over many bins and times. Within a bin, records meet the fold in time order.
Neighbours: hosting.py calls `apply` with what is due.  Paper: the operator interfaces.
"""

import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from heapq import heappop, heappush
from typing import Any, Protocol, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from megaphone.bins import BinId, WorkerId
from megaphone.dataflow.builder import RowBuilder, rows_in, state_and_rows
from megaphone.dataflow.clock import moment
from megaphone.dataflow.columns import conform, conform_records, null_in
from megaphone.dataflow.joint import Joint, is_joint
from megaphone.dataflow.keys import identified, key_of
from megaphone.dataflow.misfit import Misfit
from megaphone.dataflow.records import Records, runs
from megaphone.dataflow.rows import (
    columns_to_rows,
    columns_to_values,
    no_rows,
    refuse_inner_twins,
    refuse_twins,
    rows_again,
)
from megaphone.dataflow.stopwatch import Stopwatch
from megaphone.errors import FoldError
from megaphone.progress import END, Frontier, Time

AnyFold = Callable[..., Any]
Seen = TypeVar("Seen")

RAISED = (Exception, SystemExit, GeneratorExit)
"""What a fold may raise: its process would end, or the error be lost, if it were not caught. Ctrl-C is the user's."""

Applied = tuple[pa.RecordBatch, tuple[Records, ...]]

Bounds = npt.NDArray[np.int64]
"""For each bin the first time that may not be applied yet: the frontier, or earlier if the bin is to leave."""


class States(dict[BinId, Any]):
    """The state of each bin that has one; asking for another makes a new one.

    >>> states = States(list)
    >>> states[BinId(3)].append("a"); states
    {3: ['a']}
    """

    def __init__(self, new_state: Callable[[], Any]) -> None:
        """Start with no bin; `new_state` makes the state of a blank one."""
        super().__init__()
        self._new_state = new_state

    def __missing__(self, bin: BinId) -> Any:
        state = self[bin] = self._new_state()
        return state


class Fold(Protocol):
    """What a host needs of an operator: how to make a state, and how to apply records to it."""

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        """The columns of each input."""

    @property
    def no_output(self) -> pa.RecordBatch:
        """An output without rows."""

    @property
    def ordered(self) -> bool:
        """Must records come sorted?"""

    def new_states(self, bins: int) -> States | Joint:
        """The states of a worker that has none yet, of so many bins."""

    def apply(
        self, due: tuple[Records, ...], states: Any, bounds: Bounds, worker: WorkerId, watch: Stopwatch
    ) -> Applied:
        """Apply due records, sorted by bin and time or not; give output rows and, per input, post-dated ones.

        A fold that goes bin by bin tells the watch when it is through with one.
        """


@dataclass(frozen=True, slots=True)
class _Base:
    name: str
    inputs: tuple[pa.Schema, ...]
    output: pa.Schema

    def __post_init__(self) -> None:
        refuse_twins(self.output, self._its("output"))

    @property
    def ordered(self) -> bool:
        """Records come sorted."""
        return True

    @property
    def no_output(self) -> pa.RecordBatch:
        """An output without rows."""
        return no_rows(self.output)

    def _its(self, part: str) -> str:
        return f"the {part} of operator {self.name}"

    def _failed(self, where: str, worker: WorkerId) -> FoldError:
        cause = sys.exception()
        if isinstance(cause, Misfit):
            # Found by us, behind the fold: a traceback would be of ours.
            return self._misfit(f"in {where} on worker {worker}", cause)
        error = traceback.format_exc()
        last = error.strip().splitlines()[-1]
        return FoldError(f"fold of operator {self.name} failed in {where} on worker {worker}: {last}\n{error}")

    def _allowed(self, output: pa.RecordBatch, worker: WorkerId) -> pa.RecordBatch:
        """The output, if it has no null that its schema forbids: Spark does not look, and fails or believes it."""
        column = null_in(output)
        if column is None:
            return output
        raise self._misfit(f"on worker {worker}", Misfit(f"null in the column {column}, which is declared NOT NULL"))

    def _misfit(self, where: str, misfit: Misfit) -> FoldError:
        return FoldError(f"fold of operator {self.name} gave a misfit {where}: {misfit}")


@dataclass(frozen=True, slots=True)
class _RowFold(_Base):
    """A fold that meets records as rows."""

    def __post_init__(self) -> None:
        _Base.__post_init__(self)
        for schema in self.inputs:
            refuse_inner_twins(schema, self._its("input"))
        refuse_inner_twins(self.output, self._its("output"))

    def _applied(self, outputs: RowBuilder, later: "Iterable[Later]", worker: WorkerId) -> Applied:
        try:
            output, postdated = outputs.finish(), tuple(part.records() for part in later)
        except Misfit as error:
            raise self._misfit(f"on worker {worker}", error) from error
        return self._allowed(output, worker), postdated

    def _seen(self, read: Callable[[pa.RecordBatch], Seen], data: pa.RecordBatch, worker: WorkerId) -> Seen:
        try:
            return read(data)
        except Misfit as error:
            raise FoldError(
                f"fold of operator {self.name} on worker {worker} cannot be given its rows: {error}"
            ) from error


@dataclass(frozen=True, slots=True)
class KeyFold(_RowFold):
    """`fold(key, val, state) -> (state, outputs)`; a state of None removes the key.

    In a bin's state each key's own is kept under the key's identity.
    """

    keys: tuple[str, ...]
    fold: Callable[[Any, Any, Any], tuple[Any, Iterable[Any]]]
    first: Callable[[], Any] | None = None

    def new_states(self, bins: int) -> States:
        """In a blank bin no key has a state."""
        return States(dict)

    def apply(
        self, due: tuple[Records, ...], states: States, bounds: Bounds, worker: WorkerId, watch: Stopwatch
    ) -> Applied:
        """Fold record by record."""
        (records,) = due
        rest = [name for name in records.data.schema.names if name not in self.keys]
        identities, keys = self._seen(identified, records.data.select(list(self.keys)), worker)
        fold = self.fold if identities is keys else _by_key(self.fold, keys)
        values = self._seen(columns_to_values, records.data.select(rest), worker)
        outputs, first = RowBuilder(self.output), self.first
        append, usual, take = outputs.append, outputs.usual, outputs.take
        watch.begin_laps()
        for start, stop in runs(records.bins):
            bin = BinId(int(records.bins[start]))
            entries = states[bin]
            span = slice(start, stop)
            for row, identity, value in zip(range(start, stop), identities[span], values[span], strict=True):
                # Nothing is called here but the fold: a call would cost as much as the rest.
                try:
                    before = entries.get(identity)
                    if before is None and first is not None:
                        before = first()
                    result = fold(identity, value, before)
                    if type(result) is not tuple:
                        result = state_and_rows(result)
                    try:
                        state, given = result
                    except ValueError:
                        state, given = state_and_rows(result)
                    if state is None:
                        entries.pop(identity, None)
                    else:
                        entries[identity] = state
                    for out in given if type(given) is list else rows_in(given):
                        append(out if type(out) is usual else take(out))
                except RAISED as error:
                    raise self._failed(f"bin {bin} at time {records.times[row]}", worker) from error
            watch.lap(bin)
        return self._applied(outputs, (), worker)

    def key_of(self, identity: Any) -> Any:
        """The key that a bin's state has under an identity."""
        return key_of(identity, pa.schema([self.inputs[0].field(name) for name in self.keys]))


@dataclass(frozen=True, slots=True)
class BinFold(_RowFold):
    """`fold(time, data, state, notificator) -> outputs`, once per bin and time; two data and notificators if binary."""

    state: Callable[[], Any]
    fold: Callable[..., Iterable[Any] | None]
    clocks: tuple[pa.DataType | None, ...] = (None, None)
    """What the time column of each input counts; None if it is epochs."""

    def new_states(self, bins: int) -> States:
        """A blank bin has what the user's factory makes."""
        return States(self.state)

    def apply(
        self, due: tuple[Records, ...], states: States, bounds: Bounds, worker: WorkerId, watch: Stopwatch
    ) -> Applied:
        """Fold bin by bin, and within a bin time by time, post-dated records included as they fall due."""
        outputs = RowBuilder(self.output)
        later = [Later(schema, clock) for schema, clock in zip(self.inputs, self.clocks, strict=False)]
        agendas = self._agendas(due, bounds, later, worker)
        watch.begin_laps()
        for bin, agenda in agendas:
            while agenda:
                try:
                    time, data = agenda.pop()
                    outputs.extend(rows_in(self.fold(time, *data, states[bin], *agenda.notificators)))
                except RAISED as error:
                    raise self._failed(f"bin {bin} at time {agenda.now}", worker) from error
            watch.lap(bin)
        return self._applied(outputs, later, worker)

    def _agendas(
        self, due: tuple[Records, ...], bounds: Bounds, later: "list[Later]", worker: WorkerId
    ) -> Iterable[tuple[BinId, "Agenda"]]:
        agendas: dict[BinId, Agenda] = {}
        for input, records in enumerate(due):
            rows = self._seen(columns_to_rows, records.data, worker)
            times = records.times.tolist()
            for start, stop in runs(records.bins):
                bin = BinId(int(records.bins[start]))
                if bin not in agendas:
                    agendas[bin] = Agenda(bin, Frontier(Time(int(bounds[bin]))), later)
                for row in range(start, stop):
                    agendas[bin].add(Time(times[row]), input, rows[row])
        return agendas.items()


class Agenda:
    """One bin's due records, time by time, and what the fold adds to them while it runs."""

    def __init__(self, bin: BinId, frontier: Frontier, later: "list[Later]") -> None:
        """Start empty; times that the bin's frontier has not passed go to `later`."""
        self.bin = bin
        self.now: Time | None = None
        self._frontier = frontier
        self._later = later
        self._times: list[Time] = []
        self._due: dict[Time, tuple[list[Any], ...]] = {}
        self._postdated: dict[tuple[Time, int], RowBuilder] = {}
        self.notificators = tuple(BinNotificator(self, input) for input in range(len(later)))

    def __bool__(self) -> bool:
        return bool(self._times)

    def add(self, time: Time, input: int, row: Any) -> None:
        """Put a record on the agenda of its time."""
        self._at(time)[input].append(row)

    def _at(self, time: Time) -> tuple[list[Any], ...]:
        if time not in self._due:
            self._due[time] = tuple([] for _ in self._later)
            heappush(self._times, time)
        return self._due[time]

    def _early(self, time: Time, input: int) -> RowBuilder:
        builder = self._postdated.get((time, input))
        if builder is None:
            builder = self._postdated[time, input] = self._later[input].rows.fresh()
        return builder

    def pop(self) -> tuple[Time, tuple[list[Any], ...]]:
        """The earliest time, with its records of each input."""
        self.now = heappop(self._times)
        due = self._due.pop(self.now)
        for input, rows in enumerate(due):
            postdated = self._postdated.pop((self.now, input), None)
            if postdated is not None:
                rows.extend(rows_again(postdated))
        return self.now, due

    def notify_at(self, when: Any, input: int, row: Any) -> None:
        """Post-date a record: for this very call of the host if the frontier has passed its time."""
        later = self._later[input]
        time = moment(when, later.clock)
        if self.now is not None and time < self.now:
            raise ValueError(f"a record cannot be post-dated to {time}, before its own time {self.now}")
        if time >= END:
            raise ValueError(f"a record cannot be post-dated to {time}: no time is that late")
        try:
            if self._frontier.less_equal(time):
                later.add(self.bin, time, row)
            else:
                self._early(time, input).add(row)
                self._at(time)
        except Misfit as error:
            # With a traceback: it is the fold that called.
            raise ValueError(f"a record cannot be post-dated: {error}") from None


@dataclass(frozen=True, slots=True)
class BinNotificator:
    """What a per-bin fold holds in its hand: `notify_at(time, record)` sends a record to its own future."""

    _agenda: Agenda
    _input: int

    def notify_at(self, time: int | datetime, record: Any) -> None:
        """Present `record` (a row of this input, or a tuple or dict like it) again at `time`, as it is now.

        Where the time column is of timestamps, a datetime will do as well, with a zone if the column has one.
        """
        self._agenda.notify_at(time, self._input, record)


class Later:
    """Post-dated records of one input, collected over the bins."""

    def __init__(self, schema: pa.Schema, clock: pa.DataType | None = None) -> None:
        """Collect rows of `schema`, whose time is counted as by `clock`."""
        self.schema = schema
        self.clock = clock
        self._bins: list[int] = []
        self._times: list[int] = []
        self.rows = RowBuilder(schema)
        self._parts: list[Records] = []

    def add(self, bin: BinId, time: Time, row: Any) -> None:
        """One row."""
        self.rows.add(row)
        self._bins.append(bin)
        self._times.append(time)

    def extend(self, records: Records) -> None:
        """Many rows."""
        self._parts.append(records)

    def records(self) -> Records:
        """All that was collected."""
        rows = Records(np.array(self._bins, np.uint32), np.array(self._times, np.int64), self.rows.finish())
        return Records.concat([*self._parts, rows], self.schema)


@dataclass(frozen=True, slots=True)
class VectorFold(_Base):
    """`fold(records, states, notificator) -> columns`, over many bins and times at once."""

    state: Callable[..., Any]
    fold: Callable[..., Any]
    sort: bool = True

    @property
    def ordered(self) -> bool:
        """As it was marked."""
        return self.sort

    def new_states(self, bins: int) -> States | Joint:
        """One for each bin, or one for all of them."""
        return self.state(bins) if is_joint(self.state) else States(self.state)

    def apply(
        self, due: tuple[Records, ...], states: Any, bounds: Bounds, worker: WorkerId, watch: Stopwatch
    ) -> Applied:
        """One call for everything that is due."""
        later = [VectorNotificator(bounds, Later(schema)) for schema in self.inputs]
        try:
            output = conform(self.fold(*due, states, *later), self.output)
        except RAISED as error:
            raise self._failed(_span(due), worker) from error
        return self._allowed(output, worker), tuple(part.later.records() for part in later)


@dataclass(frozen=True, slots=True)
class VectorNotificator:
    """What a vectorised fold holds in its hand: `notify_at(records)`, for times at or after a bin's bound."""

    bounds: Bounds
    later: Later

    def notify_at(self, records: Records) -> None:
        """Present these records again at their times; what is due before `bounds` the fold must do itself."""
        records = conform_records(records, self.later.schema)
        if len(records) and records.times.max() >= END:
            raise ValueError(f"a record cannot be post-dated to {END}: no time is that late")
        passed = np.flatnonzero(records.times < self.bounds[records.bins])
        if len(passed):
            bin, time = records.bins[passed[0]], records.times[passed[0]]
            raise ValueError(f"a record of bin {bin} post-dated to {time}, which is due before {self.bounds[bin]}")
        self.later.extend(records)


@overload
def vectorised(fold: AnyFold, *, ordered: bool = ...) -> AnyFold: ...
@overload
def vectorised(*, ordered: bool) -> Callable[[AnyFold], AnyFold]: ...


def vectorised(fold: AnyFold | None = None, *, ordered: bool = True) -> AnyFold | Callable[[AnyFold], AnyFold]:
    """Mark a fold as vectorised: `fold(records, states, notificator)`, Arrow rows of many bins at once.

    They are sorted by bin, and by time within a bin. A fold to which the order of what is due makes no difference can
    do without, `@vectorised(ordered=False)`: to sort may cost more than to count.

    >>> @vectorised
    ... def total(records, states, notificator):
    ...     totals = []
    ...     for bin, start, stop in records.spans():
    ...         states[bin] += records.column("n")[start:stop].sum()
    ...         totals.append(states[bin])
    ...     return {"total": totals}
    >>> from megaphone.dataflow.operators import Input, bin_operator
    >>> from megaphone.engine.local import LocalEngine
    >>> numbers = Input(pa.schema([("n", pa.int64())]), keys=("n",))
    >>> engine = LocalEngine(bin_operator("total", [numbers], total, pa.schema([("total", pa.int64())]), int), 2, 4)
    >>> engine.epoch([(5,), (5,)]), engine.epoch([(5,)])
    ([Row(total=10)], [Row(total=15)])
    """
    if fold is None:
        return partial(vectorised, ordered=ordered)
    fold.__megaphone_vectorised__ = True  # type: ignore[attr-defined]
    fold.__megaphone_ordered__ = ordered  # type: ignore[attr-defined]
    return fold


def is_ordered(fold: AnyFold) -> bool:
    """Must its records be sorted?"""
    return getattr(fold, "__megaphone_ordered__", True)


def is_vectorised(fold: Callable[..., Any]) -> bool:
    """Was this fold marked with `vectorised`?"""
    return getattr(fold, "__megaphone_vectorised__", False)


def _by_key(fold: AnyFold, keys: list[Any]) -> AnyFold:
    """The fold, to be called for each record in order with the identity of its key; it is given the key itself."""
    following = iter(keys)
    return lambda _, value, state: fold(next(following), value, state)


def _span(due: tuple[Records, ...]) -> str:
    if not any(map(len, due)):
        return "bins whose state was due"
    bins = np.concatenate([records.bins for records in due])
    times = np.concatenate([records.times for records in due])
    return f"bins {bins.min()} to {bins.max()} at times {times.min()} to {times.max()}"
