"""Would catch a value of Spark's that a fold gives out as it got it, and that is another one in Spark then."""

from collections import Counter

import pytest

import megaphone

SAME_HOUR = "array(TIMESTAMP'2026-10-25T00:30:00Z', TIMESTAMP'2026-10-25T01:30:00Z')"

VALUES = {
    "tinyint": "CAST(-128 AS tinyint)",
    "bigint": "9223372036854775807L",
    "float": "CAST('NaN' AS float)",
    "double": "-0.0D",
    "boolean": "true",
    "string": "'é\\u0000'",
    "char": "CAST('a' AS char(3))",
    "collated": "'A' COLLATE UTF8_LCASE",
    "binary": "X'00FF'",
    "decimal": "CAST(1.20 AS decimal(38,2))",
    "date": "DATE'0001-01-01'",
    "timestamp": "TIMESTAMP'1890-01-01 00:00:00'",
    "repeated": SAME_HOUR,
    "ntz": "TIMESTAMP_NTZ'2026-03-29 02:30:00.123456'",
    "time": "TIME'12:34:56.123456'",
    "interval": "INTERVAL '-106751991 04:00:54.775808' DAY TO SECOND",
    "void": "null",
    "array": "array(array(1, null), null, array())",
    "struct": "named_struct('a b', 1, 'c.d', CAST(null AS struct<x:int>))",
    "variant": "parse_json('{\"a\": 1}')",
    "map": "map('a', 1, 'b', null)",
    "by_moment": f"map_from_arrays({SAME_HOUR}, array(INTERVAL '1' DAY, null))",
    "by_struct": "map(named_struct('x', 1.5), array(TIME'00:00:00'))",
    "by_float": "map(double('NaN'), 1, 0.0D, 2)",
    "twice": "from_json('{\"a\": 1, \"a\": 2}', 'map<string, int>')",
    "deep": "named_struct('m', map('a', array(named_struct('t', TIMESTAMP'2026-10-25T01:30:00Z'))))",
    "maps": "array(map(1, 2), null, map())",
}

TEXTS = ("float", "double", "variant", "by_float")
"""Hashes do not tell NaN, zeros and variants apart."""
ENTRIES = {"deep": "map_entries(deep.m)", "maps": "transform(maps, m -> map_entries(m))"}
ENTRIES |= {name: f"map_entries({name})" for name in ("map", "by_moment", "by_struct", "twice")}


def echo(time, data, state, notificator):
    """Each row as it came, by position and by name; the second time it was post-dated."""
    for row in data:
        yield row
        if row.k not in state:
            state[row.k] = notificator.notify_at(time, row)
            yield row._asdict()


def seen(frame):
    """What Spark sees in each column."""
    forms = (f"CAST({name} AS string)" if name in TEXTS else ENTRIES.get(name, name) for name in VALUES)
    return frame.selectExpr("k", *(f"xxhash64({form})" for form in forms))


@pytest.fixture(params=["Europe/Berlin", "Australia/Lord_Howe"])
def zone(request, spark):
    """A session of another zone."""
    spark.conf.set("spark.sql.timeType.enabled", "true")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.unset("spark.sql.timeType.enabled")


def test_every_type_comes_out_of_a_fold_as_it_went_in(spark, zone):
    columns = (f"IF(k = 1, {value}, null) AS {name}" for name, value in VALUES.items())
    frame = spark.range(1, 3).toDF("k").selectExpr("k", *columns)
    out = megaphone.unary(megaphone.Control(spark, workers=2, bins=8), frame, "k", echo, frame.schema)
    rows = Counter(map(tuple, seen(frame).union(seen(out)).collect()))
    assert sorted(rows.values()) == [4, 4]
