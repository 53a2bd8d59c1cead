"""Casts: a column as one of another type, if nothing changes but the type.

Arrow's own safe casts cut nothing off most numbers, but read a number as a text, drop fields of structs, and shorten
timestamps to dates.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from megaphone.dataflow.misfit import Misfit
from megaphone.dataflow.nesting import fields_of


def cast(given: Any, wanted: pa.DataType) -> Any:
    """A column of a type that is wanted.

    >>> cast(pa.array([1.0, 2.0]), pa.int64()).to_pylist()
    [1, 2]
    >>> cast(pa.array([True]), pa.int64())
    Traceback (most recent call last):
    megaphone.dataflow.misfit.Misfit: a column of bool is none of int64; cast it yourself if that is meant
    """
    if given.type == wanted:
        return given
    if _clash(given.type, wanted):
        raise Misfit(f"a column of {given.type} is none of {wanted}; cast it yourself if that is meant")
    column = given.cast(wanted)
    if _is_changed(given, column):
        raise Misfit(f"a column of {given.type} has values that {wanted} cannot hold as they are; cast it yourself")
    return column


def _clash(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Would one thing be read as another: a number as a text, the time of a clock as a moment, null as a field?"""
    if pa.types.is_dictionary(given):
        return _clash(given.value_type, wanted)
    if pa.types.is_null(given):
        return False
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted):
        return (given.tz is None) != (wanted.tz is None)
    if _sort(given) != _sort(wanted):
        return True
    here, there = fields_of(given), fields_of(wanted)
    if pa.types.is_struct(given):
        here, there = (sorted(fields, key=lambda field: field.name) for fields in (here, there))
        if [field.name for field in here] != [field.name for field in there]:
            return True
    return any(_clash(one.type, other.type) for one, other in zip(here, there, strict=True))


def _sort(type: pa.DataType) -> str:
    """Numbers, dates and times are of one sort: Arrow counts them."""
    return next((sort for sort, tests in _SORTS.items() if any(is_one(type) for is_one in tests)), "number")


_of = pa.types
_SORTS = {
    "text": (_of.is_string, _of.is_large_string, _of.is_string_view, _of.is_binary, _of.is_large_binary),
    "truth": (_of.is_boolean,),
    "map": (_of.is_map,),
    "list": (_of.is_list, _of.is_large_list, _of.is_list_view, _of.is_fixed_size_list),
    "struct": (_of.is_struct,),
}


def _is_changed(given: Any, column: Any) -> bool:
    """Where Arrow takes no care itself: a float becomes a shorter one or a decimal, a timestamp a date."""
    if pa.types.is_floating(given.type) and pa.types.is_floating(column.type):
        return bool(pc.any(pc.not_equal(pc.is_inf(given), pc.is_inf(column))).as_py())
    if pa.types.is_timestamp(given.type) and pa.types.is_date(column.type):
        return given.type.tz is not None or not column.cast(given.type).equals(given)
    if pa.types.is_floating(given.type) and pa.types.is_decimal(column.type):
        return not column.cast(given.type).equals(given)
    return False
