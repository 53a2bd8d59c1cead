"""Our hash of a key is Spark's, for every kind of key.

Would catch a key that falls in one bin when Spark hashes it, and in another when we do.
"""

import datetime
import decimal
import math
import random
import struct

import pyarrow as pa
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
    "decimal(18,4)": some(lambda: decimal.Decimal(f"{chance.randrange(-(10**18), 10**18)}e-4"), decimal.Decimal(0)),
    "decimal(38,4)": some(
        lambda: decimal.Decimal(f"{chance.randrange(-(10**9), 10**38)}e-4"), *map(decimal.Decimal, (0, -128, 127))
    ),
    "interval day to second": some(lambda: datetime.timedelta(microseconds=chance.randrange(-(2**50), 2**50))),
    "date": some(day, datetime.date(1969, 12, 31)),
    "timestamp": some(moment),
    "timestamp_ntz": some(lambda: moment().replace(tzinfo=None)),
}


def test_hash_of_each_type_is_sparks_also_in_arrays_and_structs(spark):
    longest = max(map(len, KEYS.values()))
    columns = [values + [None] * (longest - len(values)) for values in KEYS.values()]
    schema = StructType.fromDDL(", ".join(f"c{number} {kind}" for number, kind in enumerate(KEYS)))
    flat = spark.createDataFrame(list(zip(*columns, strict=True)), schema).coalesce(1)
    names = flat.columns
    nested = {
        "array": "array(c7, '', null, cast(c0 as string))",
        "struct": f"struct({', '.join(names)})",
        "both": "if(c0 > 0, array(named_struct('x', if(c1 > 0, array(c5, c6, -0.0d), null), 'y', c8), null), null)",
    }
    frame = flat.select("*", *(sf.expr(made).alias(name) for name, made in nested.items()))
    chosen = [*([name] for name in frame.columns), names[:2], names[5:9], ["both", names[0]]]
    theirs = frame.select(*(sf.xxhash64(*of) for of in chosen)).toArrow()
    table = frame.toArrow().combine_chunks()
    for of, found in zip(chosen, theirs.columns, strict=True):
        assert hash_columns([table[name].chunk(0) for name in of]).tolist() == found.to_pylist(), of


def test_sliced_columns_hash_like_whole_ones():
    for values in ([1, None, 3, 4], ["a", None, "c", "d"], [True, False, None, True]):
        column = pa.array(values)
        assert hash_columns([column.slice(1)]).tolist() == hash_columns([column]).tolist()[1:]
