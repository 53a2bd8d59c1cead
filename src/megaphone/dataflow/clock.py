"""Clocks: what a user may give as a time, or as a length of time, where a column tells it.

A time is a whole number in the unit of its column. Of a timestamp that is a microsecond, so datetimes and timedeltas
can be given as well; where no unit is known they are refused, as is everything that would have to be rounded.
"""

from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from megaphone.checks import whole
from megaphone.dataflow.misfit import Misfit
from megaphone.dataflow.values import to_array
from megaphone.errors import PlanError
from megaphone.progress import BEGIN, END, Time


def is_clock(kind: pa.DataType) -> bool:
    """Can the times of records be in a column of this type?"""
    return bool(pa.types.is_integer(kind)) or bool(pa.types.is_timestamp(kind) and kind.unit == "us")


def moment(value: Any, clock: pa.DataType | None) -> Time:
    """A time that a fold gives, on the clock of an input; None is the epoch's.

    >>> moment(7, None), moment(datetime(1970, 1, 1, 0, 0, 7), pa.timestamp("us"))
    (7, 7000000)
    """
    if type(value) is int and BEGIN <= value <= END:
        return Time(value)
    if clock is not None and pa.types.is_timestamp(clock) and isinstance(value, datetime | np.datetime64):
        try:
            value = to_array([value], clock).cast(pa.int64())[0].as_py()
        except Misfit as misfit:
            raise PlanError(f"a record cannot be post-dated: {misfit}") from None
    return Time(whole(value, "a record cannot be post-dated to {}"))


def span(value: Any, column: str | None, clock: pa.DataType | None) -> int:
    """A lateness, on the clock of a column; None is the epoch's.

    >>> span(timedelta(seconds=1), "at", pa.timestamp("us")), span(5, "at", pa.int64())
    (1000000, 5)
    """
    if isinstance(value, timedelta):
        value = _microseconds(value, column, clock)
    late = whole(value, "lateness {}", 0)
    if late and clock is None:
        raise PlanError(f"lateness {late} without a time column; name it with time=, or leave lateness out")
    return late


def _microseconds(value: timedelta, column: str | None, clock: pa.DataType | None) -> int:
    if clock is None or not pa.types.is_timestamp(clock):
        where = "without a time column" if clock is None else f"for the time column '{column}' of type {clock}"
        raise PlanError(f"lateness of a timedelta {where}; give a number in the unit of its column")
    late = value // timedelta(microseconds=1)
    # Durations of pandas have nanoseconds.
    if late * timedelta(microseconds=1) != value:
        raise PlanError(f"lateness {value}; choose whole microseconds")
    return late
