"""Would catch keys that are one group for Spark's `groupBy` and two keys here, or the other way round.

What Spark itself says is asked in tests/spark/test_grouping.py.
"""

import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from key_types import REPEATED, ZONES, columns_of, group, kinds

from megaphone.configuration import Assignment
from megaphone.control.strategies import make_plan
from megaphone.dataflow.hashing import hash_columns
from megaphone.dataflow.keys import identified, key_of
from megaphone.dataflow.operators import Input, bin_operator, key_operator
from megaphone.engine.local import LocalEngine
from megaphone.errors import PlanError

OUTPUT = pa.schema([("id", pa.int64()), ("first", pa.int64())])
ZONED = [name for name, (kind, _) in kinds("UTC").items() if "UTC" in str(kind)]
FEW = settings().max_examples // 8
"""For each of many types."""
KINDS = [(name, ZONES[0]) for name in kinds("UTC")] + [(name, ZONES[1]) for name in ZONED]
each_kind = pytest.mark.parametrize(("name", "zone"), KINDS, ids=[f"{name} in {zone}" for name, zone in KINDS])


def first_seen(key, id, first):
    """Each row with the first one of its key."""
    first = id if first is None else first
    return first, [(id, first)]


def firsts(values):
    """What `first_seen` should give."""
    first = {}
    return [(id, first.setdefault(group(value), id)) for id, value in enumerate(values)]


def machine(kind):
    return key_operator("first", Input(pa.schema([("key", kind), ("id", pa.int64())]), ("key",)), first_seen, OUTPUT)


@each_kind
@settings(max_examples=FEW)
@given(st.data())
def test_keys_are_one_exactly_if_spark_groups_them(name, zone, data):
    kind, values = kinds(zone)[name]
    values = data.draw(columns_of(values))
    engine = LocalEngine(machine(kind), workers=2, bins=2)
    rows, half = list(zip(values, range(len(values)), strict=True)), len(values) // 2
    output = engine.epoch(rows[:half])
    # The states are pickled, and are another process's then.
    engine.migrate(make_plan(Assignment.round_robin(2, 2), Assignment([1, 0]), "all_at_once"))
    output += engine.settle() + engine.epoch(rows[half:])
    assert sorted(output) == firsts(values)


@each_kind
@settings(max_examples=FEW)
@given(st.data())
def test_one_key_has_one_hash_one_form_and_one_way_back(name, zone, data):
    kind, values = kinds(zone)[name]
    values = data.draw(columns_of(values))
    columns = pa.record_batch({"key": pa.array(values, kind)})
    identities, keys = identified(columns)
    hashes = hash_columns(columns.columns).tolist()
    shown = [repr(key_of(identity, columns.schema)) for identity in identities]
    assert shown == list(map(repr, keys))
    groups = list(map(group, values))
    for found in (hashes, shown):
        assert len(set(zip(groups, found, strict=True))) == len(set(groups))
    assert len(set(shown)) == len(set(groups))


@given(columns_of(kinds("UTC")["double"][1]), columns_of(st.sampled_from(REPEATED[ZONES[0]])), st.booleans())
@example([math.nan, -math.nan, 0.0, -0.0], [0, 0, 0, 0], True)
def test_key_of_several_columns_is_one_if_each_column_is(numbers, instants, first):
    schema = pa.schema([("x", pa.float64()), ("at", pa.timestamp("us", ZONES[0])), ("id", pa.int64())])
    pairs = list(zip(numbers, instants, strict=False))
    spec = key_operator("first", Input(schema, ("x", "at") if first else ("at", "x")), first_seen, OUTPUT)
    output = LocalEngine(spec, 1, 4).epoch([(x, at, id) for id, (x, at) in enumerate(pairs)])
    assert sorted(output) == firsts([list(pair) for pair in pairs])


@pytest.mark.parametrize("zone", ZONES)
def test_the_hour_that_a_clock_repeats_is_two_hours_of_keys(zone):
    early, late = REPEATED[zone][0], REPEATED[zone][2]
    values = [start + minute * 60_000_000 for start in (early, late) for minute in range(60)]
    kind, _ = kinds(zone)["timestamp"]
    read = {(key.hour, key.minute) for key in pa.array(values, kind).to_pylist()}
    assert len(read) == 60
    output = LocalEngine(machine(kind), 1, 2).epoch(list(zip(values, range(120), strict=True)))
    assert sorted(output) == firsts(values)


def test_fold_gets_a_key_as_python_has_it():
    seen = []
    columns = [
        ("x", pa.float64()),
        ("in", pa.struct([("at", pa.timestamp("us", ZONES[0]))])),
        ("all", pa.list_(pa.int8())),
    ]
    spec = key_operator(
        "see", Input(pa.schema(columns), ("x", "in", "all")), lambda k, v, s: (1, seen.append(k) or []), OUTPUT
    )
    LocalEngine(spec, 1, 2).epoch([(-0.0, {"at": 1_729_990_800_000_000}, [1, None]), (None, None, None)])
    key, nothing = seen
    assert (str(key.x), key["in"]["at"].isoformat(), key.all) == ("0.0", "2024-10-27T02:00:00+01:00", [1, None])
    assert nothing == (None, None, None)


def test_equal_keys_of_two_inputs_are_in_one_bin():
    met = []
    inputs = [Input(pa.schema([("key", pa.list_(pa.float64()))]), ("key",))] * 2
    meet = lambda time, left, right, *_: met.append((len(left), len(right)))  # noqa: E731
    engine = LocalEngine(bin_operator("meet", inputs, meet, OUTPUT, dict), 2, 1024)
    engine.epoch([([0.0, math.nan],)], [([-0.0, -math.nan],)])
    assert met == [(1, 1)]


MAP = pa.map_(pa.string(), pa.int64())
VARIANT = pa.struct([("value", pa.binary()), pa.field("metadata", pa.binary(), metadata={b"variant": b"true"})])
REFUSED = {
    "a map, which Spark does not hash; choose another key, such as array_sort": MAP,
    "a map, which": pa.list_(pa.struct([("n", pa.int64()), ("m", MAP)])),
    "a variant, by which Spark does not group": pa.struct([("v", VARIANT)]),
    "a value of Arrow's type dictionary<.*>, which Spark does not have; cast it": pa.dictionary(pa.int8(), pa.string()),
}


@pytest.mark.parametrize(("reason", "kind"), REFUSED.items(), ids=REFUSED)
def test_what_spark_refuses_as_a_key_is_refused(reason, kind):
    schema = pa.schema([("k", kind), ("n", pa.int64())])
    with pytest.raises(PlanError, match=f"the key column 'k' is or has in it {reason}"):
        Input(schema, ("n", "k"))
    Input(schema, ("n",))


def test_inputs_whose_keys_are_of_two_types_are_refused_here():
    inputs = [Input(pa.schema([("k", kind)]), ("k",)) for kind in (pa.int32(), pa.int64())]
    with pytest.raises(PlanError, match="operator join has inputs keyed by int32 and by int64; cast one of them"):
        LocalEngine(bin_operator("join", inputs, print, OUTPUT, dict), 1, 2)


def test_decimals_are_hashed_by_their_digits():
    column = pa.array([Decimal("1.00"), Decimal("-1.00")], pa.decimal128(9, 2))
    assert hash_columns([column]).tolist() == hash_columns([pa.array([100, -100])]).tolist()
