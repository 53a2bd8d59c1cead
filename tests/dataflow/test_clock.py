"""Would catch a time that is rounded, or counted in a unit that nobody said."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from megaphone.dataflow.operators import Input, bin_operator
from megaphone.engine.local import LocalEngine
from megaphone.errors import PlanError

LONG, ZONED, CLOCK = pa.int64(), pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us")


def input_of(kind, lateness=0):
    """By the epoch if there is no type for a time column."""
    schema = pa.schema([("k", pa.int64()), *([("at", kind)] if kind else [])])
    return Input(schema, ("k",), "at" if kind else None, lateness)


def test_times_with_and_without_a_zone_are_not_mixed():
    inputs = [input_of(ZONED), input_of(CLOCK)]
    with pytest.raises(
        PlanError, match="operator pair has times with a zone at one input, and without at the other; cast"
    ):
        bin_operator("pair", inputs, print, input_of(LONG).schema, dict)


def test_time_without_a_zone_is_taken_as_written():
    """Also in an hour that the clock of the session's zone leaves out: 02:30 came after 03:00."""
    calls = []
    spec = bin_operator("see", [input_of(CLOCK)], lambda time, *_: calls.append(time), input_of(LONG).schema, dict)
    written = [datetime(2026, 3, 29, 3), datetime(2026, 3, 29, 2, 30), datetime(2026, 3, 29, 1, 59)]
    engine = LocalEngine(spec, 1, 2)
    engine.epoch([(1, at) for at in written])
    engine.close()
    assert calls == sorted(int(at.replace(tzinfo=UTC).timestamp()) * 1_000_000 for at in written)
