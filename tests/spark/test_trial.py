"""A trial on Spark, with next to nothing to count.

Would catch records that are counted twice or not at all in the latency, a migration that is not done, memory that is
not sampled, and results without what the experiments draw from. No figure is held to anything: the machine may be busy.
"""

import json

import pytest

from megaphone.harness import today, trial
from megaphone.harness.recipe import ALL_AT_ONCE, counting
from megaphone.harness.source import KeysSource
from megaphone.harness.stage import Stage

pytestmark = pytest.mark.slow
"""`make test-bench`."""

BRIEF = {"cold_s": 0.0, "warm_up_s": 0.5, "steady_s": 1.5, "settle_s": 1.5, "limit_s": 60.0, "rate": 1000}


@pytest.fixture
def stage(spark):
    """The tests' own session."""
    spark.dataSource.register(KeysSource)
    stage = Stage(lambda what: None)
    stage._spark = spark
    return stage


@pytest.mark.parametrize("benchmark", ["key", "hash", "dict"])
def test_state_is_moved_out_and_back_and_every_record_has_a_latency(stage, benchmark):
    batched = {"strategy": "batched", "batch": 2}
    given = counting("smoke", "one", benchmark=benchmark, keys=4000, bins=16, strategies=[batched], **BRIEF)
    found = trial.count(given, stage)
    assert [(one["way"], one["phase"], one["steps"]) for one in found["migrations"]] == [
        ("out", "done", 2),
        ("back", "done", 2),
    ]
    assert all(one["latency"]["records"] > 0 and one["bytes_moved"] > 0 for one in found["migrations"])
    assert found["steady"]["records"] > 0
    assert (found["not_done"], found["skipped"]) == (0, 0)
    whole = [row["records"] for row in found["timeline"]][1:-1]
    assert set(whole) == {given["rate"] / 4}
    assert all(sample["workers"] > 0 and sample["jvm"] > 0 and sample["heap"] > 0 for sample in found["memory"][4:])
    assert found["memory"][-1]["moved"] == sum(one["bytes_moved"] for one in found["migrations"])
    json.dumps(found)


def test_native_count_is_tried_too(stage):
    found = trial.count(counting("smoke", "one", version="native", keys=4000, bins=16, **BRIEF), stage)
    assert found["steady"]["records"] > 0
    assert found["migrations"] == []


def test_rescale_beside_ours(stage):
    given = counting("smoke", "one", benchmark="hash", keys=2000, bins=16, to=4, strategies=[ALL_AT_ONCE], **BRIEF)
    found = today.rescale(given, stage)
    (rescaled,) = found["migrations"]
    assert (rescaled["phase"], rescaled["bins"]) == ("done", 8)


@pytest.mark.parametrize("way", ["groupBy().count()", "transformWithState"])
def test_stop_and_restart_loses_no_record_from_the_latency(stage, way):
    stage.spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    given = counting("smoke", "one", benchmark="hash", keys=2000, bins=16, to=4, way=way, **{**BRIEF, "rate": 200})
    found = today.restart(given, stage)
    (rescaled,) = found["migrations"]
    assert rescaled["latency"]["max_ms"] / 1000 >= rescaled["duration_s"] / 2
    assert found["not_done"] == 0
