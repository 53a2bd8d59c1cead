"""Would catch a query that answers otherwise on Spark than its SQL says: as a batch, while its bins move, natively.

The right answers are DuckDB's, over the events that the generator gives. Migrations are begun from the query's own
sink, by every strategy, one after the other; on one executor here, and on two of a cluster of processes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import nexmark_runs as nexmark
import pytest

import megaphone
from megaphone.nexmark.queries import QUERIES

pytestmark = pytest.mark.timeout(900)

QUICK = ("q4", "q5")
"""Of these a change must pass in every run of the tests; of the others in the long ones."""

NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in QUERIES]
SEEDS = [nexmark.SEEDS[0], *(pytest.param(seed, marks=pytest.mark.slow) for seed in nexmark.SEEDS[1:])]


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_query_gives_what_its_sql_gives_on_a_batch(spark, name):
    control = megaphone.Control(spark, workers=nexmark.WORKERS, bins=nexmark.BINS)
    streams = nexmark.read(QUERIES[name], spark.read, 5)
    assert nexmark.is_right(QUERIES[name], 5, QUERIES[name].build(control, streams, nexmark.WINDOWS).toArrow())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", NAMES)
def test_query_gives_what_its_sql_gives_while_its_bins_move(spark, tmp_path, name, seed):
    answers, moved = nexmark.run_while_bins_move(spark, name, seed, tmp_path / "checkpoint")
    assert moved == nexmark.ALL_MOVED
    assert nexmark.is_right(QUERIES[name], seed, answers)


@pytest.mark.parametrize("name", NAMES)
def test_native_query_gives_what_its_sql_gives(spark, tmp_path, name):
    answers = nexmark.run_native(spark, name, 5, tmp_path / "checkpoint")
    assert nexmark.is_right(QUERIES[name], 5, answers)


@pytest.mark.slow
@pytest.mark.cluster
def test_queries_are_right_on_two_executors_while_bins_move(tmp_path_factory):
    folder = tmp_path_factory.mktemp("x")
    command = [sys.executable, str(Path(nexmark.__file__)), "local-cluster[2,1,1024]", *QUERIES]
    environment = {**os.environ, "TMPDIR": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=840)
    assert done.returncode == 0, done.stderr[-10_000:]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [run for run in told if not run["right"]] == []
    assert {(run["query"], run["seed"]) for run in told} == {(name, seed) for name in QUERIES for seed in nexmark.SEEDS}
    assert {tuple(map(tuple, run["moved"])) for run in told} == {tuple(nexmark.ALL_MOVED)}
