"""Would catch a map that loses a key on its way to a fold, and a value that becomes another one."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from megaphone.dataflow.operators import Input, bin_operator, key_operator
from megaphone.engine.local import LocalEngine
from megaphone.errors import FoldError

INT, TEXT = pa.int64(), pa.string()
TWO = pa.schema([("word", TEXT), ("n", INT)])
ONE = pa.schema([("n", INT)])
POINT = pa.struct([("x", INT), ("y", INT)])
TAGS, COUNTS = pa.list_(TEXT), pa.map_(TEXT, INT)
INPUT = pa.schema([("k", TEXT), ("v", INT)])


def column(kind):
    return pa.schema([("c", kind)])


def test_map_reaches_a_fold_as_a_dict_where_its_keys_can():
    kinds = [COUNTS, pa.map_(POINT, INT), pa.map_(TEXT, TAGS), pa.list_(COUNTS), pa.struct([("m", COUNTS)])]
    kinds.append(pa.map_(TEXT, COUNTS))
    schema = pa.schema([("k", INT), *((f"m{place}", kind) for place, kind in enumerate(kinds))])
    seen = []
    spec = key_operator("see", Input(schema, ("k",)), lambda k, v, s: seen.append(tuple(v)) or (1, []), column(INT))
    twice = [("a", 1), ("a", 2)]
    given = [{"a": 1}, [((1, 2), 3)], {"b": ["x"]}, [{"a": 1}, None, twice], ({"a": 1},), {"a": {"b": 1}, "c": None}]
    LocalEngine(spec, 1, 2).epoch([(1, *given), (2, *[None] * len(kinds)), (3, {}, [], {}, [], (None,), {})])
    assert sorted(seen, key=str) == [
        (None,) * len(kinds),
        ({"a": 1}, [({"x": 1, "y": 2}, 3)], {"b": ["x"]}, [{"a": 1}, None, twice], {"m": {"a": 1}}, given[-1]),
        ({}, [], {}, [], {"m": None}, {}),
    ]


def test_map_with_both_times_of_a_repeated_hour_keeps_both():
    schema = pa.schema([("k", INT), ("m", pa.map_(pa.timestamp("us", "Europe/Berlin"), INT))])
    hours = [(datetime(2026, 10, 25, hour, 30, tzinfo=UTC), hour) for hour in (0, 1)]
    engine = LocalEngine(bin_operator("echo", [Input(schema, ("k",))], lambda t, d, *_: d, schema, dict), 1, 2)
    (row,) = engine.epoch([(1, hours)])
    assert [(at.astimezone(UTC), n) for at, n in row.m] == hours


def test_value_that_python_cannot_say_is_an_error_that_names_its_column():
    for kind, count, reason in (
        (pa.timestamp("us", "UTC"), 2**62, "(out of range|magnitude)"),
        (pa.date32(), 2**30, "(out of range|magnitude)"),
        (pa.time64("ns"), 5, "a time with nanoseconds"),
        (pa.list_(pa.time64("ns")), [5], "a time with nanoseconds"),
    ):
        schema = pa.schema([("k", INT), ("at", kind)])
        for spec in (
            key_operator("see", Input(schema, ("k",)), lambda *_: (1, []), column(INT)),
            bin_operator("see", [Input(schema, ("k",))], lambda *_: [], column(INT), dict),
        ):
            with pytest.raises(FoldError, match=f"cannot be given its rows: column at: .*{reason}"):
                LocalEngine(spec, 1, 2).epoch([(1, count)])
