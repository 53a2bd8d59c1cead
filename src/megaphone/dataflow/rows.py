"""Rows: Arrow columns as Python tuples with names, and back.

Only folds that work record by record meet them; a vectorised fold never does.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from megaphone.dataflow.builder import RowBuilder
from megaphone.dataflow.misfit import Misfit
from megaphone.dataflow.row import make_row, make_rows
from megaphone.dataflow.values import to_values
from megaphone.errors import PlanError


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch of this schema without rows."""
    return pa.record_batch([pa.array([], field.type) for field in schema], schema=schema)


def refuse_twins(schema: pa.Schema, of: str) -> None:
    """Refuse two columns of one name.

    >>> refuse_twins(pa.schema([("n", pa.int64()), ("n", pa.string())]), "the output")
    Traceback (most recent call last):
    megaphone.errors.PlanError: the output has two columns named 'n'; rename one
    """
    for name in _twins(schema.names):
        raise PlanError(f"{of} has two columns named {name!r}; rename one")


def refuse_inner_twins(schema: pa.Schema, of: str) -> None:
    """Refuse two fields of one name in a struct: as a Python value it is a dict."""
    for field in schema:
        for name in _inner_twins(field.type):
            raise PlanError(f"{of} has two fields named {name!r} in the column {field.name!r}; rename one")


def _twins(names: Sequence[str]) -> list[str]:
    return [name for place, name in enumerate(names) if name in names[:place]]


def _inner_twins(kind: pa.DataType) -> Iterator[str]:
    fields = [kind.field(place) for place in range(kind.num_fields)]
    if pa.types.is_struct(kind):
        yield from _twins([field.name for field in fields])
    for field in fields:
        yield from _inner_twins(field.type)


def columns_to_rows(batch: pa.RecordBatch) -> list[Any]:
    """All rows of a batch, with the names of its columns."""
    fields = tuple(batch.schema.names)
    if not fields:
        return [make_row((), ())] * batch.num_rows
    return make_rows(fields, zip(*_values(batch), strict=True))


def columns_to_values(batch: pa.RecordBatch) -> list[Any]:
    """Rows of one column as bare values, of several as rows, of none as None."""
    if batch.num_columns == 0:
        return [None] * batch.num_rows
    return next(_values(batch)) if batch.num_columns == 1 else columns_to_rows(batch)


def _values(batch: pa.RecordBatch) -> Iterator[list[Any]]:
    """The values of each column."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            yield to_values(column)
        except Misfit as error:
            raise Misfit(f"column {name}: {error}") from error


def rows_again(builder: RowBuilder) -> list[Any]:
    """The rows in a builder as a fold would get them out of a batch: they are not of another form for being early."""
    values = builder.unchanged()
    return columns_to_rows(builder.finish()) if values is None else make_rows(builder.fields, values)


def rows_to_batch(rows: Iterable[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Rows (or bare values, if the schema has one column) as a batch of exactly this schema.

    >>> rows_to_batch([(1, "a"), {"b": "b", "a": 2}], pa.schema([("a", pa.int64()), ("b", pa.string())])).to_pylist()
    [{'a': 1, 'b': 'a'}, {'a': 2, 'b': 'b'}]
    """
    builder = RowBuilder(schema)
    try:
        builder.extend(rows)
        return builder.finish()
    except Misfit as error:
        raise PlanError(str(error)) from error
