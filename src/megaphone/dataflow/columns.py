"""Columns: what a vectorised fold gives out, as one batch, in memory that is not the fold's.

An array of NumPy and what Arrow makes of it share their memory, so that a batch would change with the fold's state.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from megaphone.dataflow.casts import cast
from megaphone.dataflow.kinds import TEXTS
from megaphone.dataflow.misfit import Misfit
from megaphone.dataflow.nesting import fields_of, parts_of
from megaphone.dataflow.records import Records, is_uniform
from megaphone.dataflow.rows import no_rows
from megaphone.dataflow.values import to_array


def conform(result: Any, schema: pa.Schema) -> pa.RecordBatch:
    """What a vectorised fold gave (batch, table, dict of columns or nothing) as one batch of this schema.

    >>> state = np.array([1, 2])
    >>> batch = conform({"n": state}, pa.schema([("n", pa.int64())])); state += 10; batch["n"].to_pylist()
    [1, 2]
    """
    if result is None:
        return no_rows(schema)
    if not isinstance(result, Mapping | pa.RecordBatch | pa.Table):
        raise Misfit.of(result, "columns", "give a dict of columns, a batch or a table")
    names = list(result) if isinstance(result, Mapping) else result.schema.names
    return pa.record_batch([_column(result, names, field) for field in schema], schema=schema)


def _column(result: Any, names: list[str], field: pa.Field) -> pa.Array:
    if field.name not in names:
        raise Misfit(f"no column {field.name}; the fold gave {', '.join(map(str, names))}")
    try:
        return _to_column(result[field.name], field.type)
    except (Misfit, pa.ArrowException) as error:
        raise Misfit(f"column {field.name}: {error}") from error


def _to_column(values: Any, wanted: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return _own(cast(values, wanted))
    dtype = getattr(values, "dtype", None)
    if dtype is None:
        return _of_objects(values, wanted)
    if dtype == np.dtype(object):
        # A Series of pandas has NaN where there is nothing.
        present = values.where(values.notna(), None) if hasattr(values, "notna") else values
        return to_array(present.tolist(), wanted)
    given = pa.array(values)
    if isinstance(values, np.ndarray) and pa.types.is_timestamp(given.type) and pa.types.is_timestamp(wanted):
        # NumPy knows no zones. For a column with one these are moments of UTC, as `records.column` gives them.
        given = given.cast(pa.timestamp("us")).cast(wanted)
    return pa.concat_arrays([cast(given, wanted)])


def _of_objects(values: Any, wanted: pa.DataType) -> pa.Array:
    if isinstance(values, (*TEXTS, Mapping)) or not hasattr(values, "__iter__"):
        raise Misfit.of(values, f"column of {wanted}", "give a list or an array")
    return to_array(list(values), wanted)


def _own(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece, in memory that nobody else can change."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if not chunks:
        return pa.array([], column.type)
    shared = any(buffer.is_mutable for chunk in chunks for buffer in chunk.buffers() if buffer is not None)
    return pa.concat_arrays(chunks) if shared or len(chunks) > 1 else chunks[0]


def conform_records(records: Records, schema: pa.Schema) -> Records:
    """What a vectorised fold post-dated: sound records of this schema, in memory of their own."""
    try:
        data = conform(records.data, schema)
    except Misfit as error:
        # With a traceback: it is the fold that called.
        raise ValueError(f"records cannot be post-dated: {error}") from None
    bins, times = _integers(records.bins, "bins", np.uint32), _integers(records.times, "times", np.int64)
    if not len(bins) == len(times) == data.num_rows:
        raise ValueError(f"{len(bins)} bins and {len(times)} times for {data.num_rows} records; give one of each")
    return Records(bins, times, data)


def _integers(values: Any, what: str, kind: Any) -> npt.NDArray[Any]:
    values = np.asarray(values)
    if values.dtype.kind not in "iu" or values.ndim != 1:
        raise ValueError(f"{what} of type {values.dtype}; give an array of integers")
    if not len(values):
        return np.empty(0, kind)
    least, most = int(values.min()), int(values.max())
    if least < np.iinfo(kind).min or most > np.iinfo(kind).max:
        raise ValueError(f"{what} from {least} to {most}; choose {np.iinfo(kind).min} to {np.iinfo(kind).max}")
    own: npt.NDArray[Any] = values.astype(kind)
    return np.broadcast_to(own[0], len(own)) if is_uniform(values) else own


def null_in(batch: pa.RecordBatch) -> str | None:
    """Where there is a null that the schema does not allow."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if _has_null(field, column):
            return str(field.name)
    return None


def _has_null(field: pa.Field, column: pa.Array) -> bool:
    if column.null_count and not field.nullable:
        return True
    return _forbids_nulls(field.type) and any(_has_null(*part) for part in parts_of(column))


def _forbids_nulls(type: pa.DataType) -> bool:
    return any(not field.nullable or _forbids_nulls(field.type) for field in fields_of(type))
