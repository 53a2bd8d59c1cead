"""Would catch a row that is put in the wrong columns, changed on its way, or shown with what its state held later."""

from collections import Counter, OrderedDict, UserDict, deque, namedtuple
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row as SparkRow

from megaphone.dataflow.operators import Input, bin_operator, key_operator
from megaphone.dataflow.row import make_row
from megaphone.dataflow.rows import rows_to_batch
from megaphone.engine.local import LocalEngine
from megaphone.errors import FoldError, PlanError

INT, TEXT = pa.int64(), pa.string()
TWO = pa.schema([("word", TEXT), ("n", INT)])
ONE = pa.schema([("n", INT)])
POINT = pa.struct([("x", INT), ("y", INT)])
TAGS, COUNTS = pa.list_(TEXT), pa.map_(TEXT, INT)
INPUT = pa.schema([("k", TEXT), ("v", INT)])

Pair, Swapped, Other = namedtuple("Pair", "word n"), namedtuple("Swapped", "n word"), namedtuple("Other", "word m")


def column(kind):
    return pa.schema([("c", kind)])


def folded(give, output, rows=(("a", 1),), input=INPUT):
    """What comes of a fold per key that gives out `give(value, state)`, and of one per bin."""

    def per_key(key, val, state):
        state = state or []
        return state, give(val, state)

    def per_bin(time, data, state, notificator):
        return [row for given in data for row in give(given.v, state)]

    key, bin = (
        key_operator("give", Input(input, ("k",)), per_key, output),
        bin_operator("give", [Input(input, ("k",))], per_bin, output, list),
    )
    outputs = [LocalEngine(spec, 1, 2).epoch(list(rows)) for spec in (key, bin)]
    assert outputs[0] == outputs[1]
    return outputs[0]


def refusal(rows, schema):
    """What the user is told."""
    with pytest.raises(FoldError) as caught:
        folded(lambda v, state: rows, schema)
    assert str(caught.value).startswith("fold of operator give gave a misfit ")
    with pytest.raises(PlanError) as of_input:
        rows_to_batch(rows, schema)
    assert str(of_input.value) in str(caught.value)
    return str(of_input.value)


ALIKE = [
    ("a", 1),
    ["a", 1],
    {"word": "a", "n": 1},
    {"n": 1, "word": "a"},
    OrderedDict(n=1, word="a"),
    Pair("a", 1),
    Swapped(1, "a"),
    make_row(("word", "n"), ("a", 1)),
    make_row(("n", "word"), (1, "a")),
    SparkRow(word="a", n=1),
    SparkRow(n=1, word="a"),
    SparkRow("a", 1),
]


def test_tuples_lists_rows_and_dicts_are_rows():
    assert folded(lambda v, state: ALIKE, TWO) == [("a", 1)] * len(ALIKE)


@pytest.mark.parametrize(
    "row",
    ["ab", b"ab", 7, None, {"a", 1}, (x for x in "ab"), np.array(["a", "b"]), UserDict(word="a", n=1), object()],
    ids=lambda row: type(row).__name__,
)
def test_anything_else_is_refused_by_type_and_row(row):
    assert f"of type {type(row).__name__} is no row of word string, n int64; give a list of rows" in refusal([row], TWO)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"word": "a"}, "{'word': 'a'} has no 'n' for the columns word, n; name each column"),
        ({"word": "a", "n": 1, "m": 2}, "has a 'm' for the columns word, n; name each column"),
        ({"word": "a", "N": 1}, "has no 'n' and a 'N' for"),
        (
            Other("a", 1),
            "Other(word='a', m=1) has no 'n' and a 'm' for the columns word, n; name each column, or go by",
        ),
        (SparkRow(word="a", m=1), "has no 'n' and a 'm' for"),
        (make_row(("k", "v"), ("a", 1)), "Row(k='a', v=1) has no 'word', 'n' and a 'k', 'v' for"),
        (("a",), "('a',) has 1 values for 2 columns: word, n"),
        (["a", 1, 2], "['a', 1, 2] has 3 values for 2 columns: word, n"),
    ],
    ids=str,
)
def test_names_and_numbers_of_columns_must_be_right(row, reason):
    assert reason in refusal([("b", 1), row], TWO)


def test_every_row_is_judged_by_itself():
    rows = [1, (2,), [3], {"n": 4}, SparkRow(n=5), np.int64(6), None, (None,)]
    for first in range(len(rows)):
        turned = rows[first:] + rows[:first]
        assert sorted(folded(lambda v, state, turned=turned: turned, ONE), key=repr) == sorted(
            [(n,) for n in (1, 2, 3, 4, 5, 6, None, None)], key=repr
        )


@pytest.mark.parametrize(
    ("kind", "row", "value"),
    [
        (TAGS, (["a", "b"],), ["a", "b"]),
        (TAGS, [["a", "b"]], ["a", "b"]),
        (TAGS, {"c": ("a",)}, ["a"]),
        (TAGS, np.array(["a", "b"]), ["a", "b"]),
        (TAGS, {"a"}, ["a"]),
        (TAGS, [None], None),
        (COUNTS, ({"a": 1},), {"a": 1}),
        (COUNTS, {"c": {"a": 1}}, {"a": 1}),
        (COUNTS, UserDict(a=1), {"a": 1}),
        (POINT, ((1, 2),), {"x": 1, "y": 2}),
        (POINT, (SparkRow(y=2, x=1),), {"x": 1, "y": 2}),
        (POINT, {"c": {"x": 1, "y": 2}}, {"x": 1, "y": 2}),
    ],
    ids=str,
)
def test_what_could_be_a_row_is_one_and_only_what_could_not_is_a_bare_value(kind, row, value):
    assert folded(lambda v, state: [row], column(kind)) == [(value,)]


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        (TAGS, ["a", "b"]),
        (TAGS, ("a", "b")),
        (TAGS, ["ab"]),
        (COUNTS, {"a": 1}),
        (POINT, (1, 2)),
        (POINT, {"x": 1, "y": 2}),
        (POINT, SparkRow(x=1, y=2)),
    ],
    ids=str,
)
def test_bare_value_that_could_be_a_row_is_refused(kind, row):
    message = refusal([row], column(kind))
    assert "goes into a tuple: (value,)" in message or "column c of the row ['ab']: 'ab' of type str is no" in message


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        (("a", 1), TWO),
        ("ab", column(TEXT)),
        (b"ab", column(INT)),
        ({"n": 1}, ONE),
        (Pair("a", 1), column(INT)),
        (SparkRow(n=1, m=2), column(INT)),
        (7, ONE),
        (pa.table({"n": [1]}), ONE),
    ],
    ids=str,
)
def test_what_is_no_list_of_rows_is_refused_as_a_whole(given, schema):
    """`return state, (key, n)` is the usual slip."""
    for spec in (
        key_operator("give", Input(INPUT, ("k",)), lambda *_: (1, given), schema),
        bin_operator("give", [Input(INPUT, ("k",))], lambda *_: given, schema, dict),
    ):
        with pytest.raises(
            FoldError, match=r"gave a misfit in bin \d at time 0 on worker 0: .* is no (row|list of row)"
        ):
            LocalEngine(spec, 1, 2).epoch([("a", 1)])


def kind(value):
    """Not its text, which may have an address in it: two processes must find the same tests."""
    return type(value).__name__


@pytest.mark.parametrize(
    "given", [None, [], (), [("a", 1)], (("a", 1),), iter([("a", 1)]), {"a": 1}.items(), deque([("a", 1)])], ids=kind
)
def test_rows_come_in_any_iterable(given):
    spec = key_operator("give", Input(INPUT, ("k",)), lambda *_: (1, given), TWO)
    assert LocalEngine(spec, 1, 2).epoch([("a", 1)]) in ([], [("a", 1)])


@pytest.mark.parametrize("result", [None, 7, "ab", {"a": 1, "b": 2}, (1,), (1, [], []), (row for row in ())], ids=kind)
def test_fold_per_key_returns_a_state_and_rows(result):
    spec = key_operator("give", Input(INPUT, ("k",)), lambda *_: result, TWO)
    with pytest.raises(FoldError, match="is no pair of a state and rows; write: return state, rows"):
        LocalEngine(spec, 1, 2).epoch([("a", 1)])


CHANGING = {
    "list": (TAGS, lambda state: (state,), lambda v, state: state.append(str(v))),
    "list of lists": (pa.list_(TAGS), lambda state: ([state],), lambda v, state: state.append(str(v))),
    "list in a dict": (
        pa.struct([("t", TAGS)]),
        lambda state: ({"t": state},),
        lambda v, state: state.append(str(v)),
    ),
    "row itself": (INT, lambda state: state, lambda v, state: state.__setitem__(slice(None), [v])),
    "array": (pa.list_(INT), lambda state: (state[0],), lambda v, state: grown(state, np.zeros(2, np.int64), v)),
    "bytearray": (pa.binary(), lambda state: (state[0],), lambda v, state: grown(state, bytearray(2), v)),
    "bare bytearray": (pa.binary(), lambda state: state[0], lambda v, state: grown(state, bytearray(2), v)),
    "map": (COUNTS, lambda state: (state[0],), lambda v, state: counted(state, v)),
    "map as a row": (INT, lambda state: state[0], lambda v, state: counted(state, v)),
}


def grown(state, new, v):
    state[:] = state or [new]
    state[0][v % 2] = v


def counted(state, v):
    state[:] = state or [{}]
    state[0]["c"] = v


@pytest.mark.parametrize("case", CHANGING)
def test_row_is_what_it_was_when_it_was_given_out(case):
    """However many records there are in an epoch, and whether the fold returns a list or yields."""
    kind, row_of, change = CHANGING[case]

    def per_key(key, v, state):
        state = [] if state is None else state
        change(v, state)
        return state, [row_of(state)]

    def per_bin(time, data, state, notificator):
        for row in data:
            change(row.v, state)
            yield row_of(state)

    rows = [("a", n) for n in range(1, 6)]
    for spec in (
        key_operator("give", Input(INPUT, ("k",)), per_key, column(kind)),
        bin_operator("give", [Input(INPUT, ("k",))], per_bin, column(kind), list),
    ):
        together, apart = LocalEngine(spec, 1, 2), LocalEngine(spec, 1, 2)
        assert together.epoch(rows) == [out for row in rows for out in apart.epoch([row])]


KEEP = pa.schema([("k", INT), ("at", INT), ("tags", TAGS), ("counts", COUNTS), ("d", pa.float64()), ("p", POINT)])


def test_postdated_row_is_what_it_was_whether_it_falls_due_now_or_later():
    """In content and in form: a tuple for a struct comes back as the dict it would be after a wait."""

    def fold(time, data, state, notificator):
        for row in data:
            if row.k:
                state.setdefault("tags", []).append(str(row.k))
                given = (row.k - 1, time + 5, state["tags"], [("n", row.k)], row.k, (1, np.int64(2)))
                notificator.notify_at(time + 5, given)
                state["tags"].append("later")
            yield (repr(tuple(row)),)

    spec = bin_operator("keep", [Input(KEEP, ("k",), "at")], fold, column(TEXT), dict)
    first = (3, 0, [], {}, 0.0, None)
    now, later = LocalEngine(spec, 1, 2), LocalEngine(spec, 1, 2)
    due = now.epoch([first, (0, 100, None, None, None, None)]) + now.close()
    waited = later.epoch([first])
    for at in (6, 11, 16, 100):
        waited += later.epoch([(0, at, None, None, None, None)] if at == 100 else [(0, at, [], {}, 1.0, None)])
    waited += later.close()
    assert "(2, 5, ['3'], {'n': 3}, 3.0, {'x': 1, 'y': 2})" in str(due)
    assert [row for row in waited if "{}, 1.0" not in str(row)] == due


def test_postdated_row_is_taken_as_rows_are():
    def fold(time, data, state, notificator):
        if data[0].v:
            notificator.notify_at(time, {"v": 0, "k": data[0].k})
            return []
        return data

    spec = bin_operator("keep", [Input(INPUT, ("k",))], fold, INPUT, dict)
    assert LocalEngine(spec, 1, 2).epoch([("a", 1)]) == [("a", 0)]
    for wrong, reason in (("ab", "of type str is no row"), ((1,), "has 1 values"), ({"k": "a"}, "has no 'v'")):
        spec = bin_operator("keep", [Input(INPUT, ("k",))], lambda *_, w=wrong: _[-1].notify_at(9, w), INPUT, dict)
        with pytest.raises(FoldError, match=f"ValueError: a record cannot be post-dated: .*{reason}"):
            LocalEngine(spec, 1, 2).epoch([("a", 1)])


def test_null_is_refused_where_the_output_forbids_it():
    for kind, value in {
        INT: None,
        pa.list_(pa.field("element", INT, nullable=False)): [None],
        pa.struct([pa.field("x", INT, nullable=False)]): (None,),
    }.items():
        schema = pa.schema([pa.field("c", kind, nullable=value is not None)])
        message = "gave a misfit on worker 0: null in the column c, which is declared NOT NULL"
        with pytest.raises(FoldError, match=message):
            folded(lambda v, state, value=value: [(value,)], schema)


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
        for spec, name in (
            (key_operator("see", Input(schema, ("k",)), lambda *_: (1, []), column(INT)), "column at: "),
            (key_operator("see", Input(schema, ("at",)), lambda *_: (1, []), column(INT)), ""),
            (bin_operator("see", [Input(schema, ("k",))], lambda *_: [], column(INT), dict), "column at: "),
        ):
            with pytest.raises(FoldError, match=f"cannot be given its rows: {name}.*{reason}"):
                LocalEngine(spec, 1, 2).epoch([(1, count)])


def test_input_of_the_local_engine_is_taken_by_the_same_rules():
    engine = LocalEngine(bin_operator("echo", [Input(TWO, ("word",))], lambda t, d, *_: d, TWO, dict), 1, 2)
    assert engine.epoch([{"n": 1, "word": "ab"}, ("c", 2)]) == [("ab", 1), ("c", 2)]
    with pytest.raises(PlanError, match="'ab' of type str is no row"):
        engine.epoch(["ab"])


def test_long_rows_are_shown_short_and_harmless():
    message = refusal([("a" * 10**6, "\x1b[2J" * 10**5)], TWO)
    assert len(message) < 500
    assert "\x1b" not in message


def test_counter_of_days_and_microseconds_is_an_integer():
    """What folds count in, as the times they are called with, can be given out as it is."""
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("long", pa.duration("us"))])
    assert folded(lambda v, state: [(1_000_000, 1, 7)], schema) == [
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), date(1970, 1, 2), timedelta(microseconds=7))
    ]


def test_counter_object_is_a_row_by_name():
    assert folded(lambda v, state: [Counter(x=2, y=1)], pa.schema([("y", INT), ("x", INT)])) == [(1, 2)]
