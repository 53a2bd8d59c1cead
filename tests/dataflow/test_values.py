"""Would catch a value that becomes another one on its way to a fold, through it, or out of it."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction
from operator import itemgetter
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megaphone.dataflow.folds import vectorised
from megaphone.dataflow.misfit import Misfit
from megaphone.dataflow.operators import Input, bin_operator, key_operator
from megaphone.dataflow.rows import columns_to_rows, rows_to_batch
from megaphone.dataflow.values import to_array, to_values
from megaphone.engine.local import LocalEngine
from megaphone.progress import END

BERLIN = ZoneInfo("Europe/Berlin")
ZONED, CLOCK = pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us")
NOON = datetime(2026, 6, 1, 12, tzinfo=BERLIN)
PAIR = pa.struct([("x", pa.int64()), ("y", pa.string())])


class Level(IntEnum):
    HIGH = 3


class Name(StrEnum):
    A = "a"


TAKEN = {
    pa.int64(): [
        (2.0, 2),
        (np.int32(3), 3),
        (np.float64(4), 4),
        (Decimal(5), 5),
        (Level.HIGH, 3),
        (pa.scalar(7), 7),
        (pa.scalar(None), None),
    ],
    pa.float64(): [(1, 1.0), (np.float32(0.5), 0.5), (np.int8(2), 2.0), (float("inf"), float("inf"))],
    pa.float32(): [(0.1, float(np.float32(0.1))), (-float("inf"), -float("inf")), (3, 3.0)],
    pa.bool_(): [(np.bool_(True), True)],
    pa.string(): [(Name.A, "a"), (np.str_("b"), "b"), (b"c", "c"), ("\0", "\0")],
    pa.binary(): [(bytearray(b"a"), b"a"), (memoryview(b"abc")[::2], b"ac"), ("é", "é".encode())],
    pa.decimal128(5, 2): [(1, Decimal("1.00")), (np.int64(2), Decimal(2)), (Decimal("1.2"), Decimal("1.20"))],
    pa.date32(): [(np.datetime64("2026-06-01"), date(2026, 6, 1)), (np.datetime64("NaT"), None)],
    ZONED: [
        (NOON.astimezone(UTC), NOON),
        (pd.Timestamp(NOON), NOON),
        (np.datetime64("2026-06-01T10:00"), NOON),
        (datetime(1890, 1, 1, tzinfo=BERLIN), datetime(1890, 1, 1, tzinfo=BERLIN)),
    ],
    CLOCK: [(pd.Timestamp("2026-06-01"), datetime(2026, 6, 1)), (np.datetime64(5, "s"), datetime(1970, 1, 1, 0, 0, 5))],
    pa.duration("us"): [(pd.Timedelta(1, "s"), timedelta(seconds=1)), (np.timedelta64(1, "ms"), timedelta(0, 0, 1000))],
    pa.time64("ns"): [(1000, time(0, 0, 0, 1))],
    pa.list_(pa.int64()): [(np.array([1.0, 2]), [1, 2]), (range(2), [0, 1]), ((1, 2.0), [1, 2])],
    pa.list_(CLOCK): [(np.array([5], "M8[s]"), [datetime(1970, 1, 1, 0, 0, 5)])],
    pa.list_(pa.list_(pa.int8())): [(np.array([[1], [2]]), [[1], [2]])],
    PAIR: [((1, "a"), {"x": 1, "y": "a"}), ([1, "a"], {"x": 1, "y": "a"}), ({"y": "a", "x": 1}, {"x": 1, "y": "a"})],
    pa.map_(pa.string(), pa.int64()): [([["a", 1]], {"a": 1}), ({"a": 1}.items(), {"a": 1}), ([], {})],
}


@pytest.mark.parametrize("kind", TAKEN, ids=str)
def test_value_is_taken_if_the_column_holds_it_as_it_is(kind):
    for value, held in TAKEN[kind]:
        assert to_values(to_array([value, None], kind)) == [held, None]
        assert to_values(to_array([None, value], kind)) == [None, held]


NAIVE = datetime(2026, 6, 1, 12)
REFUSED = {
    pa.int64(): [1.5, True, np.True_, "1", Decimal("1.5"), Fraction(3, 2), float("nan"), 2**63, np.array(5), 1e30],
    pa.int8(): [128, -129],
    pa.float64(): [True, "1", 2**53 + 1, Decimal(1), np.True_],
    pa.float32(): [1e300, np.float64(1e39), True, 10**400],
    pa.bool_(): [1, 0.0, "true"],
    pa.string(): [1, 1.5, True, bytearray(b"a"), b"\xff", "\ud800", NAIVE],
    pa.binary(): [1, [1, 2], np.array([1], np.uint8)],
    pa.decimal128(5, 2): [1.5, True, Decimal("1.234"), Decimal("12345"), Decimal("NaN"), "1.5"],
    pa.date32(): [NAIVE, 1.5, "2026-06-01", np.datetime64("2026-06-01T23:00"), True, pd.Timestamp("2026-06-01")],
    ZONED: [NAIVE, pd.Timestamp(1500, tz="UTC"), 1.5, date(2026, 6, 1), pd.NaT, np.datetime64(1500, "ns"), "2026"],
    CLOCK: [NOON, 1.5, date(2026, 6, 1), pd.Timestamp(1500), pd.Timestamp(NOON)],
    pa.duration("us"): [1.5, pd.Timedelta(1500, "ns"), np.timedelta64(1500, "ns"), time(1), True],
    pa.time64("ns"): [time(1, tzinfo=UTC), -1, 86_400 * 10**9, timedelta(1), 1.5],
    pa.list_(pa.int64()): [
        [1.5],
        [True],
        "12",
        b"12",
        {1: 2},
        np.array([1.5]),
        np.array([True]),
        np.array(1),
        iter([]),
    ],
    pa.list_(pa.string()): ["ab", [1]],
    pa.list_(pa.int32()): [np.array([5], "m8[us]"), np.array([5], "m8[ns]")],
    PAIR: [(1,), (1, "a", 2), {"x": 1}, {"x": 1, "y": "a", "z": 2}, {"x": 1.5, "y": "a"}, "xy", 5, {1, 2}],
    pa.map_(pa.string(), pa.int64()): [{"a": 1.5}, {1: 1}, [(None, 1)], ["ab"], [("a",)], "ab", 5, {None: 1}],
    pa.null(): [1],
}


@pytest.mark.parametrize("kind", REFUSED, ids=str)
def test_value_is_refused_if_the_column_would_hold_another(kind):
    for value in REFUSED[kind]:
        for values in ([value], [None, value]):
            with pytest.raises(Misfit):
                to_array(values, kind)


def test_refusal_names_the_value_its_type_and_the_remedy():
    with pytest.raises(Misfit, match=r"^1.5 of type float is no int64; give whole numbers$"):
        to_array([1, 1.5], pa.int64())
    with pytest.raises(Misfit, match=r"of type datetime is no timestamp\[us\]; give datetimes without a time zone$"):
        to_array([NOON], CLOCK)


ZONES = ["Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns", "+05:30"]
MICROS = st.integers(-62_000_000_000_000_000, 253_000_000_000_000_000)
# Within a few weeks of a change of the clock, so that gaps and repeated hours are drawn often.
SOON = st.integers(1_792_000_000_000_000 // 10**9, 1_793_500_000_000_000 // 10**9).map(lambda n: n * 10**9 + 123_456)
LEAVES = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), END)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=4)),
    (pa.binary(), st.binary(max_size=4)),
    (pa.decimal128(38, 18), st.decimals(-(10**19), 10**19, places=18)),
    (pa.decimal128(5, 0), st.integers(-99_999, 99_999).map(Decimal)),
    (pa.date32(), st.dates()),
    (CLOCK, st.datetimes()),
    (pa.duration("us"), st.integers(-(2**63), END)),
    (pa.time64("ns"), st.times()),
    (pa.null(), st.none()),
    *((pa.timestamp("us", zone), MICROS | SOON) for zone in ZONES),
]


def wrapped(inner):
    """A type with one more layer, and values of it."""
    kind, values = inner
    values = values | st.none()
    struct = pa.struct([("a b", kind), ("_1", pa.int64())])
    return st.sampled_from(
        [
            (pa.list_(kind), st.lists(values, max_size=3)),
            (struct, st.tuples(values, st.integers(0, 9))),
            (pa.map_(pa.string(), kind), st.lists(st.tuples(st.text("ab"), values), max_size=3)),
            *([] if kind == pa.null() else [(pa.map_(kind, kind), st.lists(st.tuples(inner[1], values), max_size=3))]),
        ]
    )


KINDS = st.recursive(st.sampled_from(LEAVES), lambda inner: inner.flatmap(wrapped), max_leaves=2)
COLUMNS = KINDS.flatmap(lambda kind: st.tuples(st.just(kind[0]), st.lists(kind[1] | st.none(), min_size=1, max_size=4)))


def per_key(key, val, state):
    return 1, [(key, val)]


def per_bin(time, data, state, notificator):
    for row in data:
        yield row._asdict()


def postdated(time, data, state, notificator):
    for row in data:
        if row.n in state:
            yield row
        else:
            state[row.n] = notificator.notify_at(time + row.n % 2, row)


@vectorised
def in_arrow(records, states, notificator):
    return records.data


@vectorised
def in_python(records, states, notificator):
    return {name: to_values(records.data[name]) for name in records.data.schema.names}


@settings(max_examples=40)
@given(drawn=COLUMNS)
def test_row_that_is_given_out_unchanged_is_the_same_at_every_depth(drawn):
    kind, values = drawn
    batch = pa.record_batch([pa.array(range(len(values))), pa.array(values, kind)], ["n", "c"])
    schema, rows = batch.schema, columns_to_rows(batch)
    for fold in (per_key, per_bin, postdated, in_arrow, in_python):
        inputs = Input(schema, ("n",)), (Input(schema, ("n",)),)
        build = bin_operator if fold in (per_bin, postdated) else key_operator
        engine = LocalEngine(build("echo", inputs[build is bin_operator], fold, schema, dict), 1, 2)
        outputs = sorted(engine.epoch(rows) + engine.close(), key=itemgetter(0))
        assert rows_to_batch(outputs, schema).equals(batch)


def test_not_a_number_and_the_zero_below_zero_stay_what_they_are():
    for kind in (pa.float32(), pa.float64(), pa.list_(pa.float64()), pa.map_(pa.float64(), pa.float64())):
        numbers = [float("nan"), -0.0, 0.0]
        value = [*zip(numbers, numbers, strict=True)] if pa.types.is_map(kind) else numbers
        column = pa.array([value] if pa.types.is_nested(kind) else numbers, kind)
        assert str(to_array(to_values(column), kind)) == str(column)
