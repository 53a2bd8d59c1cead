"""What Spark itself says of keys: its `groupBy`, its join, and what it refuses.

Would catch keys that fall together in an operator and not in Spark, or the other way round, and inputs of `binary`
whose equal keys do not meet.
"""

import re
from collections import defaultdict

import pyarrow as pa
import pytest
from hypothesis import given, settings
from key_types import ZONES, columns_of, kinds
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

import megaphone
from megaphone.dataflow.hashing import hash_columns
from megaphone.errors import PlanError

BINS = 16


def first_seen(key, id, first):
    """Each row with the first one of its key."""
    first = id if first is None else first
    return first, [(id, first)]


def drawn(values, times=6):
    """What Hypothesis draws, all together."""
    found = []

    @settings(max_examples=times, database=None)
    @given(columns_of(values))
    def draw(column):
        found.extend(column)

    draw()
    return found


def table_of(zone):
    """A column for each type; a row has a value in one of them, or in none."""
    columns = {name: (kind, drawn(values)) for name, (kind, values) in kinds(zone).items()}
    total = sum(len(values) for _, values in columns.values())
    arrays, before = {"id": pa.array(range(total))}, 0
    for name, (kind, values) in columns.items():
        after = total - before - len(values)
        arrays[name] = pa.concat_arrays([pa.nulls(before, kind), pa.array(values, kind), pa.nulls(after, kind)])
        before += len(values)
    return pa.table(arrays)


@pytest.fixture
def in_zone(spark):
    """Set the session's time zone, and let it know the type TIME."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.timeType.enabled", True)
    yield lambda zone: spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.session.timeZone", before)
    spark.conf.unset("spark.sql.timeType.enabled")


@pytest.mark.parametrize("zone", ZONES)
def test_keys_of_every_type_are_grouped_and_hashed_as_by_spark(spark, in_zone, zone):
    in_zone(zone)
    table = table_of(zone)
    frame = spark.createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))
    names = list(kinds(zone))
    keys = [f"`{name}`" for name in names]
    pairs = sf.collect_list(sf.struct("id", sf.xxhash64(*keys)))
    theirs = [dict(group) for (group,) in frame.groupBy(*keys).agg(pairs.alias("group")).select("group").collect()]
    control = megaphone.Control(spark, workers=2, bins=BINS)
    ours = defaultdict(set)
    for id, first in megaphone.state_machine(control, frame, names, first_seen, "id long, first long").collect():
        ours[first].add(id)
    assert set(map(frozenset, ours.values())) == set(map(frozenset, theirs))
    hashes = hash_columns([table[name].combine_chunks() for name in names]).tolist()
    assert {id: hash for group in theirs for id, hash in group.items()} == dict(enumerate(hashes))
    assert all(len(set(group.values())) == 1 for group in theirs)


def meet(time, left, right, state, *notificators):
    """The rows of both sides that are in one bin and equal."""
    return [(one.id, other.id) for one in left for other in right if one.id == other.id]


def test_inputs_of_several_types_meet_where_sparks_join_compares_them_as_equal(spark):
    pairs = {
        "bigint": "cast(id as int)",
        "decimal(12,4)": "cast(id as decimal(20,0))",
        "double": "cast(id * 0.5 as float)",
        "timestamp": "date_add(date'2024-10-20', cast(id as int))",
        "array<bigint>": "array(cast(id as int), null)",
        "struct<a:double,b:string>": "named_struct('a', cast(id as int), 'b', cast(id as string))",
    }
    right = spark.range(40).select("id", *(sf.expr(made).alias(f"k{n}") for n, made in enumerate(pairs.values())))
    left = right.select("id", *(sf.col(f"k{n}").cast(kind).alias(f"k{n}") for n, kind in enumerate(pairs)))
    names = [f"k{n}" for n in range(len(pairs))]
    control = megaphone.Control(spark, workers=2, bins=4096)
    joined = left.alias("l").join(right.alias("r"), [sf.col(f"l.{name}") == sf.col(f"r.{name}") for name in names])
    assert joined.count() == 40
    # In so many bins rows meet by chance only now and then: one column that is hashed otherwise keeps nearly all apart.
    met = megaphone.binary(control, left, right, names, names, meet, "l long, r long")
    assert sorted(row.l for row in met.collect()) == list(range(40))
    megaphone.binary(control, left, right, sf.col("k0"), "k0", meet, "n long", name="k0")
    assert control.specs["k0"].shape.keys == ("k0", "k0 as bigint")


def one(key, value, state):
    """Nothing."""
    return state, []


MISTAKES = {
    "a map": ("map(1, 2)", "column 'k' is or has in it a map, which Spark does not hash"),
    "a variant": (
        "array(parse_json('1'))",
        "column 'k' is or has in it a variant, by which Spark does not group",
    ),
    "a place": ("st_geomfromwkb(X'00')", "column 'k' is or has in it a geometry, which Spark does not hash"),
    "a collation": (
        "named_struct('s', 'a' collate UNICODE_CI)",
        "column 'k' is of type struct<s:string collate UNICODE_CI>, and Spark keeps no state by strings",
    ),
    "months": (
        "interval '1' month",
        "column 'k' is of type interval month, which Python cannot read; cast it, or leave it out before the operator",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_spark_refuses_as_a_key_is_refused_when_the_query_is_built(spark, mistake):
    made, reason = MISTAKES[mistake]
    control = megaphone.Control(spark, workers=2, bins=BINS)
    frame = spark.range(1).select("id", sf.expr(made).alias("k"))
    builds = [
        lambda: megaphone.state_machine(control, frame, "id", one, "n long", key="k"),
        lambda: megaphone.unary(control, frame, ["id", "k"], meet, "n long"),
        lambda: megaphone.binary(control, frame, frame, "k", "k", meet, "n long"),
    ]
    for build in builds:
        with pytest.raises(PlanError, match=re.escape(reason)):
            build()


def test_exchange_expression_that_has_no_hash_is_refused(spark):
    control = megaphone.Control(spark, workers=2, bins=BINS)
    frame = spark.range(1)
    for made, reason in {
        "map(id, 1)": "the exchange map(id, 1) is or has in it a map, which Spark does not hash",
        "string(id) collate UTF8_LCASE": "is of type string collate UTF8_LCASE, and Spark keeps no state by strings",
    }.items():
        with pytest.raises(PlanError, match=re.escape(reason)):
            megaphone.unary(control, frame, sf.expr(made), meet, "n long")
    megaphone.unary(control, frame, sf.expr("make_interval(id)"), meet, "n long")


def test_inputs_that_can_never_meet_are_refused(spark):
    control = megaphone.Control(spark, workers=2, bins=BINS)
    frame = spark.range(1).select("id", sf.array("id").alias("ids"))
    with pytest.raises(
        PlanError, match="the inputs are hashed by id of type bigint and ids of type array<bigint>, which"
    ):
        megaphone.binary(control, frame, frame, "id", "ids", meet, "n long")
    with pytest.raises(
        PlanError, match=r"hashed by 1 \(id\) and by 2 \(id, ids\) values, which never meet; choose as many"
    ):
        megaphone.binary(control, frame, frame, "id", ["id", "ids"], meet, "n long")
    megaphone.binary(control, frame, frame, "id", megaphone.Bits(sf.col("id")), meet, "n long")
