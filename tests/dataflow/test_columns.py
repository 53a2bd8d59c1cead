"""Would catch a vectorised fold whose outputs change with its state, or into something else on their way."""

from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from megaphone.bins import WorkerId
from megaphone.dataflow.columns import conform
from megaphone.dataflow.folds import VectorFold
from megaphone.dataflow.records import Records
from megaphone.dataflow.stopwatch import Stopwatch
from megaphone.errors import FoldError
from megaphone.testing import make_records

INT = pa.int64()
SCHEMA = pa.schema([("n", INT)])
ZONED, CLOCK = pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us")


def of(result, kind=INT):
    return conform(result, pa.schema([("n", kind)]))["n"].to_pylist()


def applied(fold, output=SCHEMA, bounds=0):
    """What a vectorised fold gives of one record with n = 1, in bin 0 at time 5."""
    due = (make_records([(0, 5, 1)], SCHEMA),)
    fold = VectorFold("give", (SCHEMA,), output, dict, fold)
    return fold.apply(due, fold.new_states(2), np.full(2, bounds), WorkerId(0), Stopwatch(2))


FORMS = {
    "array": lambda state: {"n": state},
    "slice": lambda state: {"n": state[1:]},
    "array that is read only to others": lambda state: {"n": readonly(state)},
    "arrow": lambda state: {"n": pa.array(state)},
    "batch": lambda state: pa.record_batch({"n": state}),
    "slice of a batch": lambda state: pa.record_batch({"n": state}).slice(1),
    "table": lambda state: pa.table({"n": state}),
    "buffer": lambda state: {"n": pa.Array.from_buffers(INT, 3, [None, pa.py_buffer(state)])},
    "list of arrays": lambda state: pa.table({"n": pa.chunked_array([pa.array(state), pa.array(state)])}),
}


def readonly(state):
    view = state.view()
    view.flags.writeable = False
    return view


@pytest.mark.parametrize("form", FORMS)
def test_output_does_not_change_with_the_state_it_was_made_of(form):
    state = np.arange(3)
    output, _ = applied(lambda *_: FORMS[form](state))
    before = output["n"].to_pylist()
    state += 10
    assert output["n"].to_pylist() == before


def test_output_that_is_a_slice_of_a_large_state_has_only_its_own_rows():
    state = np.arange(100_000)
    for form in ("slice of a batch", "slice"):
        output = conform(FORMS[form](state[-4:]), SCHEMA)
        assert sum(buffer.size for buffer in output["n"].buffers() if buffer) < 1000


def test_what_spark_sent_is_not_copied():
    data = pa.ipc.open_stream(pa.ipc.serialize_pandas(pd.DataFrame({"n": [1, 2]}), preserve_index=False))
    data = data.read_next_batch()
    assert conform(data, SCHEMA)["n"].buffers()[1].address == data["n"].buffers()[1].address


def test_postdated_records_do_not_change_with_the_arrays_they_were_made_of():
    bins, times, values = np.zeros(2, np.uint32), np.array([7, 8]), np.arange(2)

    def fold(records, states, notificator):
        notificator.notify_at(Records(bins, times, pa.record_batch({"n": values})))
        for array in (bins, times, values):
            array += 1

    _, (later,) = applied(fold)
    assert (later.bins.tolist(), later.times.tolist(), later.data["n"].to_pylist()) == ([0, 0], [7, 8], [0, 1])


SAME = [
    ([1, 2.0, None], INT, [1, 2, None]),
    (np.array([1.0]), INT, [1]),
    (range(2), INT, [0, 1]),
    (np.array([2, None], object), INT, [2, None]),
    (pd.Series([1, None], dtype="Int64"), INT, [1, None]),
    (pd.Series(["a", np.nan], dtype=object), pa.string(), ["a", None]),
    (pd.Categorical(["a"]), pa.string(), ["a"]),
    (np.array([10], "M8[s]"), ZONED, [datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC)]),
    (np.array([10], "M8[s]"), CLOCK, [datetime(1970, 1, 1, 0, 0, 10)]),
    (np.array([10]), CLOCK, [datetime(1970, 1, 1, 0, 0, 0, 10)]),
    (pd.Series([datetime(1970, 1, 1, tzinfo=UTC)]), ZONED, [datetime(1970, 1, 1, tzinfo=UTC)]),
    (pa.array([{"y": 1, "x": 2}]), pa.struct([("x", INT), ("y", INT)]), [{"x": 2, "y": 1}]),
    (pa.array(["a"]).dictionary_encode(), pa.string(), ["a"]),
    (pa.nulls(1), INT, [None]),
    (np.array([0.1]), pa.float32(), [float(np.float32(0.1))]),
]


@pytest.mark.parametrize(("values", "kind", "held"), SAME, ids=str)
def test_column_is_taken_if_it_stays_the_same(values, kind, held):
    assert of({"n": values}, kind) == held


def test_both_hours_that_a_clock_shows_twice_stay_two():
    hours = pa.array([datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1)], ZONED)
    for form in (hours, hours.to_pandas(), hours.to_pylist(), hours.to_numpy()):
        assert conform({"n": form}, pa.schema([("n", ZONED)]))["n"].equals(hours)


OTHER = [
    ([1.5], INT),
    (np.array([1.5]), INT),
    (np.array([1.5], object), INT),
    (np.array([True]), INT),
    (np.array(["1"]), INT),
    (np.array([1]), pa.string()),
    (np.array([1]), pa.bool_()),
    (np.array([1e300]), pa.float32()),
    (np.array([1500], "M8[ns]"), CLOCK),
    (np.array(["2026-01-01T23"], "M8[us]"), pa.date32()),
    (pd.Series([datetime(1970, 1, 1)]), ZONED),
    (pa.array([0], ZONED), CLOCK),
    (pa.array([[0]], pa.list_(ZONED)), pa.list_(CLOCK)),
    (pa.array([1.235]), pa.decimal128(5, 2)),
    (pa.array([{"x": 1}]), pa.struct([("x", INT), ("y", INT)])),
    (pa.array([{"x": 1, "y": 1, "z": 1}]), pa.struct([("x", INT), ("y", INT)])),
    ("abc", pa.string()),
    (b"abc", INT),
    ({"a": 1}, pa.string()),
    (7, INT),
    (np.array([[1]]), INT),
]


@pytest.mark.parametrize(("values", "kind"), OTHER, ids=str)
def test_column_that_would_become_another_is_refused_by_name(values, kind):
    with pytest.raises(FoldError, match="gave a misfit in bins 0 to 0 at times 5 to 5 on worker 0: column n: "):
        applied(lambda *_: {"n": values}, pa.schema([("n", kind)]))


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"m": [1]}, "no column n; the fold gave m"),
        ([(1,)], "of type list is no columns; give a dict of columns, a batch or a table"),
        (7, "7 of type int is no columns"),
    ],
    ids=str,
)
def test_result_that_has_not_the_columns_is_refused(result, reason):
    with pytest.raises(FoldError, match=reason):
        applied(lambda *_: result)


def test_null_is_refused_where_the_output_forbids_it():
    strict = pa.schema([pa.field("n", INT, nullable=False)])
    with pytest.raises(FoldError, match="null in the column n, which is declared NOT NULL"):
        applied(lambda *_: {"n": [None]}, strict)


@pytest.mark.parametrize(
    ("bins", "times", "data", "reason"),
    [
        ([0], np.array([7.5]), {"n": [1]}, "times of type float64; give an array of integers"),
        ([0], np.array([7], "M8[us]"), {"n": [1]}, "times of type datetime64.us.; give an array of integers"),
        (
            [0],
            np.array([2**63], np.uint64),
            {"n": [1]},
            "times from 9223372036854775808 to 9223372036854775808; choose",
        ),
        ([0.0], [7], {"n": [1]}, "bins of type float64"),
        ([-1], [7], {"n": [1]}, "bins from -1 to -1; choose 0 to"),
        ([0, 0], [7], {"n": [1, 2]}, "2 bins and 1 times for 2 records; give one of each"),
        ([0], [7], {"n": [1, 2]}, "1 bins and 1 times for 2 records"),
        ([0], [7], {"m": [1]}, "records cannot be post-dated: no column n"),
        ([0], [7], {"n": ["a"]}, "records cannot be post-dated: column n: "),
    ],
    ids=str,
)
def test_unsound_records_cannot_be_postdated(bins, times, data, reason):
    def fold(records, states, notificator):
        notificator.notify_at(Records(np.asarray(bins), np.asarray(times), pa.record_batch(data)))

    with pytest.raises(FoldError, match=f"ValueError: {reason}"):
        applied(fold)
