"""Would catch a fold that meets records out of time order, a key that is never forgotten, an error nobody can place."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megaphone.bins import WorkerId
from megaphone.dataflow.folds import BinFold, KeyFold, States, VectorFold, is_vectorised, vectorised
from megaphone.dataflow.hosting import Host
from megaphone.dataflow.operators import Input, bin_operator
from megaphone.dataflow.records import Records
from megaphone.dataflow.stopwatch import Stopwatch
from megaphone.errors import FoldError
from megaphone.progress import END, Frontier, Time
from megaphone.testing import make_records

SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64())])
OUTPUT = pa.schema([("key", pa.string()), ("total", pa.int64())])
BINS = 8


def add(key, n, total):
    total = (total or 0) + n
    return total, [(key, total)]


def add_in_bin(time, data, state, notificator):
    for key, n in data:
        state[key] = state.get(key, 0) + n
        yield key, state[key]


@vectorised
def add_all(records, states, notificator):
    keys, totals = [], []
    for bin, key, n in zip(records.bins.tolist(), *map(pa.Array.to_pylist, records.data.columns), strict=True):
        states[bin][key] = states[bin].get(key, 0) + n
        keys.append(key)
        totals.append(states[bin][key])
    return {"total": totals, "key": keys}


THREE_DEPTHS = [
    KeyFold("add", (SCHEMA,), OUTPUT, ("key",), add),
    BinFold("add", (SCHEMA,), OUTPUT, dict, add_in_bin),
    VectorFold("add", (SCHEMA,), OUTPUT, dict, add_all),
]
depths = pytest.mark.parametrize("fold", THREE_DEPTHS, ids=["key", "bin", "vector"])


def applied(fold, *inputs, bounds=END, states=None):
    """Apply rows (bin, time, ...) of each input; output rows, and post-dated ones per input."""
    due = tuple(make_records(rows, schema).sorted() for rows, schema in zip(inputs, fold.inputs, strict=True))
    states = fold.new_states(BINS) if states is None else states
    output, later = fold.apply(due, states, np.full(BINS, bounds), WorkerId(2), Stopwatch(BINS))
    return rows_of(output), [
        list(zip(part.bins.tolist(), part.times.tolist(), rows_of(part.data), strict=True)) for part in later
    ]


def rows_of(batch):
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


@depths
def test_three_depths_give_the_same(fold):
    states = fold.new_states(BINS)
    rows = [(1, 5, "b", 2), (0, 7, "a", 1), (0, 6, "a", 10)]
    assert sorted(applied(fold, rows, states=states)[0]) == [("a", 10), ("a", 11), ("b", 2)]
    assert applied(fold, [(0, 8, "a", 1)], states=states)[0] == [("a", 12)]
    assert states == {0: {"a": 12}, 1: {"b": 2}}


@depths
def test_output_has_exactly_its_schema(fold):
    due = (make_records([(0, 1, "a", 1)], SCHEMA),)
    output, _ = fold.apply(due, States(dict), np.full(BINS, END), WorkerId(0), Stopwatch(BINS))
    assert output.schema == fold.no_output.schema == OUTPUT
    assert fold.no_output.num_rows == 0


def test_state_of_none_removes_the_key():
    def last_one_out(key, n, total):
        total = (total or 0) + n
        return total or None, [(key, total)]

    fold = KeyFold("add", (SCHEMA,), OUTPUT, ("key",), last_one_out)
    states = fold.new_states(BINS)
    rows = [(0, 1, "a", 1), (0, 2, "a", -1), (0, 3, "a", 5), (0, 3, "b", 1), (0, 4, "b", -1)]
    assert applied(fold, rows, states=states)[0] == [("a", 1), ("a", 0), ("a", 5), ("b", 1), ("b", 0)]
    assert states == {0: {"a": 5}}


def test_removing_a_key_that_has_no_state_is_no_error():
    fold = KeyFold("none", (SCHEMA,), OUTPUT, ("key",), lambda key, n, state: (None, []))
    assert applied(fold, [(0, 1, "a", 1)])[0] == []


def test_key_and_value_are_bare_if_single_and_rows_if_not():
    seen = []
    wide = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.int64()), ("d", pa.int64())])

    def see(key, value, state):
        seen.append((key, value))
        return 1, []

    applied(KeyFold("see", (wide,), OUTPUT, ("a",), see), [(0, 1, 1, 2, 3, 4)])
    applied(KeyFold("see", (wide,), OUTPUT, ("d", "a"), see), [(0, 1, 1, 2, 3, 4)])
    applied(KeyFold("see", (pa.schema([("a", pa.int64())]),), OUTPUT, ("a",), see), [(0, 1, 7)])
    assert seen == [(1, (2, 3, 4)), ((4, 1), (2, 3)), (7, None)]
    assert (seen[0][1].b, seen[1][0].d) == (2, 4)


def test_bare_outputs_fill_a_single_column():
    fold = KeyFold("bare", (SCHEMA,), pa.schema([("n", pa.int64())]), ("key",), lambda key, n, _: (1, [n]))
    assert applied(fold, [(0, 1, "a", 7)])[0] == [(7,)]


def test_fold_that_gives_nothing_gives_no_rows():
    assert applied(BinFold("none", (SCHEMA,), OUTPUT, dict, lambda *_: None), [(0, 1, "a", 1)])[0] == []
    assert applied(VectorFold("none", (SCHEMA,), OUTPUT, dict, lambda *_: None), [(0, 1, "a", 1)])[0] == []


@pytest.mark.parametrize("result", [pa.record_batch, pa.table], ids=["batch", "table"])
def test_vectorised_fold_may_give_arrow_columns_in_any_order(result):
    columns = {"total": pa.array([1], pa.int32()), "key": pa.array(["a"]), "more": pa.array([0])}
    fold = VectorFold("any", (SCHEMA,), OUTPUT, dict, lambda *_: result(columns))
    assert applied(fold, [(0, 1, "a", 1)])[0] == [("a", 1)]


def test_vectorised_is_a_mark():
    assert is_vectorised(add_all)
    assert not is_vectorised(add)


@pytest.mark.parametrize(("ordered", "seen"), [(True, ["b", "a", "c"]), (False, ["c", "a", "b"])])
def test_records_are_sorted_only_for_folds_that_ask_for_it(ordered, seen):
    order = []
    fold = vectorised(lambda records, *_: order.extend(records.column("key")), ordered=ordered)
    host = Host(WorkerId(0), bin_operator("see", [Input(SCHEMA, ("key",), "n")], fold, OUTPUT, dict).fold, 2, [0, 1])
    rows = pa.record_batch({"key": ["c", "a", "b"], "n": [7, 5, 6]}, SCHEMA)
    host.receive(Records(np.array([1, 1, 0], np.uint32), np.array([7, 5, 6]), rows))
    host.advance(Frontier(Time(10)))
    assert order == seen


def broken(*_):
    raise ZeroDivisionError("no such thing")


@pytest.mark.parametrize(
    ("fold", "where"),
    [
        (KeyFold("orders", (SCHEMA,), OUTPUT, ("key",), broken), "bin 5 at time 40"),
        (BinFold("orders", (SCHEMA,), OUTPUT, dict, broken), "bin 5 at time 40"),
        (VectorFold("orders", (SCHEMA,), OUTPUT, dict, broken), "bins 5 to 6 at times 40 to 41"),
    ],
    ids=["key", "bin", "vector"],
)
def test_first_line_of_an_error_says_where_the_fold_failed(fold, where):
    with pytest.raises(FoldError) as caught:
        applied(fold, [(6, 41, "a", 1), (5, 40, "a", 1)])
    first, *rest = str(caught.value).splitlines()
    assert first == f"fold of operator orders failed in {where} on worker 2: ZeroDivisionError: no such thing"
    assert "in broken" in "\n".join(rest)


@pytest.mark.parametrize("end", [SystemExit(3), GeneratorExit()], ids=repr)
@pytest.mark.parametrize("kind", [KeyFold, BinFold, VectorFold])
def test_fold_that_would_end_its_process_fails_like_any_other(kind, end):
    def leaves(*_):
        raise end

    of = (("key",), leaves) if kind is KeyFold else (dict, leaves)
    with pytest.raises(FoldError, match=f"fold of operator orders failed in .* on worker 2: {type(end).__name__}"):
        applied(kind("orders", (SCHEMA,), OUTPUT, *of), [(5, 40, "a", 1)])


@pytest.mark.parametrize("output", [[("a",)], [("a", 1), ("b",)], [("a", "one")], [7], [("a", 2**70)]], ids=str)
def test_outputs_that_do_not_fit_are_the_folds_error(output):
    for fold in (
        KeyFold("orders", (SCHEMA,), OUTPUT, ("key",), lambda *_: (1, output)),
        BinFold("orders", (SCHEMA,), OUTPUT, dict, lambda *_: output),
    ):
        with pytest.raises(FoldError, match=r"fold of operator orders gave a misfit .*on worker 2: "):
            applied(fold, [(0, 1, "a", 1)])


def test_postdated_records_that_do_not_fit_are_the_folds_error():
    def post(time, data, state, notificator):
        notificator.notify_at(time + 100, ("a", "no number"))

    with pytest.raises(FoldError, match="fold of operator post gave a misfit on worker 2: column n of the row"):
        applied(BinFold("post", (SCHEMA,), OUTPUT, dict, post), [(0, 1, "a", 1)], bounds=50)


def repeat(time, data, state, notificator):
    """Each record comes back after n, n - 1 ... 1."""
    for key, n in data:
        if n:
            notificator.notify_at(time + n, (key, n - 1))
        yield key, time


REPEAT = BinFold("repeat", (SCHEMA,), OUTPUT, dict, repeat)


def test_postdated_records_fall_due_in_order_within_one_advance():
    """The echo of a at 4 comes between b at 3 and c at 5, and its own echo after c."""
    rows = [(0, 1, "a", 3), (0, 3, "b", 0), (0, 5, "c", 0)]
    assert applied(REPEAT, rows)[0] == [("a", 1), ("b", 3), ("a", 4), ("c", 5), ("a", 6), ("a", 7)]


def test_postdated_record_joins_those_of_its_time_in_one_call():
    calls = []

    def note(time, data, state, notificator):
        calls.append((time, sorted(key for key, _ in data)))
        return repeat(time, data, state, notificator)

    applied(BinFold("note", (SCHEMA,), OUTPUT, dict, note), [(0, 1, "a", 3), (0, 4, "b", 0)])
    assert calls == [(1, ["a"]), (4, ["a", "b"]), (6, ["a"]), (7, ["a"])]


def test_postdated_record_past_the_bound_waits():
    output, (later,) = applied(REPEAT, [(3, 1, "a", 3), (4, 1, "b", 1)], bounds=4)
    assert output == [("a", 1), ("b", 1), ("b", 2)]
    assert later == [(3, 4, ("a", 2))]


def test_record_cannot_be_postdated_to_its_past():
    def back(time, data, state, notificator):
        notificator.notify_at(time - 1, data[0])

    with pytest.raises(FoldError, match="a record cannot be post-dated to 4, before its own time 5"):
        applied(BinFold("back", (SCHEMA,), OUTPUT, dict, back), [(0, 5, "a", 1)])


def test_record_may_be_postdated_to_its_own_time():
    def once_more(time, data, state, notificator):
        for key, n in data:
            if n:
                notificator.notify_at(time, (key, n - 1))
            yield key, n

    fold = BinFold("once more", (SCHEMA,), OUTPUT, dict, once_more)
    assert applied(fold, [(0, 5, "a", 2)])[0] == [("a", 2), ("a", 1), ("a", 0)]


def test_vectorised_fold_postdates_records():
    def later(records, states, notificator):
        notificator.notify_at(Records(records.bins, records.times + 10, records.data))

    fold = VectorFold("later", (SCHEMA,), OUTPUT, dict, later)
    _, (waiting,) = applied(fold, [(0, 1, "a", 1), (3, 2, "b", 2)], bounds=11)
    assert waiting == [(0, 11, ("a", 1)), (3, 12, ("b", 2))]
    with pytest.raises(FoldError, match="a record of bin 0 post-dated to 11, which is due before 12"):
        applied(fold, [(0, 1, "a", 1), (3, 2, "b", 2)], bounds=12)


def order_of_calls(time, left, right, state, left_later, right_later):
    state.setdefault("calls", []).append((time, left, right))
    for data, later in ((left, right_later), (right, left_later)):
        for key, n in data:
            if n:
                later.notify_at(time + n, (key, 0))
            yield key, time


BINARY = BinFold("pair", (SCHEMA, SCHEMA), OUTPUT, dict, order_of_calls)


def test_binary_meets_both_inputs_in_one_time_order():
    states = States(dict)
    applied(BINARY, [(0, 1, "l", 0), (0, 3, "l", 0)], [(0, 2, "r", 0), (0, 3, "r", 0)], states=states)
    assert states[0]["calls"] == [
        (1, [("l", 0)], []),
        (2, [], [("r", 0)]),
        (3, [("l", 0)], [("r", 0)]),
    ]


def test_binary_postdates_from_one_input_to_the_other():
    states = States(dict)
    _, later = applied(BINARY, [(0, 1, "l", 1), (0, 2, "l", 9)], [(1, 1, "r", 5)], states=states, bounds=4)
    assert states[0]["calls"] == [(1, [("l", 1)], []), (2, [("l", 9)], [("l", 0)])]
    assert later == [[(1, 6, ("r", 0))], [(0, 11, ("l", 0))]]


events = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 9), st.sampled_from("ab"), st.integers(0, 4)), max_size=20
)


@given(events, events, st.integers(0, 30))
def test_calls_of_a_bin_are_in_strict_time_order(left, right, bound):
    states = States(dict)
    due = [[row for row in rows if row[1] < bound] for rows in (left, right)]
    applied(BINARY, *due, bounds=bound, states=states)
    for state in states.values():
        times = [time for time, _, _ in state["calls"]]
        assert times == sorted(set(times))
        assert all(time < bound for time in times)
