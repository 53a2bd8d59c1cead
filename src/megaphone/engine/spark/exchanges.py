"""What records are hashed by, so that equal keys come to one bin.

Spark's xxhash64 hashes -0.0 as 0.0 and every NaN alike, in structs and arrays too. But it hashes equal values of two
types differently. So the inputs of one operator are hashed as the types that Spark's join would compare.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

from pyspark.errors import AnalysisException, PySparkTypeError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType

from megaphone.dataflow.keys import check_key
from megaphone.errors import PlanError


@dataclass(frozen=True, slots=True)
class Bits:
    """An exchange value of the user's own making: a record's bin is the top bits of this 64-bit integer."""

    column: Column


Exchange = str | Sequence[str] | Column | Bits
"""What a record's bin comes from: key columns or an expression, hashed by Spark's xxhash64, or bits as they are."""


@dataclass(frozen=True, slots=True)
class Hash:
    """The 64-bit value that the bins of an input come from, and what it is made of, for people."""

    value: Column
    told: str


@dataclass(frozen=True, slots=True)
class _Part:
    """One of the values that are hashed together, and its type as Spark has it."""

    column: Column
    told: str
    kind: Any


def hashes(frames: Sequence[DataFrame], exchanges: Sequence[Exchange]) -> list[Hash]:
    """How each input of an operator is hashed: the same for equal values."""
    if any(isinstance(exchange, Bits) for exchange in exchanges):
        return [_hash(frame, exchange) for frame, exchange in zip(frames, exchanges, strict=True)]
    inputs = [_parts(frame, exchange) for frame, exchange in zip(frames, exchanges, strict=True)]
    if len({len(parts) for parts in inputs}) > 1:
        told = " and ".join(f"by {len(parts)} ({_told(parts)})" for parts in inputs)
        raise PlanError(f"the inputs are hashed {told} values, which never meet; choose as many for each")
    alike = [_alike(parts, frames[0].sparkSession) for parts in zip(*inputs, strict=True)]
    return [_hash_of(parts) for parts in zip(*alike, strict=True)]


def check_keys_of(frame: DataFrame, names: Sequence[str]) -> None:
    """Refuse key columns of which values that differ are equal: Spark keeps no state by them."""
    for name in names:
        _check_collation(frame, frame.select(column_of(name)), f"the key column {name!r}")


def names_of(exchange: Exchange) -> tuple[str, ...]:
    """The key columns that an exchange names; an expression names none."""
    if isinstance(exchange, (Column, Bits)):
        return ()
    return (exchange,) if isinstance(exchange, str) else tuple(exchange)


def column_of(name: str) -> Column:
    """A column by its very name: dots, spaces and backticks are part of it."""
    escaped = name.replace("`", "``")
    return sf.col(f"`{escaped}`")


def _hash(frame: DataFrame, exchange: Exchange) -> Hash:
    if isinstance(exchange, Bits):
        return Hash(exchange.column, f"the bits of {_text(exchange.column)}")
    return _hash_of(_parts(frame, exchange))


def _hash_of(parts: Sequence[_Part]) -> Hash:
    return Hash(sf.xxhash64(*(part.column for part in parts)), _told(parts))


def _told(parts: Sequence[_Part]) -> str:
    return ", ".join(part.told for part in parts)


def _parts(frame: DataFrame, exchange: Exchange) -> list[_Part]:
    if isinstance(exchange, Column):
        return [_part(frame, exchange, _text(exchange), f"the exchange {_text(exchange)}")]
    if not names_of(exchange):
        raise PlanError("an exchange without columns; name at least one")
    return [
        _part(frame, column_of(name) if name in frame.columns else sf.col(name), name, f"the exchange column {name!r}")
        for name in names_of(exchange)
    ]


def _part(frame: DataFrame, column: Column, told: str, of: str) -> _Part:
    alone = frame.select(column)
    if len(alone.columns) > 1:
        raise PlanError(f"{of} is {len(alone.columns)} columns; name them")
    _check_collation(frame, alone, of)
    _check_kind(alone.schema.fields[0].dataType, of)
    return _Part(column, told, alone._jdf.schema().fields()[0].dataType())


def _text(column: Column) -> str:
    return str(column)[len("Column<'") : -len("'>")]


def _check_kind(kind: DataType, of: str) -> None:
    try:
        arrow = to_arrow_type(kind, timezone="UTC")
    except PySparkTypeError:
        # An interval of months: Python cannot read it, but Spark can hash it.
        return
    check_key(arrow, of)


def _check_collation(frame: DataFrame, alone: DataFrame, of: str) -> None:
    """Ask of a column what Spark's own stateful operators ask."""
    utilities: Any = frame.sparkSession._jvm
    if not utilities.org.apache.spark.sql.catalyst.util.UnsafeRowUtils.isBinaryStable(alone._jdf.schema()):
        raise PlanError(
            f"{of} is of type {alone.schema.fields[0].dataType.simpleString()}, and Spark keeps no state by strings "
            "of a collation; choose another key, such as lower(...) of it, collate UTF8_BINARY"
        )


def _alike(parts: Sequence[_Part], spark: SparkSession) -> list[_Part]:
    """The same value of each input, as one type."""
    if len({part.kind.catalogString() for part in parts}) == 1:
        return list(parts)
    try:
        kind = reduce(partial(_compared_as, spark), (part.kind for part in parts))
    except AnalysisException as error:
        told = " and ".join(f"{part.told} of type {part.kind.catalogString()}" for part in parts)
        raise PlanError(f"the inputs are hashed by {told}, which Spark does not compare; cast one of them") from error
    return [_cast(part, kind) for part in parts]


def _cast(part: _Part, kind: Any) -> _Part:
    name = kind.catalogString()
    if part.kind.catalogString() == name:
        return part
    return _Part(part.column.cast(kind.sql()), f"{part.told} as {name}", kind)


def _compared_as(spark: SparkSession, one: Any, other: Any) -> Any:
    """The type as which Spark compares values of two types."""
    nothing = sf.lit(None)
    values = spark.range(0).select(nothing.cast(one.sql()).alias("one"), nothing.cast(other.sql()).alias("other"))
    compared = values.select(sf.col("one") == sf.col("other"))
    return compared._jdf.queryExecution().analyzed().expressions().head().child().left().dataType()
