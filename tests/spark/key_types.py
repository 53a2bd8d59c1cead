"""Every type that a key may have, with values to draw.

Many are one key in Spark and several in Python, or the other way round. Values are drawn as Arrow keeps them (instants,
days and intervals as whole numbers), so that nothing here depends on how Python compares a time.
"""

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

HOUR = 3_600_000_000

REPEATED = {
    zone: [hour * HOUR + part for hour in (first, first + 1) for part in (0, HOUR // 2)]
    for zone, first in {"Europe/Berlin": 480_552, "America/New_York": 480_725, "UTC": 0}.items()
}
"""Instants in the hour that a zone's clocks showed twice in 2024."""

ZONES = ("Europe/Berlin", "America/New_York")


def kinds(zone: str) -> dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """The type of a key column and what to draw for it, by what Spark calls the type."""
    instant = pa.timestamp("us", zone)
    instants = st.sampled_from(REPEATED[zone]) | st.integers(-(2**50), 2**52)
    doubles = st.sampled_from([0.0, -0.0, math.nan, -math.nan, math.inf]) | st.floats()
    floats = st.sampled_from([0.0, -0.0, math.nan, -math.nan]) | st.floats(width=32)
    text = st.sampled_from(["", "a", "A", "NaN", "é", "e\u0301"]) | st.text(st.characters(codec="utf-8"))
    place = pa.struct([("x", pa.float64()), ("at", instant), ("name", pa.string())])
    places = st.fixed_dictionaries({"x": maybe(doubles), "at": maybe(instants), "name": maybe(text)})
    tree = pa.struct([("all", pa.list_(place)), ("one", pa.struct([("n", pa.int64())]))])
    trees = st.fixed_dictionaries(
        {
            "all": maybe(st.lists(maybe(places), max_size=2)),
            "one": maybe(st.fixed_dictionaries({"n": maybe(st.integers(0, 1))})),
        }
    )
    return {
        "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
        "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
        "smallint": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
        "tinyint": (pa.int8(), st.integers(-128, 127)),
        "boolean": (pa.bool_(), st.booleans()),
        "double": (pa.float64(), doubles),
        "float": (pa.float32(), floats),
        "decimal(9,2)": (pa.decimal128(9, 2), decimals(9, 2)),
        "decimal(18,0)": (pa.decimal128(18, 0), decimals(18, 0)),
        "decimal(38,10)": (pa.decimal128(38, 10), decimals(38, 10)),
        "string": (pa.string(), text),
        "binary": (pa.binary(), st.binary(max_size=40)),
        "date": (pa.date32(), st.integers(-719_162, 2_932_896)),
        "timestamp": (instant, instants),
        "timestamp_ntz": (pa.timestamp("us"), instants),
        "interval day to second": (pa.duration("us"), st.integers(-(2**55), 2**55)),
        "time": (pa.time64("ns"), st.integers(0, 86_400_000_000 - 1).map(lambda micros: micros * 1000)),
        "void": (pa.null(), st.none()),
        "array<double>": (pa.list_(pa.float64()), st.lists(maybe(doubles), max_size=3)),
        "array<array<timestamp>>": (
            pa.list_(pa.list_(instant)),
            st.lists(maybe(st.lists(maybe(instants), max_size=2)), max_size=2),
        ),
        "struct": (place, places),
        "struct of both": (tree, trees),
    }


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Null among the values."""
    return st.none() | values


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    """Any number of so many digits."""
    most = 10**precision - 1
    return st.integers(-most, most).map(
        lambda digits: Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale))
    )


def columns_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """A few values, some of them several times."""
    return st.lists(maybe(values), min_size=1, max_size=8).flatmap(
        lambda pool: st.lists(st.sampled_from(pool), min_size=1, max_size=12)
    )


def group(value: Any) -> Any:
    """The group of a value as it was drawn: what Spark says, written down once more, by other means."""
    if isinstance(value, float):
        return "no number" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple(group(value[name]) for name in sorted(value))
    return tuple(map(group, value)) if isinstance(value, list) else value
