"""Kinds: which Python values a column of each type takes.

A value is taken if its column can hold it as it is; nothing is cut off or read as something else, and only a `float`
rounds. A value that can change later (a list, a dict, a NumPy array) is copied when it is taken.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from numbers import Real
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from megaphone.checks import integer
from megaphone.dataflow.misfit import Misfit
from megaphone.dataflow.nesting import fields_of
from megaphone.dataflow.row import in_order

NONE = type(None)
MICROSECOND = timedelta(microseconds=1)
DAY_NS = 86_400 * 10**9
MAX_FLOAT = float(np.finfo(np.float32).max)

TEXTS = (str, bytes, bytearray, memoryview)
"""What can be iterated over, and is one value all the same."""

COUNTED_AS_NUMBERS: tuple[type, ...] = (bool, np.timedelta64)
"""By Python and NumPy, but not by us."""

Fits = Callable[[Sequence[Any]], bool]


@dataclass(frozen=True, slots=True)
class Kind:
    """How a column of one type takes values."""

    exact: frozenset[type]
    """Values of these types are taken without another look."""
    other: Callable[[Any], Any]
    """Any value but None as one that Arrow reads rightly; raises a misfit if it is none."""
    lasts: bool = True
    """Can no value change that fits?"""
    fits: Fits | None = None
    """Can these values be taken without another look, where that is more than a question of their types?"""
    returns: Callable[[Any], bool] | None = None
    """Does Arrow give this value back just as it was? None if that is not known of any."""

    def one(self, value: Any) -> Any:
        """A value as Arrow is to read it."""
        if value is None or type(value) in self.exact:
            return value
        return self.one(value.as_py()) if isinstance(value, pa.Scalar) else self.other(value)

    def all(self, values: Sequence[Any]) -> Sequence[Any]:
        """The same of many; the very same object if each is taken as it is."""
        fit = self.exact.issuperset(map(type, values)) if self.fits is None else self.fits(values)
        return values if fit else [self.one(value) for value in values]


@lru_cache(maxsize=1024)
def kind_of(wanted: pa.DataType) -> Kind:
    """How a column of this type takes values."""
    for is_one, make in _MAKERS:
        if is_one(wanted):
            return make(wanted)
    # Spark has no column of such a type: Arrow's own rules will do.
    return Kind(frozenset(), lambda value: value, fits=lambda values: True)


def _integers(wanted: pa.DataType) -> Kind:
    def other(value: Any) -> int:
        found = _counted(value)
        if found is None and not isinstance(value, COUNTED_AS_NUMBERS) and isinstance(value, Real | Decimal):
            found = _rounded(value)
        if found is None:
            raise Misfit.of(value, wanted, "give whole numbers")
        return found

    high = 1 << (wanted.bit_width - int(pa.types.is_signed_integer(wanted)))
    low = -high if pa.types.is_signed_integer(wanted) else 0
    return Kind(frozenset({int, NONE}), other, returns=lambda value: type(value) is int and low <= value < high)


def _counted(value: Any) -> int | None:
    """An integer as Python's own. An array of NumPy is none: if it has one element, that may change."""
    return None if isinstance(value, np.ndarray) else integer(value)


def _rounded(value: Any) -> int | None:
    try:
        found = int(value)
    except (ValueError, OverflowError):
        return None
    return found if found == value else None


def _floats(wanted: pa.DataType) -> Kind:
    def other(value: Any) -> float | int:
        number = float(value) if isinstance(value, float | np.floating) else _counted(value)
        if number is None:
            raise Misfit.of(value, wanted, "give numbers")
        if wanted == pa.float32() and MAX_FLOAT < abs(number) < float("inf"):
            raise Misfit.of(value, wanted, f"give numbers up to {MAX_FLOAT:.3g}, or make the column a double")
        return number

    def fits(values: Sequence[Any]) -> bool:
        if not {float, NONE}.issuperset(map(type, values)):
            return False
        # None is NaN here.
        return not (np.abs(np.array(values, np.float64)) > MAX_FLOAT).any()

    if wanted == pa.float32():
        return Kind(frozenset(), other, fits=fits)
    return Kind(frozenset({float, int, NONE}), other, returns=lambda value: type(value) is float)


def _booleans(wanted: pa.DataType) -> Kind:
    def other(value: Any) -> bool:
        if isinstance(value, bool | np.bool_):
            return bool(value)
        raise Misfit.of(value, wanted, "give True or False")

    return Kind(frozenset({bool, NONE}), other, returns=lambda value: type(value) is bool)


def _strings(wanted: pa.DataType) -> Kind:
    def other(value: Any) -> str | bytes:
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, bytes):
            return value
        raise Misfit.of(value, wanted, "give strings")

    # Of other characters there are some that Arrow refuses.
    return Kind(frozenset({str, NONE}), other, returns=lambda value: type(value) is str and value.isascii())


def _binaries(wanted: pa.DataType) -> Kind:
    def other(value: Any) -> bytes:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        raise Misfit.of(value, wanted, "give bytes")

    return Kind(frozenset({bytes, NONE}), other, lasts=False, returns=lambda value: type(value) is bytes)


def _decimals(wanted: pa.DataType) -> Kind:
    def other(value: Any) -> Decimal | int:
        found = value if isinstance(value, Decimal) else _counted(value)
        if found is None:
            raise Misfit.of(value, wanted, "give Decimals")
        return found

    return Kind(frozenset({Decimal, int, NONE}), other)


def _nulls(wanted: pa.DataType) -> Kind:
    def other(value: Any) -> None:
        raise Misfit.of(value, wanted, "give None")

    return Kind(frozenset({NONE}), other)


def _dates(wanted: pa.DataType) -> Kind:
    def other(value: Any) -> date | int | None:
        if isinstance(value, date) and not isinstance(value, datetime):
            return value
        return _of_numpy(value, np.datetime64, "D", wanted, "give dates")

    return Kind(frozenset({date, NONE}), other, returns=lambda value: type(value) is date)


def _timestamps(wanted: pa.DataType) -> Kind:
    zoned = wanted.tz is not None
    remedy = f"give datetimes {'with' if zoned else 'without'} a time zone"

    def other(value: Any) -> datetime | int | None:
        if not isinstance(value, datetime):
            return _of_numpy(value, np.datetime64, wanted.unit, wanted, remedy)
        # pandas' NaT is a datetime, and not equal to itself; pandas' other ones have nanoseconds.
        if value != value or getattr(value, "nanosecond", False) or (value.utcoffset() is not None) != zoned:
            raise Misfit.of(value, wanted, remedy)
        return value

    def fits(values: Sequence[Any]) -> bool:
        if not {datetime, NONE}.issuperset(map(type, values)):
            return False
        zones = set(map(attrgetter("tzinfo"), filter(None, values)))
        return None not in zones if zoned else zones <= {None}

    return Kind(frozenset(), other, fits=fits)


def _durations(wanted: pa.DataType) -> Kind:
    def other(value: Any) -> timedelta | int | None:
        if not isinstance(value, timedelta):
            return _of_numpy(value, np.timedelta64, wanted.unit, wanted, "give timedeltas")
        if value != value or getattr(value, "nanoseconds", False):
            raise Misfit.of(value, wanted, "give whole microseconds")
        # As a number: Arrow stumbles over the longest that are below zero.
        return value // MICROSECOND if wanted.unit == "us" else value

    return Kind(frozenset({timedelta, NONE}), other)


def _times(wanted: pa.DataType) -> Kind:
    def other(value: Any) -> time | int:
        if isinstance(value, time) and value.tzinfo is None:
            return value
        found = _counted(value)
        if found is None or not 0 <= found < DAY_NS:
            raise Misfit.of(value, wanted, "give times of a day, without a time zone")
        return found

    def fits(values: Sequence[Any]) -> bool:
        present = [value for value in values if value is not None]
        return {time}.issuperset(map(type, present)) and {None}.issuperset(map(attrgetter("tzinfo"), present))

    return Kind(frozenset(), other, fits=fits)


def _of_numpy(value: Any, scalar: Any, unit: str, wanted: pa.DataType, remedy: str) -> int | None:
    """A moment or duration of NumPy as the number that Arrow has for it; an integer as it is."""
    if not isinstance(value, scalar):
        found = _counted(value)
        if found is None:
            raise Misfit.of(value, wanted, remedy)
        return found
    if np.isnat(value):
        return None
    exact = value.astype(f"{scalar.__name__}[{unit}]")
    if exact != value:
        raise Misfit.of(value, wanted, remedy)
    return int(exact.astype(np.int64))


def _lists(wanted: pa.DataType) -> Kind:
    element = kind_of(wanted.value_type)

    def other(value: Any) -> Sequence[Any]:
        if type(value) is list:
            # First, since to ask whether it is a mapping takes longer than all the rest.
            return element.all(value.copy())
        if not _is_collection(value):
            raise Misfit.of(value, wanted, "give lists")
        # NumPy's own moments and durations know their unit, which `tolist` forgets.
        numpy = isinstance(value, np.ndarray) and value.dtype.kind not in "mM"
        return element.all(value.tolist() if numpy else list(value))

    return Kind(frozenset({NONE}), other, lasts=False)


def _is_collection(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return hasattr(value, "__len__") and hasattr(value, "__iter__") and not isinstance(value, (*TEXTS, Mapping))


def _structs(wanted: pa.DataType) -> Kind:
    names = tuple(field.name for field in fields_of(wanted))
    kinds = [kind_of(field.type) for field in fields_of(wanted)]

    def other(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, tuple | list | dict):
            raise Misfit.of(value, wanted, "give tuples, lists, Rows or dicts")
        return tuple(kind.one(part) for kind, part in zip(kinds, in_order(value, names), strict=True))

    return Kind(frozenset({NONE}), other, lasts=False)


def _maps(wanted: pa.DataType) -> Kind:
    key, item = kind_of(wanted.key_type), kind_of(wanted.item_type)

    def other(value: Any) -> list[tuple[Any, Any]]:
        mapping = type(value) is dict or isinstance(value, Mapping)
        pairs: list[Any] = list(value.items()) if mapping else list(value) if _is_collection(value) else [None]
        if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            raise Misfit.of(value, wanted, "give dicts, or lists of pairs")
        return list(zip(key.all([k for k, _ in pairs]), item.all([v for _, v in pairs]), strict=True))

    return Kind(frozenset({NONE}), other, lasts=False)


_MAKERS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], Kind]]] = [
    (pa.types.is_integer, _integers),
    (lambda type: type in (pa.float32(), pa.float64()), _floats),
    (pa.types.is_boolean, _booleans),
    (lambda type: pa.types.is_string(type) or pa.types.is_large_string(type), _strings),
    (lambda type: pa.types.is_binary(type) or pa.types.is_large_binary(type), _binaries),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_null, _nulls),
    (pa.types.is_date32, _dates),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_duration, _durations),
    (lambda type: type == pa.time64("ns"), _times),
    (lambda type: pa.types.is_list(type) or pa.types.is_large_list(type), _lists),
    (pa.types.is_struct, _structs),
    (pa.types.is_map, _maps),
]
