"""Would catch a time that is rounded, or counted in a unit that nobody said."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from megaphone.dataflow.operators import Input, bin_operator
from megaphone.engine.local import LocalEngine
from megaphone.errors import FoldError, PlanError

LONG, ZONED, CLOCK = pa.int64(), pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us")


def input_of(kind, lateness=0):
    """By the epoch if there is no type for a time column."""
    schema = pa.schema([("k", pa.int64()), *([("at", kind)] if kind else [])])
    return Input(schema, ("k",), "at" if kind else None, lateness)


@pytest.mark.parametrize(
    ("kind", "lateness", "micros"),
    [
        (LONG, 5, 5),
        (LONG, np.int32(5), 5),
        (None, 0, 0),
        (ZONED, timedelta(seconds=1), 1_000_000),
        (CLOCK, timedelta(seconds=1), 1_000_000),
        (ZONED, pd.Timedelta(1, "ms"), 1000),
        (ZONED, 7, 7),
    ],
)
def test_lateness_is_a_number_in_the_unit_of_its_column(kind, lateness, micros):
    assert (input_of(kind, lateness).lateness, type(input_of(kind, lateness).lateness)) == (micros, int)


@pytest.mark.parametrize(
    ("kind", "lateness", "reason"),
    [
        (LONG, timedelta(1), "lateness of a timedelta for the time column 'at' of type int64; give a number"),
        (None, timedelta(1), "lateness of a timedelta without a time column; give"),
        (None, 5, "lateness 5 without a time column; name it with time=, or leave lateness out"),
        (LONG, 1.5, "lateness 1.5; choose a whole number, 0 or more"),
        (LONG, 2.0, "lateness 2.0; choose a whole number"),
        (LONG, "5", "lateness '5'; choose a whole number"),
        (LONG, True, "lateness True; choose a whole number"),
        (LONG, None, "lateness None; choose a whole number"),
        (ZONED, 1.5, "lateness 1.5; choose a whole number"),
        (ZONED, timedelta(-1), "lateness -86400000000; choose 0 or more"),
        (ZONED, timedelta.max, "lateness 86399999999999999999; choose 0 to 9223372036854775807"),
        (ZONED, pd.Timedelta(1500, "ns"), "choose whole microseconds"),
        (ZONED, np.timedelta64(5, "s"), "lateness 5 seconds; choose a whole number"),
        (LONG, 2**63, "lateness 9223372036854775808; choose 0 to 9223372036854775807"),
    ],
)
def test_lateness_that_is_none_is_refused(kind, lateness, reason):
    with pytest.raises(PlanError, match=f"^.*{reason}"):
        input_of(kind, lateness)


@pytest.mark.parametrize("kind", [pa.string(), pa.date32(), pa.float64(), pa.timestamp("ns")], ids=str)
def test_time_column_of_another_type_is_refused(kind):
    with pytest.raises(PlanError, match=r"time column 'at' is of type .*; choose long or timestamp"):
        input_of(kind)


def test_times_with_and_without_a_zone_are_not_mixed():
    inputs = [input_of(ZONED), input_of(CLOCK)]
    with pytest.raises(
        PlanError, match="operator pair has times with a zone at one input, and without at the other; cast"
    ):
        bin_operator("pair", inputs, print, input_of(LONG).schema, dict)


def postdate(kind, when, epochs=1):
    """The times at which a fold is called that post-dates its first record to `when(time, row)`."""
    calls = []

    def fold(time, data, state, notificator):
        calls.append(time)
        if len(calls) == 1:
            notificator.notify_at(when(time, data[0]), data[0])

    engine = LocalEngine(bin_operator("post", [input_of(kind)], fold, input_of(LONG).schema, dict), 1, 2)
    engine.epoch([(1, 10)[: 1 + (kind is not None)]])
    engine.close()
    return calls


WHOLE = [
    (None, lambda time, row: time + np.int64(2), 2),
    (LONG, lambda time, row: np.uint8(12), 12),
    (ZONED, lambda time, row: row.at + timedelta(seconds=1), 1_000_010),
    (ZONED, lambda time, row: datetime(1970, 1, 2, tzinfo=UTC), 86_400_000_000),
    (CLOCK, lambda time, row: row.at + timedelta(seconds=1), 1_000_010),
    (CLOCK, lambda time, row: np.datetime64(1, "s"), 1_000_000),
]


@pytest.mark.parametrize(("kind", "when", "time"), WHOLE)
def test_record_is_postdated_to_a_number_or_to_a_datetime_of_its_column(kind, when, time):
    assert postdate(kind, when)[1:] == [time]


@pytest.mark.parametrize(
    ("kind", "when", "reason"),
    [
        (None, lambda time, row: time + 1.9, "PlanError: a record cannot be post-dated to 1.9; choose a whole number"),
        (LONG, lambda time, row: time + 2.0, "PlanError: a record cannot be post-dated to 12.0; choose a whole number"),
        (LONG, lambda time, row: True, "post-dated to True; choose a whole number"),
        (LONG, lambda time, row: None, "post-dated to None; choose a whole number"),
        (LONG, lambda time, row: 2**63, "post-dated to 9223372036854775808; choose"),
        (LONG, lambda time, row: 2**63 - 1, "no time is that late"),
        (LONG, lambda time, row: datetime(2026, 1, 1), "post-dated to <datetime>; choose a whole number"),
        (None, lambda time, row: datetime(2026, 1, 1), "post-dated to <datetime>; choose a whole number"),
        (ZONED, lambda time, row: timedelta(1), "post-dated to <timedelta>; choose a whole number"),
        (ZONED, lambda time, row: datetime(2026, 1, 1), "give datetimes with a time zone"),
        (CLOCK, lambda time, row: datetime(2026, 1, 1, tzinfo=UTC), "give datetimes without a time zone"),
        (CLOCK, lambda time, row: pd.NaT, "give datetimes without a time zone"),
        (CLOCK, lambda time, row: row.at - timedelta(1), "before its own time 10"),
    ],
)
def test_record_is_not_postdated_to_anything_else(kind, when, reason):
    with pytest.raises(FoldError, match=reason):
        postdate(kind, when)


def test_time_without_a_zone_is_taken_as_written():
    """Also in an hour that the clock of the session's zone leaves out: 02:30 came after 03:00."""
    calls = []
    spec = bin_operator("see", [input_of(CLOCK)], lambda time, *_: calls.append(time), input_of(LONG).schema, dict)
    written = [datetime(2026, 3, 29, 3), datetime(2026, 3, 29, 2, 30), datetime(2026, 3, 29, 1, 59)]
    engine = LocalEngine(spec, 1, 2)
    engine.epoch([(1, at) for at in written])
    engine.close()
    assert calls == sorted(int(at.replace(tzinfo=UTC).timestamp()) * 1_000_000 for at in written)
