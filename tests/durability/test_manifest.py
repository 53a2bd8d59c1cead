"""Would catch a query that goes on with state it cannot read, and one that is refused for a harmless change."""

from dataclasses import replace

import pyarrow as pa
import pytest

from megaphone.dataflow.folds import vectorised
from megaphone.dataflow.operators import Input, bin_operator, key_operator
from megaphone.durability.manifest import Manifest, Shape, check, shape_of
from megaphone.durability.store import Store
from megaphone.errors import CheckpointError

SCHEMA = pa.schema([("word", pa.string()), ("at", pa.int64())])
COUNT = key_operator("count", Input(SCHEMA, ("word",)), lambda key, value, n: (n, []), SCHEMA)
SHAPE = shape_of(COUNT, ("word",))
MANIFEST = Manifest(16, 2, {"count": SHAPE})


def refusal(now):
    with pytest.raises(CheckpointError) as caught:
        check(MANIFEST, now, "here")
    message = str(caught.value)
    assert message.startswith("the query does not fit its checkpoint here: ")
    assert message.endswith("undo the change, or start with a new checkpoint location, without that state")
    return message


def test_same_query_fits():
    check(MANIFEST, Manifest(16, 2, {"count": shape_of(COUNT, ("word",))}), "here")


def test_number_of_workers_fold_and_output_may_change():
    other = key_operator(
        "count", Input(SCHEMA, ("word",)), lambda key, value, n: (n, [1]), pa.schema([("n", pa.int8())])
    )
    check(MANIFEST, Manifest(16, 5, {"count": shape_of(other, ("word",))}), "here")


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (replace(SHAPE, keys=("at",)), "operator count is keyed by word in the checkpoint, at in the query"),
        (replace(SHAPE, columns=("word string",)), "operator count reads word string, at int64 in the checkpoint"),
        (replace(SHAPE, clock="at"), "operator count tells time by epoch in the checkpoint, at in the query"),
        (replace(SHAPE, state="per bin"), "operator count keeps its state per key in the checkpoint, per bin in the"),
    ],
)
def test_changed_operator_is_refused_with_both_sides(shape, said):
    assert said in refusal(replace(MANIFEST, operators={"count": shape}))


def test_everything_that_differs_is_said_at_once():
    message = refusal(Manifest(32, 2, {"sum": SHAPE}))
    assert "the checkpoint has 16 bins, the control 32" in message
    assert "operator count is in the checkpoint and not in the query" in message
    assert "operator sum is in the query and not in the checkpoint" in message
    assert "if they were built twice, as when a notebook cell is run again, make a new Control" in message


def test_shape_tells_keys_clock_and_depth():
    by_time = Input(SCHEMA, ("word",), time="at", lateness=3)
    vector = vectorised(lambda left, right, states, *later: None)
    join = bin_operator("join", [by_time, by_time], vector, SCHEMA, dict)
    columns = "word string, at int64"
    assert shape_of(join, ("word", "at")) == Shape("per bin", "column at, at", ("word", "at"), (columns, columns))
    assert Shape("per key", "epoch", ("word",), (columns,)) == SHAPE


def test_times_without_a_zone_are_not_those_of_earlier_versions():
    """Which took them for moments of the session's zone: their state and their records would be hours off."""
    schema = pa.schema([("word", pa.string()), ("at", pa.timestamp("us"))])
    shape = shape_of(bin_operator("count", [Input(schema, ("word",), "at")], print, SCHEMA, dict), ("word",))
    before = Manifest(16, 2, {"count": replace(shape, clock="column at")})
    with pytest.raises(CheckpointError, match="tells time by column at in the checkpoint, column at as written in the"):
        check(before, Manifest(16, 2, {"count": shape}), "here")


def test_manifest_comes_back_as_it_was_written(tmp_path):
    store = Store(str(tmp_path), "control")
    store.put("manifest", "manifest", MANIFEST)
    assert store.get("manifest", "manifest", Manifest) == MANIFEST
