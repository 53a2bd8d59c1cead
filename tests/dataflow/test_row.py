"""Would catch a column that is found under another's name, and a row that is less than a tuple."""

import copy
import gc
import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megaphone.bins import BinId
from megaphone.dataflow.folds import vectorised
from megaphone.dataflow.operators import Input, bin_operator, key_operator
from megaphone.dataflow.row import Row, make_row, make_rows, names_of
from megaphone.dataflow.state import Parcel, pack, unpack
from megaphone.durability.text import text_of
from megaphone.engine.local import LocalEngine
from megaphone.errors import PlanError

ODD = (
    "_2", "_1", "a b", "a.b", "class", "def", "count", "index", "_fields", "_asdict", "_replace", "_make", "__len__",
    "__class__", "__fields__", "__places__", "__getitem__", "__reduce__", "__new__", "é", "名", "", "1", "a`b", "self",
    "mro", "None", "\ud800", "__x", "values", "keys",
)  # fmt: skip
NAMES = st.lists(st.one_of(st.sampled_from(ODD), st.text(max_size=5)), unique=True, min_size=1, max_size=8)


@given(NAMES)
def test_every_column_is_found_by_its_name_and_by_no_other(names):
    row = make_row(tuple(names), range(len(names)))
    for place, name in enumerate(names):
        assert row[name] == row[place] == place
        if not (name.startswith("__") and name.endswith("__")):
            assert getattr(row, name) == place
    assert row == tuple(range(len(names)))
    assert pickle.loads(pickle.dumps(row))[names[-1]] == len(names) - 1
    assert names_of(row) == tuple(names)
    assert len(row) == len(names)


def test_all_odd_names_at_once():
    row = make_row(ODD, range(len(ODD)))
    assert [row[name] for name in ODD] == list(range(len(ODD)))
    assert (row._1, row._2, row.count, row.index, getattr(row, "a b"), getattr(row, "class")) == (1, 0, 6, 7, 2, 4)
    assert copy.deepcopy(row) == copy.copy(row) == row
    assert text_of(make_row(("_fields", "n"), ([], 1))) == '{"_fields":[],"n":1}'


def test_rows_of_many_columns_are_made_while_memory_is_cleared():
    """The class that lends its attributes once went while they were taken from it."""
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for size in range(30):
            assert make_row(tuple(f"c{place}" for place in range(size)), range(size)) == tuple(range(size))
    finally:
        gc.set_threshold(*before)


def test_row_is_a_tuple():
    row, other = make_rows(("word", "n"), [("a", 2), ("a", 10)])
    assert row == ("a", 2)
    assert hash(row) == hash(("a", 2))
    assert row < other
    assert {row: 1}["a", 2] == 1
    assert row[0:1] == ("a",)
    assert row[-1] == 2
    assert (*row, 3) == ("a", 2, 3)
    assert (row._fields, row._asdict()) == (("word", "n"), {"word": "a", "n": 2})
    assert repr(row._replace(n=3)) == "Row(word='a', n=3)"
    assert type(row)("b", 1) == type(row)._make(["b", 1]) == ("b", 1)
    match row:
        case Row("a", n=n):
            assert n == 2


def test_what_a_row_does_not_have_is_an_error_that_says_what_it_has():
    row = make_row(("word", "n"), ("a", 2))
    with pytest.raises(KeyError, match="no column 'm'; the row has word, n"):
        row["m"]
    with pytest.raises(ValueError, match="no column 'm'; the row has word, n"):
        row._replace(m=1)
    with pytest.raises(AttributeError):
        _ = row.m
    with pytest.raises(TypeError, match="1 values for a row of 2 columns: word, n"):
        type(row)("a")


@pytest.mark.parametrize("keys", [("_2",), ("_1", "a b")], ids=str)
def test_folds_see_columns_by_name(keys):
    """As `createDataFrame` names those of tuples."""
    names = ["_1", "_2", "_3", "a b", "count"]
    schema, output = (pa.schema([(name, pa.int64()) for name in names[:size]]) for size in (5, 1))
    seen = []

    def per_key(key, val, state):
        seen.extend([*(val[name] for name in names if name not in keys), *([key] if len(keys) == 1 else key)])
        return val, []

    def per_bin(time, data, state, notificator):
        seen.extend([data[0]._1, data[0]._2, data[0]._3, data[0]["a b"], data[0].count])

    LocalEngine(key_operator("see", Input(schema, keys), per_key, output), 1, 2).epoch([(1, 2, 3, 4, 5)])
    assert sorted(seen) == [1, 2, 3, 4, 5]
    seen.clear()
    LocalEngine(bin_operator("see", [Input(schema, keys)], per_bin, output, dict), 1, 2).epoch([(1, 2, 3, 4, 5)])
    assert seen == [1, 2, 3, 4, 5]


def test_state_that_holds_rows_travels():
    row = make_row(("_1", "a b"), (1, 2))
    arrived = unpack(BinId(3), pack(Parcel(BinId(3), [row], (None,))).parts).state[0]
    assert (type(arrived), arrived, arrived["a b"]) == (type(row), row, 2)


def schema_of(*columns):
    return pa.schema([(name, pa.int64()) if isinstance(name, str) else name for name in columns])


INNER = ("p", pa.list_(pa.struct([("x", pa.int64()), ("x", pa.int64())])))
TWINS = {
    "the input has two columns named 'n'; rename one": (schema_of("n", "n"), schema_of()),
    "the output of operator count has two columns named 'n'; rename one": (schema_of("n"), schema_of("n", "m", "n")),
}
INNER_TWINS = {
    "the input of operator count has two fields named 'x' in the column 'p'; rename one": (
        schema_of("n", INNER),
        schema_of(),
    ),
    "the output of operator count has two fields named 'x' in the column 'p'; rename one": (
        schema_of("n"),
        schema_of("n", INNER),
    ),
}


@pytest.mark.parametrize("fold", [print, vectorised(lambda *_: None)], ids=["rows", "vectorised"])
@pytest.mark.parametrize(("reason", "schemas"), TWINS.items(), ids=TWINS)
def test_two_columns_of_one_name_are_refused(reason, schemas, fold):
    with pytest.raises(PlanError) as caught:
        key_operator("count", Input(schemas[0], ("n",)), fold, schemas[1])
    assert str(caught.value) == reason


@pytest.mark.parametrize(("reason", "schemas"), INNER_TWINS.items(), ids=INNER_TWINS)
def test_two_fields_of_one_name_are_refused_where_a_fold_would_get_them_as_a_dict(reason, schemas):
    input, output = Input(schemas[0], ("n",)), schemas[1]
    for refused in (lambda: key_operator("count", input, print, output), lambda: unary(input, print, output)):
        with pytest.raises(PlanError) as caught:
            refused()
        assert str(caught.value) == reason
    unary(input, vectorised(lambda *_: None), output)


def unary(input, fold, output):
    return bin_operator("count", [input], fold, output, dict)
