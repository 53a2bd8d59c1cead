"""Values: a column as Python values, and Python values as a column.

What goes to a fold and is given out again unchanged is the same in Spark.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from megaphone.dataflow.kinds import kind_of
from megaphone.dataflow.misfit import Misfit
from megaphone.dataflow.nesting import fields_of, parts_of

REFUSALS = (TypeError, ValueError, OverflowError, pa.ArrowException)
"""What Arrow raises for a value that it cannot read."""

Read = Callable[[Any], Any]


def to_array(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    """Values as a column.

    >>> to_array([1, 2.0, None], pa.int64()).to_pylist(), to_array([{"a": 1}], pa.map_("string", "int8")).to_pylist()
    ([1, 2, None], [[('a', 1)]])
    >>> to_array([1, 2.5], pa.int64())
    Traceback (most recent call last):
    megaphone.dataflow.misfit.Misfit: 2.5 of type float is no int64; give whole numbers
    """
    return to_array_as_taken(kind_of(type).all(values), type)


def to_array_as_taken(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    """Values as a column, of which each was taken before."""
    try:
        return pa.array(values, type)
    except REFUSALS as error:
        return _one_by_one(values, type, error)


def _one_by_one(values: Sequence[Any], type: pa.DataType, error: Exception) -> pa.Array:
    """What Arrow could not read, in a form that it perhaps can; else the misfit that is to blame."""
    kind, forms = kind_of(type), []
    for value in values:
        forms.append(value if value is None else kind.other(value))
        try:
            pa.array(forms[-1:], type)
        except REFUSALS as reason:
            raise Misfit.of(value, type, str(reason)) from error
    try:
        return pa.array(forms, type)
    except REFUSALS as reason:
        raise Misfit(f"{len(values)} values are no column of {type}: {reason}") from error


def to_values(column: pa.Array) -> list[Any]:
    """A column as Python values. A map is a dict where its keys can be told apart in one, else a list of pairs.

    >>> to_values(pa.array([[("a", 1)], [("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64())))
    [{'a': 1}, [('a', 1), ('a', 2)]]
    """
    _refuse_nanoseconds(column)
    try:
        values: list[Any] = column.to_pylist()
    except REFUSALS as error:
        fact = f"a value of type {column.type} that Python cannot represent ({error})"
        raise Misfit(f"{fact}; filter it out before, or cast it") from error
    read = _reader(column.type)
    return values if read is None else _read_all(read, values)


@lru_cache(maxsize=1024)
def _reader(type: pa.DataType) -> Read | None:
    """What makes dicts of the maps within a value, as Arrow gave it; None if there are none in this type."""
    reads = [_reader(field.type) for field in fields_of(type)]
    if pa.types.is_map(type):
        return _map_reader(type, *reads)
    if not any(reads):
        return None
    if pa.types.is_struct(type):
        return lambda struct: {
            name: value if read is None or value is None else read(value)
            for read, (name, value) in zip(reads, struct.items(), strict=True)
        }
    (read,) = reads
    assert read is not None
    return lambda values: _read_all(read, values)


def _map_reader(type: pa.DataType, of_key: Read | None, of_item: Read | None) -> Read:
    # Structs and arrays cannot be keys of a dict; two times of the repeated hour are one key of it.
    form: Read = list if pa.types.is_nested(type.key_type) else _as_dict
    if of_key is None and of_item is None:
        return form

    def read(pairs: list[tuple[Any, Any]]) -> Any:
        keys, items = _read_all(of_key, (k for k, _ in pairs)), _read_all(of_item, (item for _, item in pairs))
        return form(zip(keys, items, strict=True))

    return read


def _as_dict(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any] | list[Any]:
    pairs = list(pairs)
    found = dict(pairs)
    return found if len(found) == len(pairs) else pairs


def _read_all(read: Read | None, values: Iterable[Any]) -> list[Any]:
    if read is None:
        return list(values)
    return [value if value is None else read(value) for value in values]


def _refuse_nanoseconds(column: pa.Array) -> None:
    """Python's times have microseconds, and Arrow says nothing when it drops the rest."""
    if column.type == pa.time64("ns"):
        counts = column.drop_null().cast(pa.int64()).to_numpy()
        if (counts % 1000).any():
            raise Misfit("a time with nanoseconds, which Python cannot represent; cast it to time(6)")
    elif _has_times(column.type):
        for _, part in parts_of(column):
            _refuse_nanoseconds(part)


@lru_cache(maxsize=1024)
def _has_times(type: pa.DataType) -> bool:
    return type == pa.time64("ns") or any(_has_times(field.type) for field in fields_of(type))
