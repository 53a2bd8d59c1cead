"""Generated scenarios on Spark: the paper's properties Correctness and Migration.

Would catch a record applied twice, never, out of time order, or by a worker that did not own its bin; for every
strategy, every depth of fold and both clocks. The oracle shares no code with the engine, and takes what each epoch
read from Spark's own log.
"""

import itertools
import os
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

import megaphone
from megaphone.bins import Bins
from megaphone.configuration import Assignment, Configuration
from megaphone.dataflow.hashing import hash_columns
from megaphone.progress import BEGIN
from megaphone.testing import recompute, recompute_machine

BINS, KEYS, LATENESS = 8, 40, 3
OUTPUT = "op string, key long, time long, value long, pid int"

STRATEGIES = ("all_at_once", "batched", "fluid", "optimized")


def count(key, row, n):
    """Per key, and every fourth record removes the key's state."""
    n = (n or 0) + 1
    return (n if n < 4 else None), [("count", key, row.t, n, os.getpid())]


def total(time, data, state, notificator):
    """Per bin: the sum of a key at a time, and an echo two times later of what is odd."""
    sums = Counter()
    for row in data:
        sums[row.k] += row.v
        if row.v % 2:
            notificator.notify_at(time + 2, row._replace(v=row.v - 1))
    for key, value in sums.items():
        state[key] = state.get(key, 0) + value
        yield "total", key, time, state[key], os.getpid()


@megaphone.vectorised
def tally(records, states, notificator):
    """Vectorised: how often each key has been seen, in an array."""
    keys, counts = records.column("k"), np.empty(len(records), np.int64)
    for row, (bin, key) in enumerate(zip(records.bins.tolist(), keys.tolist(), strict=True)):
        states[bin][key] += 1
        counts[row] = states[bin][key]
    return {
        "op": ["tally"] * len(records),
        "key": keys,
        "time": records.times,
        "value": counts,
        "pid": np.full(len(records), os.getpid()),
    }


def fresh_counts():
    """A count for each key."""
    return np.zeros(KEYS, np.int64)


def lookup(time, stored, asked, state, later_stored, later_asked):
    """Binary: what the left has stored by the time the right asks, now and three times later."""
    for row in stored:
        state[row.k] = state.get(row.k, 0) + row.v
    for row in asked:
        if row.v % 3 == 0:
            later_asked.notify_at(time + 3, row._replace(v=1))
        yield "lookup", row.k, time, state.get(row.k, 0), os.getpid()


def operators(control: megaphone.Control, rows: DataFrame, time: dict[str, Any]) -> DataFrame:
    """One operator of each kind and depth on one control."""
    left, right = rows.where("not ask"), rows.where("ask")
    frames = [
        megaphone.state_machine(control, rows, "k", count, OUTPUT, **time),
        megaphone.unary(control, rows, "k", total, OUTPUT, **time),
        megaphone.unary(control, rows, ["k"], tally, OUTPUT, state=fresh_counts, **time),
        megaphone.binary(control, left, right, megaphone.Bits(sf.xxhash64("k")), sf.col("k"), lookup, OUTPUT, **time),
    ]
    union = frames[0]
    for frame in frames[1:]:
        union = union.union(frame)
    return union


class Row:
    """What the oracle's folds take for an input row."""

    def __init__(self, k, t, v, ask):
        self.k, self.t, self.v, self.ask = k, t, v, ask

    def _replace(self, v):
        return Row(self.k, self.t, v, self.ask)


def oracle(epochs: dict[int, list[Any]], clock: str) -> Counter[tuple[Any, ...]]:
    """The (op, key, time, value) that must have come out once these epochs were read."""
    bin_of = dict(enumerate(bins_of(range(KEYS)).tolist()))
    exchange = lambda row: bin_of[row.k]  # noqa: E731
    rows, frontier, _ = timed(epochs, clock)
    both, frontier_of_both, _ = timed(epochs, clock, inputs=2)
    stored, asked = ([(time, row) for time, row in both if row.ask is ask] for ask in (False, True))
    keyed = [(time, row.k, row) for time, row in rows]
    outputs = [
        *before(frontier, recompute_machine(count, keyed)),
        *before(frontier, recompute(total, [rows], [exchange])),
        *before(frontier, recompute_machine(tally_one, keyed)),
        *before(frontier_of_both, recompute(lookup, [stored, asked], [exchange, exchange])),
    ]
    return Counter((op, key, time, value) for time, (op, key, _, value, _) in outputs)


def tally_one(key, row, n):
    """What `tally` does, record by record."""
    return (n or 0) + 1, [("tally", key, row.t, (n or 0) + 1, 0)]


def before(frontier: int, outputs: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """What a frontier has passed."""
    return [(time, output) for time, output in outputs if time < frontier]


def timed(epochs: dict[int, list[Any]], clock: str, inputs: int = 1) -> tuple[list[tuple[int, Row]], int, int]:
    """Records with their times, the frontier they lead to, and how many came behind it."""
    if clock == "epoch":
        return [(epoch, Row(*row)) for epoch, rows in epochs.items() for row in rows], max(epochs) + 1, 0
    records: list[tuple[int, Row]] = []
    frontier, seen, late = BEGIN, [BEGIN] * inputs, 0
    for _, raw in sorted(epochs.items()):
        rows = [Row(*row) for row in raw]
        in_time = [(row.t, row) for row in rows if row.t >= frontier]
        late += len(rows) - len(in_time)
        records += in_time
        for row in rows:
            input = int(row.ask) % inputs
            seen[input] = max(seen[input], row.t)
        frontier = max(frontier, min(seen) - LATENESS if min(seen) > BEGIN else BEGIN)
    return records, frontier, late


def bins_of(keys) -> np.ndarray:
    """The bin of each integer key."""
    return Bins.of_count(BINS).of_hashes(hash_columns([pa.array(list(keys), pa.int64())]))


@dataclass(frozen=True)
class Scenario:
    """A finished run: what it read, what came out, and who was to apply what."""

    clock: str
    epochs: dict[int, list[Any]]
    outputs: list[tuple[str, int, int, int, int]]
    configuration: Configuration
    status: megaphone.Status
    migrations: list[megaphone.Migration]


@pytest.fixture(
    scope="module",
    params=[*((strategy, "epoch") for strategy in STRATEGIES), ("optimized", "column")],
    ids="-".join,
)
def scenario(request, spark, new_feed, new_query, tmp_path_factory) -> Scenario:
    """Run a random scenario once, for every claim about it."""
    strategy, clock = request.param
    folder = tmp_path_factory.mktemp("scenario")
    chance = random.Random(f"{strategy} {clock}")
    workers = chance.randrange(2, 5)
    with pytest.MonkeyPatch.context() as patch:
        log = configuration_log(patch, Assignment.round_robin(BINS, workers))
        control = megaphone.Control(spark, workers=workers, bins=BINS)
        feed = new_feed(folder / "feed", "k long, t long, v long, ask boolean")
        time = {} if clock == "epoch" else {"time": "t", "lateness": LATENESS}
        running = new_query(operators(control, feed.frame, time), folder / "checkpoint")
        try:
            migrations = play(running, feed, control, Chance(chance, strategy, workers))
            (status,) = control.status()
        finally:
            running.query.stop()
    outputs = [
        (row.op, row.key, epoch if clock == "epoch" else row.time, row.value, row.pid)
        for epoch, rows in running.by_epoch.items()
        for row in rows
    ]
    return Scenario(clock, running.read(feed), outputs, log, status, migrations)


def configuration_log(patch, initial: Assignment) -> Configuration:
    """A configuration that gets every update the real ones get, and forgets none."""
    log, insert = Configuration(initial), Configuration.insert

    def insert_and_log(self, update):
        insert(self, update)
        insert(log, update)

    patch.setattr(Configuration, "insert", insert_and_log)
    return log


@dataclass(frozen=True)
class Chance:
    """The random choices of a scenario."""

    random: random.Random
    strategy: str
    workers: int

    def rows(self, base: int) -> list[tuple[int, int, int, bool]]:
        """An epoch whose times are about `base`; some are late."""
        draw = self.random.randrange
        return [(draw(KEYS), base + draw(-6, 9), draw(10), self.random.random() < 0.3) for _ in range(draw(25))]

    def migrate(self, control: megaphone.Control) -> megaphone.Migration:
        """A random assignment, by the strategy with a random gap."""
        draw = self.random.randrange
        target = [draw(self.workers) for _ in range(BINS)]
        batch = {"batch": draw(1, 4)} if self.strategy == "batched" else {}
        return control.migrate(target, self.strategy, gap=draw(2), **batch)


def play(running, feed, control, chance: Chance) -> list[megaphone.Migration]:
    """Send random epochs, with random migrations among them, some back to back."""
    migrations = []
    bases = itertools.count(0, 6)
    for round in range(2):
        feed.send(chance.rows(next(bases)), chance.rows(next(bases)))
        migrations += [chance.migrate(control) for _ in range(round + 1)]
        # An operator that is behind the others, as the binary one may be, gets to a step's time by data.
        while any(migration.ended_s is None for migration in migrations):
            feed.send(chance.rows(next(bases)))
            running.settle()
    # Both inputs far in the future: everything sent before falls due.
    feed.send([(0, 10_000, 0, ask) for ask in (False, True)])
    running.settle()
    return migrations


def test_outputs_are_those_of_a_recomputation(scenario):
    given, due = Counter(row[:-1] for row in scenario.outputs), oracle(scenario.epochs, scenario.clock)
    assert given - due == Counter()
    assert due - given == Counter()


def test_every_migration_completes(scenario):
    assert [migration.phase for migration in scenario.migrations] == ["done"] * 3
    assert scenario.status.assignment == scenario.configuration.last


def test_every_record_is_applied_where_the_configuration_says(scenario):
    pids = {worker.worker: worker.pid for worker in scenario.status.workers}
    for op, key, time, _, pid in scenario.outputs:
        (bin,) = bins_of([key])
        owner = scenario.configuration.owner(time, bin)
        assert pid == pids[owner], f"{op} applied key {key} of bin {bin} at {time}, which is worker {owner}'s"


def test_late_records_are_counted_and_not_applied(scenario):
    *unary, binary = scenario.status.late.values()
    assert unary == [timed(scenario.epochs, scenario.clock)[2]] * 3
    assert binary == timed(scenario.epochs, scenario.clock, inputs=2)[2]
