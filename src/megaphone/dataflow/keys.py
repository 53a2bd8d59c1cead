"""Keys: which of them are one key. Those that Spark's `groupBy` puts in one group, and no others.

Python thinks otherwise of some: NaN equals nothing, not even itself; the two readings of an hour that a clock repeats
are equal; a list or a dict cannot be looked up. So what a state is kept under is not the key as folds see it but its
*identity*, which equals and hashes as Spark groups, in every process. For most types both are the same object.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from megaphone.dataflow.row import make_row, make_rows
from megaphone.dataflow.rows import columns_to_values
from megaphone.dataflow.values import to_values
from megaphone.errors import PlanError

NAN = "NaN"
"""The identity of all NaN: no other identity in a column of floating point numbers is a string."""

Keys = tuple[list[Any], list[Any]]
"""For each row the identity of its key, and the key as folds see it."""

_MARKS = {
    b"variant": "a variant, by which Spark does not group; choose another key, such as a field of it, by variant_get",
    b"geometry": "a geometry, which Spark does not hash; choose another key, such as st_asbinary of it",
    b"geography": "a geography, which Spark does not hash; choose another key, such as st_asbinary of it",
}
"""What Spark marks in a struct that is none."""

_PLAIN = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_decimal128,
    pa.types.is_date32,
    pa.types.is_duration,
)
"""Types whose values are equal in Python exactly when they are in Spark."""

_LISTS = (pa.types.is_list, pa.types.is_large_list)
_INSTANTS = (pa.types.is_timestamp, pa.types.is_time64)
_FLOATS = (pa.types.is_float32, pa.types.is_float64)


def check_keys(schema: pa.Schema, names: Iterable[str]) -> None:
    """Refuse key columns of types that Spark does not group by or hash.

    >>> check_keys(pa.schema([("m", pa.map_(pa.int32(), pa.string()))]), ["m"])
    Traceback (most recent call last):
    megaphone.errors.PlanError: the key column 'm' is or has in it a map, which Spark does not hash; choose another \
key, such as array_sort(map_entries(...)) of it
    """
    for name in names:
        check_key(schema.field(name).type, f"the key column {name!r}")


def check_key(kind: pa.DataType, of: str) -> None:
    """Refuse a key of this type; `of` says whose it is."""
    reason = _reason_against(kind)
    if reason is not None:
        raise PlanError(f"{of} is or has in it {reason}")


def identified(columns: pa.RecordBatch) -> Keys:
    """For each row the identity of its key, and the key as folds see it: the same list, if all are the same.

    >>> same = lambda column: len(set(identified(pa.record_batch({"key": column}))[0]))
    >>> same(pa.array([0.0, -0.0, float("nan"), float("nan")])), same(pa.array([[1], [1], [None], None]))
    (2, 3)
    """
    kinds = columns.schema.types
    if all(map(_is_plain, kinds)):
        values = columns_to_values(columns)
        return values, values
    each = [_identified(column) for column in columns.columns]
    if len(each) == 1:
        return each[0]
    keys = make_rows(tuple(columns.schema.names), zip(*(keys for _, keys in each), strict=True))
    if all(identities is keys for identities, keys in each):
        return keys, keys
    return list(zip(*(identities for identities, _ in each), strict=True)), keys


def key_of(identity: Any, columns: pa.Schema) -> Any:
    """The key that an identity stands for, as folds see it.

    >>> key_of(0, pa.schema([("at", pa.timestamp("us", "Europe/Berlin"))])).isoformat()
    '1970-01-01T01:00:00+01:00'
    """
    kinds = columns.types
    if len(kinds) == 1:
        return _key_of(identity, kinds[0])
    return make_row(tuple(columns.names), map(_key_of, identity, kinds)) if kinds else identity


def _any(tests: Iterable[Any], kind: pa.DataType) -> bool:
    return any(test(kind) for test in tests)


def _is_plain(kind: pa.DataType) -> bool:
    return _any(_PLAIN, kind) or (pa.types.is_timestamp(kind) and kind.tz is None)


def _reason_against(kind: pa.DataType) -> str | None:
    if pa.types.is_map(kind):
        return "a map, which Spark does not hash; choose another key, such as array_sort(map_entries(...)) of it"
    if pa.types.is_struct(kind) or _any(_LISTS, kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        marks = [reason for field in fields for mark, reason in _MARKS.items() if mark in (field.metadata or {})]
        return next((reason for reason in (*marks, *(_reason_against(field.type) for field in fields)) if reason), None)
    if _is_plain(kind) or _any(_FLOATS, kind) or _any(_INSTANTS, kind):
        return None
    return f"a value of Arrow's type {kind}, which Spark does not have; cast it"


def _identified(column: pa.Array) -> Keys:
    kind = column.type
    if _any(_FLOATS, kind):
        return _floats(column)
    if pa.types.is_struct(kind):
        return _structs(column)
    if _any(_LISTS, kind):
        return _lists(column)
    values = to_values(column)
    return values if _is_plain(kind) else column.cast(pa.int64()).to_pylist(), values


def _floats(column: pa.Array) -> Keys:
    # There is one zero, and Spark shows it without a sign.
    values = pc.add(column, pa.scalar(0.0, column.type)).to_pylist()
    if not pc.any(pc.is_nan(column)).as_py():
        return values, values
    return [NAN if value != value else value for value in values], values


def _structs(column: pa.Array) -> Keys:
    names = column.type.names
    each = [_identified(field) for field in column.flatten()]
    identities = _rows([identities for identities, _ in each], len(column))
    keys = (dict(zip(names, key, strict=True)) for key in _rows([keys for _, keys in each], len(column)))
    return _present(column, identities), _present(column, keys)


def _rows(columns: Sequence[list[Any]], many: int) -> Iterable[tuple[Any, ...]]:
    return zip(*columns, strict=True) if columns else [()] * many


def _lists(column: pa.Array) -> Keys:
    ends = column.offsets.to_pylist()
    identities, keys = _identified(column.values.slice(ends[0], ends[-1] - ends[0]))
    spans = [slice(start - ends[0], stop - ends[0]) for start, stop in pairwise(ends)]
    return _present(column, (tuple(identities[span]) for span in spans)), _present(column, (keys[s] for s in spans))


def _present(column: pa.Array, values: Iterable[Any]) -> list[Any]:
    """Values where the column has some, else None."""
    if not column.null_count:
        return list(values)
    return [value if there else None for value, there in zip(values, column.is_valid().to_pylist(), strict=True)]


def _key_of(identity: Any, kind: pa.DataType) -> Any:
    if identity is None or _is_plain(kind):
        return identity
    if _any(_FLOATS, kind):
        return float(identity)
    if _any(_INSTANTS, kind):
        return pa.scalar(identity, kind).as_py()
    if pa.types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        return {field.name: _key_of(value, field.type) for field, value in zip(fields, identity, strict=True)}
    return [_key_of(value, kind.value_type) for value in identity]
