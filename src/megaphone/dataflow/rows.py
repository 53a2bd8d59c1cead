"""Rows: Arrow columns as Python tuples with names, and back.

Only folds that work record by record meet them; a vectorised fold never does.
"""

from collections import namedtuple
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from megaphone.errors import PlanError


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch of this schema without rows."""
    return pa.record_batch([pa.array([], field.type) for field in schema], schema=schema)


@lru_cache(maxsize=256)
def row_type(fields: tuple[str, ...]) -> Any:
    """The named tuple with these fields: one class per process, so that rows kept in a state can be pickled."""
    base = namedtuple("Row", fields, rename=True)  # type: ignore[misc]

    class Row(base):
        __slots__ = ()

        def __reduce__(self) -> tuple[Any, ...]:
            return make_row, (fields, tuple(self))

    return Row


def make_row(fields: tuple[str, ...], values: Sequence[Any]) -> Any:
    """One row, by field names and values."""
    return row_type(fields)._make(values)


def columns_to_rows(batch: pa.RecordBatch) -> list[Any]:
    """All rows of a batch as named tuples."""
    make = row_type(tuple(batch.schema.names))._make
    return [make(values) for values in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


def columns_to_values(batch: pa.RecordBatch) -> list[Any]:
    """Rows of one column as bare values, of several as named tuples, of none as None."""
    if batch.num_columns == 0:
        return [None] * batch.num_rows
    return batch.column(0).to_pylist() if batch.num_columns == 1 else columns_to_rows(batch)


def rows_to_batch(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Tuples (or bare values, if the schema has one column) as a batch of exactly this schema."""
    if not rows:
        return no_rows(schema)
    bare = len(schema) == 1 and not isinstance(rows[0], (tuple, list))
    try:
        columns: Iterable[Sequence[Any]] = [rows] if bare else zip(*rows, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        wanted = ", ".join(f"{field.name} {field.type}" for field in schema)
        raise PlanError(f"rows like {rows[0]!r} for the columns {wanted}: {error}") from error
    return pa.record_batch(arrays, schema=schema)


def conform(result: Any, schema: pa.Schema) -> pa.RecordBatch:
    """What a vectorised fold gave (batch, table, dict of columns or nothing) as one batch of this schema."""
    if result is None:
        return no_rows(schema)
    if isinstance(result, dict):
        arrays = [pa.array(result[field.name], field.type) for field in schema]
        return pa.record_batch(arrays, schema=schema)
    table = pa.Table.from_batches([result]) if isinstance(result, pa.RecordBatch) else result
    batches = table.select(schema.names).cast(schema).combine_chunks().to_batches()
    return batches[0] if batches else no_rows(schema)
