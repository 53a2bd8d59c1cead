"""Would catch an operator that cannot work and is accepted, and a time that would end the stream by mistake."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from megaphone.dataflow.folds import BinFold, KeyFold, VectorFold, vectorised
from megaphone.dataflow.operators import Input, OperatorSpec, bin_operator, key_operator
from megaphone.errors import PlanError
from megaphone.progress import END

SCHEMA = pa.schema([("key", pa.string()), ("at", pa.int64())])
BY_EPOCH, BY_COLUMN = Input(SCHEMA, ("key",)), Input(SCHEMA, ("key",), "at")

REFUSED = {
    "no key column 'word'; the input has key, at": {"keys": ("word",)},
    "no time column 'when'; the input has key, at": {"time": "when"},
    "lateness -1; choose 0 or more": {"lateness": -1},
    "the input has a column '_bin', a name that Megaphone uses itself; rename it": {
        "schema": SCHEMA.append(pa.field("_bin", pa.int64()))
    },
}


@pytest.mark.parametrize(("reason", "options"), REFUSED.items(), ids=REFUSED)
def test_input_that_cannot_be_read_is_refused(reason, options):
    with pytest.raises(PlanError) as caught:
        Input(**{"schema": SCHEMA, "keys": ("key",), **options})
    assert str(caught.value) == reason


def test_inputs_of_one_operator_share_a_clock():
    with pytest.raises(PlanError, match="operator join has one input by epoch and one by column; choose one for both"):
        bin_operator("join", (BY_EPOCH, BY_COLUMN), print, SCHEMA, dict)


def test_times_are_integers_whatever_the_column():
    stamp = datetime(2019, 8, 20, tzinfo=UTC)
    times = BY_COLUMN.times(pa.array([stamp], pa.timestamp("us", "UTC")))
    assert times.tolist() == [int(stamp.timestamp()) * 1_000_000]
    assert BY_COLUMN.times(pa.array([7], pa.int32())).tolist() == [7]
    assert BY_COLUMN.times(pa.array([], pa.int64())).tolist() == []


def test_unit_of_time_is_known_by_the_column():
    stamps = Input(pa.schema([("key", pa.string()), ("at", pa.timestamp("us", "UTC"))]), ("key",), "at")
    units = [bin_operator("count", (input,), print, SCHEMA, dict).unit for input in (BY_EPOCH, BY_COLUMN, stamps)]
    assert units == ["epoch", "number", "microsecond"]


def test_times_that_are_none_are_refused():
    with pytest.raises(PlanError, match="null in the time column 'at'; filter such rows out before the operator"):
        BY_COLUMN.times(pa.array([1, None]))
    with pytest.raises(PlanError, match=f"time {END} in the time column 'at'; choose times before it"):
        BY_COLUMN.times(pa.array([1, END]))


def test_fold_decides_the_depth():
    @vectorised
    def many(records, states, notificator):
        return None

    def depth(spec: OperatorSpec):
        return type(spec.fold)

    assert depth(key_operator("count", BY_EPOCH, print, SCHEMA, None)) is KeyFold
    assert depth(key_operator("count", BY_EPOCH, many, SCHEMA, dict)) is VectorFold
    assert depth(bin_operator("count", (BY_EPOCH,), print, SCHEMA, dict)) is BinFold
    assert depth(bin_operator("count", (BY_EPOCH,), many, SCHEMA, dict)) is VectorFold
