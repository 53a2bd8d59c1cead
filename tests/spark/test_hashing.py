"""Our hash of a key is Spark's, for every kind of key.

Would catch a key that falls in one bin when Spark hashes it, and in another when we do.
"""

import datetime
import math
import random
import struct

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from megaphone.dataflow.hashing import hash_columns

chance = random.Random(64)


def some(make, *corners, number=200):
    """Random values, corners first, with some nulls."""
    values = [*corners, *(make() for _ in range(number))]
    return [None if chance.random() < 0.1 else value for value in values]


def text() -> str:
    """Up to forty characters, some of them of several bytes: xxHash treats each length differently."""
    return "".join(chance.choice("abcxyz äß€日𝄞") for _ in range(chance.randrange(40)))


def double() -> float:
    """Any pattern of bits."""
    return struct.unpack("d", chance.randbytes(8))[0]


def single() -> float:
    """Any pattern of bits."""
    return struct.unpack("f", chance.randbytes(4))[0]


def day() -> datetime.date:
    """A day between the years 1 and 9999."""
    return datetime.date.fromordinal(chance.randrange(1, datetime.date.max.toordinal()))


def moment() -> datetime.datetime:
    """A moment to the microsecond."""
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=chance.randrange(2**50))


FLOATS = (0.0, -0.0, math.inf, -math.inf, math.nan, -math.nan)

KEYS = {
    "long": some(lambda: chance.randrange(-(2**63), 2**63), 0, -1, 2**63 - 1, -(2**63)),
    "int": some(lambda: chance.randrange(-(2**31), 2**31), 0, -1, 2**31 - 1, -(2**31)),
    "short": some(lambda: chance.randrange(-(2**15), 2**15), -1),
    "byte": some(lambda: chance.randrange(-128, 128), -1),
    "boolean": some(lambda: chance.random() < 0.5),
    "double": some(double, *FLOATS),
    "float": some(single, *FLOATS),
    "string": some(text, "", "\0"),
    "binary": some(lambda: chance.randbytes(chance.randrange(70)), b""),
    "date": some(day, datetime.date(1969, 12, 31)),
    "timestamp": some(moment),
    "timestamp_ntz": some(lambda: moment().replace(tzinfo=None)),
}


def arrow_and_spark(spark, columns: dict[str, list]) -> tuple[list[int], list[int]]:
    """The hashes of some columns, here and in Spark."""
    schema = StructType.fromDDL(", ".join(f"c{number} {kind}" for number, kind in enumerate(columns)))
    frame = spark.createDataFrame(list(zip(*columns.values(), strict=True)), schema).coalesce(1)
    table = frame.toArrow()
    ours = hash_columns([column.combine_chunks() for column in table.columns])
    return ours.tolist(), [row[0] for row in frame.select(sf.xxhash64(*frame.columns)).collect()]


@pytest.mark.parametrize("kind", KEYS)
def test_hash_of_a_column_is_sparks(spark, kind):
    ours, theirs = arrow_and_spark(spark, {kind: KEYS[kind]})
    assert ours == theirs


@pytest.mark.parametrize(("first", "second"), [("long", "string"), ("string", "int"), ("date", "double")])
def test_hash_of_two_columns_is_sparks(spark, first, second):
    ours, theirs = arrow_and_spark(spark, {first: KEYS[first][:200], second: KEYS[second][:200]})
    assert ours == theirs


def test_sliced_columns_hash_like_whole_ones():
    for values in ([1, None, 3, 4], ["a", None, "c", "d"], [True, False, None, True]):
        column = pa.array(values)
        assert hash_columns([column.slice(1)]).tolist() == hash_columns([column]).tolist()[1:]
