"""What users call: stateful operators from streaming DataFrame to streaming DataFrame, with one more argument.

Each becomes F, a shuffle and S in the user's own static plan: any source before it, any Spark operator around it, any
sink after it.  Neighbours: task.py is what runs.  Paper: the operator interfaces.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, cast

import cloudpickle
import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType, TimestampNTZType, TimestampType

from megaphone import checks
from megaphone.control.epochs import check_clocks
from megaphone.dataflow.exchange import DDL, HASH
from megaphone.dataflow.native import Logic, NativeFold
from megaphone.dataflow.operators import Input, OperatorSpec, bin_operator, key_operator
from megaphone.durability.manifest import shape_of
from megaphone.engine.spark.control import Control
from megaphone.engine.spark.coordinator import Coordinator
from megaphone.engine.spark.exchanges import Exchange, check_keys_of, column_of, hashes, names_of
from megaphone.engine.spark.host import hoster
from megaphone.engine.spark.router import router
from megaphone.engine.spark.run import PickledSpec
from megaphone.engine.spark.source import FORMAT, ControlSource
from megaphone.engine.spark.task import Binding, marks
from megaphone.errors import PlanError

Lateness = int | timedelta
"""In the unit of the time column: for a timestamp, microseconds, or a timedelta."""


def state_machine(
    control: Control,
    input: DataFrame,
    exchange: Exchange,
    fold: Callable[..., Any],
    output: str | StructType,
    *,
    key: str | Sequence[str] | None = None,
    state: Callable[[], Any] | None = None,
    time: str | None = None,
    lateness: Lateness = 0,
    name: str | None = None,
) -> DataFrame:
    """Keep a state per key: `fold(key, val, state) -> (state, outputs)`.

    `val` is the one other column, or a row of them. A key's first state is what `state()` makes, else None; returning
    None removes it. Outputs are rows: tuples, lists, Rows or dicts. With `vectorised`, fold is
    `fold(records, states, notificator)` as for `unary`. `key` names the key columns when the exchange is an expression.
    """
    names = names_of(exchange) if key is None else names_of(key)
    if not names:
        raise PlanError("a state machine keyed by an expression needs key=, the columns that are the key")
    spec = key_operator(
        _name(control, name),
        _input(control, input, names, time, lateness),
        fold,
        _schema(control, _struct(output)),
        state,
    )
    check_keys_of(input, names)
    return _build(control, spec, _struct(output), [input], [exchange])


def unary(
    control: Control,
    input: DataFrame,
    exchange: Exchange,
    fold: Callable[..., Any],
    output: str | StructType,
    *,
    state: Callable[..., Any] = dict,
    time: str | None = None,
    lateness: Lateness = 0,
    name: str | None = None,
) -> DataFrame:
    """Keep a state per bin: `fold(time, data, state, notificator) -> outputs`, for each time in order.

    `data` is the list of rows at that time, `state` what `state()` made for the bin, to be changed in place, and
    `notificator.notify_at(time, row)` presents a row again in the future.
    """
    one = _input(control, input, names_of(exchange), time, lateness)
    spec = bin_operator(_name(control, name), [one], fold, _schema(control, _struct(output)), state)
    return _build(control, spec, _struct(output), [input], [exchange])


def binary(
    control: Control,
    input1: DataFrame,
    input2: DataFrame,
    exchange1: Exchange,
    exchange2: Exchange,
    fold: Callable[..., Any],
    output: str | StructType,
    *,
    state: Callable[..., Any] = dict,
    time: str | tuple[str, str] | None = None,
    lateness: Lateness | tuple[Lateness, Lateness] = 0,
    name: str | None = None,
) -> DataFrame:
    """Two inputs, one state per bin: `fold(time, data1, data2, state, notificator1, notificator2) -> outputs`.

    Both inputs of a bin are on one worker and move together. Exchange columns of different types are hashed as the type
    that Spark's join would compare them as.
    """
    times = time if isinstance(time, tuple) else (time, time)
    late = lateness if isinstance(lateness, tuple) else (lateness, lateness)
    inputs = [
        _input(control, frame, names_of(exchange), at, by)
        for frame, exchange, at, by in zip((input1, input2), (exchange1, exchange2), times, late, strict=True)
    ]
    spec = bin_operator(_name(control, name), inputs, fold, _schema(control, _struct(output)), state)
    return _build(control, spec, _struct(output), [input1, input2], [exchange1, exchange2])


def native(
    control: Control,
    inputs: Sequence[DataFrame],
    exchanges: Sequence[Exchange],
    logic: Callable[[], Logic],
    output: str | StructType,
    *,
    time: str | None = None,
    lateness: Lateness = 0,
    name: str | None = None,
) -> DataFrame:
    """An operator whose state never moves, to be measured against: each worker has its own `logic()`, and no bins."""
    read = [_input(control, frame, names_of(key), time, lateness) for frame, key in zip(inputs, exchanges, strict=True)]
    name, schema = _name(control, name), _schema(control, _struct(output))
    fold = NativeFold(name, tuple(input.schema for input in read), schema, logic)
    spec = OperatorSpec(name, tuple(read), fold, control.workers)
    return _build(control, spec, _struct(output), list(inputs), list(exchanges))


def _build(
    control: Control, spec: OperatorSpec, output: StructType, frames: list[DataFrame], exchanges: list[Exchange]
) -> DataFrame:
    """F on each input, the exchange, S."""
    _check_clock(control, spec, frames)
    hashed = hashes(frames, exchanges)
    shape = shape_of(spec, tuple(hash.told for hash in hashed))
    pickled = cloudpickle.dumps(spec)
    control.specs[spec.name] = PickledSpec(pickled, spec.by_epoch, len(spec.inputs), shape, spec.unit, spec.zoned)
    binding = _binding(control, spec, frames)
    routed: DataFrame | None = None
    for number, (frame, hash) in enumerate(zip(frames, hashed, strict=True)):
        part = _columns(frame, spec.inputs[number], hash.value).mapInArrow(router(binding, number), DDL)
        routed = part if routed is None else routed.union(part)
    assert routed is not None
    if any(frame.isStreaming for frame in frames):
        routed = routed.union(_control_stream(control))
    return routed.repartitionById(control.slots, sf.col("slot")).mapInArrow(hoster(binding), output)


def _binding(control: Control, spec: OperatorSpec, frames: list[DataFrame]) -> Binding:
    coordinator = control.coordinator
    streaming = any(frame.isStreaming for frame in frames)
    return Binding(
        coordinator.address,
        coordinator.lease,
        coordinator.secret,
        _transport(control) != "tcp",
        control.name,
        control.bins,
        control.slots,
        spec.without_fold() if streaming else spec,
        streaming,
        tuple(_upstream(coordinator, spec.by_epoch, frame) for frame in frames),
    )


def _columns(frame: DataFrame, input: Input, hash: Column) -> DataFrame:
    """The user's columns, and the 64-bit value the bin comes from."""
    # By position, since `mapInArrow` cannot read a name with a dot or a backtick.
    columns = [column_of(name).alias(f"_column{place}") for place, name in enumerate(input.schema.names)]
    return frame.select(*columns, hash.cast("long").alias(HASH))


def _control_stream(control: Control) -> DataFrame:
    control.spark.dataSource.register(ControlSource)
    coordinator = control.coordinator
    options = {"unix": coordinator.address.unix, "secret": coordinator.secret, "control": control.name}
    options["slots"] = str(control.slots)
    if coordinator.address.tcp is not None:
        options["tcp"] = coordinator.address.tcp
    return control.spark.readStream.format(FORMAT).options(**options).load()


def _upstream(coordinator: Coordinator, by_epoch: bool, frame: DataFrame) -> tuple[tuple[str, str], ...]:
    """The operators of ours with a clock that lie before a frame."""
    specs = {mark: _pickled(coordinator, mark) for mark in _before(frame)}
    return tuple(sorted(mark for mark, spec in specs.items() if spec.by_epoch == by_epoch))


def _pickled(coordinator: Coordinator, mark: tuple[str, str]) -> PickledSpec:
    name, operator = mark
    return coordinator.definitions[name].specs[operator]


def _before(frame: DataFrame) -> set[tuple[str, str]]:
    """The operators of ours that lie before a frame, by the marks they leave in Spark's plan."""
    return set(marks(str(frame._jdf.queryExecution().analyzed())))


def _check_clock(control: Control, spec: OperatorSpec, frames: list[DataFrame]) -> None:
    marks = {mark for frame in frames for mark in _before(frame)}
    before = {operator for name, operator in marks if name == control.name}
    by_epoch = {spec.name: spec.by_epoch, **{name: control.specs[name].by_epoch for name in before}}
    check_clocks({name: "epoch" if epoch else "column" for name, epoch in by_epoch.items()})
    # The frontier of those before is that of this one: in hours of another clock, all its records could be late.
    for mark in sorted(marks):
        if {spec.zoned, _pickled(control.coordinator, mark).zoned} == {True, False}:
            zone = "with a zone" if spec.zoned else "without a zone"
            fact = f"operator {spec.name} has times {zone}, unlike {mark[1]} before it"
            raise PlanError(f"{fact}; cast the time column of one of them")


def _input(control: Control, frame: DataFrame, keys: tuple[str, ...], time: str | None, lateness: Lateness) -> Input:
    if time is not None and time in frame.columns:
        kind = frame.schema[time].dataType
        if not isinstance(kind, (LongType, TimestampType, TimestampNTZType)):
            raise PlanError(f"time column '{time}' is of type {kind.simpleString()}; choose long or timestamp")
    return Input(_schema(control, frame.schema), keys, time, cast(int, lateness))


def _struct(output: str | StructType) -> StructType:
    struct = output if isinstance(output, StructType) else StructType.fromDDL(output)
    if not isinstance(struct, StructType):
        raise PlanError(f"output {output!r} is not a list of columns; write 'word string, n long'")
    return struct


def _schema(control: Control, struct: StructType) -> pa.Schema:
    """Columns as Spark hands them to Python: timestamps in the session's time zone."""
    zone = control.spark.conf.get("spark.sql.session.timeZone")
    return pa.schema([_field(field, zone) for field in struct])


def _field(field: StructField, zone: str | None) -> pa.Field:
    try:
        return to_arrow_schema(StructType([field]), timezone=zone).field(0)
    except PySparkTypeError as error:
        raise PlanError(
            f"column '{field.name}' is of type {field.dataType.simpleString()}, which Python cannot read; cast it, or "
            "leave it out before the operator"
        ) from error


def _transport(control: Control) -> str:
    said = control.spark.conf.get("spark.megaphone.transport", "auto")
    return checks.choice(said, "spark.megaphone.transport={}", ("auto", "tcp"))


def _name(control: Control, name: str | None) -> str:
    name = checks.name(f"op{len(control.specs)}" if name is None else name, "operator")
    if name in control.specs:
        raise PlanError(
            f"an operator named '{name}' was built on control {control.name} before; to build it again, as when a "
            "notebook cell is run twice, make a new Control first: its state is found in the checkpoint by its name; "
            "choose another name for another operator"
        )
    return name
