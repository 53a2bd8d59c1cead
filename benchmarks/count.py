"""How many records a second can be counted, and what does a migration step cost?

A running count over a million integer keys, two workers, in one Spark application: ours with 2^8 and 2^12 bins, Spark's
own `groupBy().count()` on RocksDB, and `transformWithStateInPandas`. Each system gets epochs of growing size, and its
rate is the best it reaches with epochs of at most four seconds. Then short epochs, and steps that move bins.
Writes `out/bench-count/summary.json`.
"""

import argparse
import gc
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery
from rich.console import Console
from rich.table import Table

import megaphone
from megaphone.bins import Bins
from megaphone.configuration import Configuration
from megaphone.dataflow.exchange import encode
from megaphone.dataflow.hashing import hash_columns
from megaphone.dataflow.records import Records
from megaphone.dataflow.routing import address
from megaphone.harness import today
from megaphone.harness.counting import OUTPUT, hash_count
from megaphone.harness.hashes import HashBins, HashCounts
from megaphone.harness.quiet import errors_to
from megaphone.harness.saturation import durations_of
from megaphone.harness.source import FORMAT, keys_of
from megaphone.harness.stage import Stage
from megaphone.progress import Time

KEYS = 1_000_000
EPOCH_LIMIT_S = 4.0
"""A rate counts only if an epoch takes no longer: else one could buy any rate with latency."""
OUT = Path("out/bench-count")


@dataclass(frozen=True, slots=True)
class Rate:
    """Epochs of one size on one system."""

    system: str
    rows: int
    epoch_s: float
    records_per_s: float


Build = Callable[[DataFrame], tuple[DataFrame, megaphone.Control | None]]


class Bench:
    """One Spark application in which every system runs in turn."""

    def __init__(self, console: Console) -> None:
        """Start Spark."""
        self.console = console
        self.folder = Path(tempfile.mkdtemp(prefix="megaphone-bench-"))
        self.stage = Stage(lambda what: None, {"spark.driver.memory": "6g"})
        self.spark = self.stage.spark

    @contextmanager
    def query(self, build: Build, rows: int, preload: int = 0) -> Iterator[tuple[StreamingQuery, Any]]:
        """A query over generated keys, `rows` in every epoch."""
        source = self.spark.readStream.format(FORMAT).options(rows=rows, keys=KEYS, preload=preload).load()
        counted, control = build(source)
        checkpoint = tempfile.mkdtemp(dir=self.folder)
        writer = counted.writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint)
        query = writer.start()
        try:
            yield query, control
        finally:
            query.stop()
            shutil.rmtree(checkpoint, ignore_errors=True)

    def rate(self, system: str, build: Build, rows: int, epochs: int, preload: int = KEYS) -> Rate:
        """How long epochs of this size take, once every key has a state and the JVM is warm."""
        with self.query(build, rows, preload) as (query, _):
            durations = durations_of(query, warm=3 if preload else 2, epochs=epochs)
        took = statistics.median(durations)
        found = Rate(system, rows, took, rows / took)
        self.console.print(
            f"  {system:<28} {rows:>12,} an epoch  {took:7.2f} s  {found.records_per_s:>12,.0f} records/s"
        )
        return found

    def close(self) -> None:
        """Stop Spark."""
        self.stage.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def ours(bins: int) -> Build:
    """Our operator with so many bins."""

    def build(source: DataFrame) -> tuple[DataFrame, megaphone.Control]:
        control = megaphone.Control(source.sparkSession, workers=2, bins=bins)
        return megaphone.unary(control, source, "key", hash_count, OUTPUT, state=HashBins), control

    return build


def plain(way: str) -> Build:
    """One of Spark's own ways."""
    return lambda source: (today.WAYS[way](source), None)


def best(rates: list[Rate]) -> Rate:
    """The best rate whose epochs keep to the limit; if none does, the shortest epochs."""
    kept = [rate for rate in rates if rate.epoch_s <= EPOCH_LIMIT_S]
    return max(kept, key=lambda rate: rate.records_per_s) if kept else min(rates, key=lambda rate: rate.epoch_s)


def steps(bench: Bench) -> dict[str, float]:
    """Short epochs with and without a step in them, and how fast bins move."""

    def build(source: DataFrame) -> tuple[DataFrame, megaphone.Control]:
        control = megaphone.Control(source.sparkSession, workers=2, bins=64)
        heavy = lambda: {"ballast": np.ones((16 << 20) // 8), "counts": HashCounts()}  # noqa: E731

        @megaphone.vectorised
        def fold(records: megaphone.Records, states: megaphone.States, _: Any) -> dict[str, Any]:
            for bin, start, stop in records.spans():
                found, times = np.unique(records.column("key")[start:stop], return_counts=True)
                states[bin]["counts"].add(found, times)
            return {"key": np.empty(0, np.int64), "n": np.empty(0, np.int64)}

        return megaphone.unary(control, source, "key", fold, "key long, n long", state=heavy), control

    swapped = [(bin + 1) % 2 for bin in range(64)]
    straight = [bin % 2 for bin in range(64)]
    with bench.query(build, rows=1000, preload=20_000) as (query, control):
        steady = durations_of(query, warm=30, epochs=30)
        begin = query.lastProgress.batchId + 2
        fluid = control.migrate(swapped, "fluid").wait(120)
        moving = durations_of(query, warm=begin, epochs=len(fluid.plan.steps) - 4)
        steady += durations_of(query, warm=query.lastProgress.batchId + 1, epochs=30)
        begin = query.lastProgress.batchId + 1
        at_once = control.migrate(straight, "all_at_once").wait(120)
        busy = durations_of(query, warm=begin, epochs=4)
    return {
        "steady_epoch_ms": statistics.median(steady) * 1000,
        "fluid_epoch_ms": statistics.median(moving) * 1000,
        "fluid_first_step_ms": moving[0] * 1000,
        "fluid_bytes_per_step": fluid.bytes_moved / len(fluid.plan.steps),
        "steady_max_ms": max(steady) * 1000,
        "fluid_max_ms": max(moving) * 1000,
        "all_at_once_bytes": at_once.bytes_moved,
        "all_at_once_epoch_ms": max(busy) * 1000,
    }


def breakdown(bench: Bench, rows: int) -> dict[str, float]:
    """Seconds of an epoch by where they are spent: by leaving parts out, and by what the workers used."""
    source = bench.rate("source alone", lambda frame: (frame, None), rows, 3).epoch_s
    fed = bench.rate("source, hash, into Python", fed_to_python, rows, 3).epoch_s
    with bench.query(ours(1 << 12), rows, KEYS) as (query, _):
        durations_of(query, warm=4, epochs=1)
        first, before = query.lastProgress.batchId, _worker_cpu_seconds()
        whole = statistics.median(durations_of(query, warm=first + 1, epochs=4))
        last, after = query.lastProgress.batchId, _worker_cpu_seconds()
        overhead = statistics.median(
            (progress.durationMs["triggerExecution"] - progress.durationMs["addBatch"]) / 1000
            for progress in query.recentProgress
        )
    spent = {
        "source": source - overhead,
        "hash and rows into Python": fed - source,
        "F (routing, payloads)": routing_s(rows) / 2,
        "workers (decode, sort, count)": (after - before) / (last - first) / 2,
        "Spark's bookkeeping": overhead,
    }
    return {**spent, "shuffle, S, outputs": whole - sum(spent.values()), "whole epoch": whole}


def fed_to_python(source: DataFrame) -> tuple[DataFrame, None]:
    """What F is given, and nothing done with it."""

    def swallow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gc.freeze()
        for _ in batches:
            pass
        yield from ()

    return source.select("key", sf.xxhash64("key").alias("hash")).mapInArrow(swallow, "key long"), None


def routing_s(rows: int) -> float:
    """Seconds one process takes to route and encode so many records, without Spark."""
    bins, configuration = Bins.of_count(1 << 12), Configuration(megaphone.Assignment.round_robin(1 << 12, 2))
    keys = keys_of(np.arange(1 << 16), KEYS, seed=1)
    batch, rounds = pa.record_batch({"key": keys}), 20
    begin = time.perf_counter()
    for _ in range(rounds):
        records = Records.at(Time(0), bins.of_hashes(hash_columns([batch["key"]])), batch)
        for _, routed in address(configuration, records):
            encode([routed])
    return (time.perf_counter() - begin) / rounds / len(keys) * rows


def _worker_cpu_seconds() -> float:
    times = [process.cpu_times() for process in _workers()]
    return float(sum(used.user + used.system for used in times))


def _workers() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if "megaphone.engine.spark.worker" in " ".join(process.info["cmdline"] or []):
            found.append(process)
    return found


def main() -> None:
    """Run everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer sizes and epochs")
    quick = parser.parse_args().quick
    console = Console(width=110)
    OUT.mkdir(parents=True, exist_ok=True)
    with errors_to(OUT / "log.txt"):
        bench = Bench(console)
        try:
            summary = _measure(bench, quick)
        finally:
            bench.close()
    (OUT / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    _print(console, summary)


def _measure(bench: Bench, quick: bool) -> dict[str, Any]:
    console, epochs = bench.console, 3 if quick else 5
    console.print(f"running count, {KEYS:,} keys, one run, two cores")
    sizes = (1_000_000, 10_000_000) if quick else (200_000, 1_000_000, 10_000_000)
    rates: dict[str, list[Rate]] = {}
    for bins in (1 << 8, 1 << 12):
        name = f"megaphone, 2^{bins.bit_length() - 1} bins"
        rates[name] = [bench.rate(name, ours(bins), rows, epochs) for rows in sizes]
    name = "groupBy().count()"
    rates[name] = [bench.rate(name, plain(name), rows, 3) for rows in (200_000, 600_000, 1_000_000)]
    name = "transformWithStateInPandas"
    rates[name] = [bench.rate(name, plain(name), rows, 2, preload=0) for rows in (5_000,)]
    console.print("short epochs of 10 records")
    short = {
        "megaphone": bench.rate("megaphone, 2^8 bins", ours(1 << 8), 10, 40, preload=0).epoch_s,
        "groupBy().count()": bench.rate("groupBy().count()", plain("groupBy().count()"), 10, 40, preload=0).epoch_s,
    }
    console.print("steps: one bin of 16 MB an epoch, then all at once")
    moved = steps(bench)
    console.print("where the time goes")
    spent = breakdown(bench, 10_000_000)
    return {
        "records_per_s": {name: best(found).records_per_s for name, found in rates.items()},
        "rates": [asdict(rate) for found in rates.values() for rate in found],
        "short_epoch_s": short,
        "steps": moved,
        "seconds_of_an_epoch": spent,
        "ratios": _ratios({name: best(found).records_per_s for name, found in rates.items()}, short, moved),
    }


def _ratios(rates: dict[str, float], short: dict[str, float], moved: dict[str, float]) -> dict[str, float]:
    slowest = min(rate for name, rate in rates.items() if name.startswith("megaphone"))
    extra_s = (moved["all_at_once_epoch_ms"] - moved["steady_epoch_ms"]) / 1000
    return {
        "to groupBy().count()": slowest / rates["groupBy().count()"],
        "to transformWithStateInPandas": slowest / rates["transformWithStateInPandas"],
        "short epoch to Spark's": short["megaphone"] / short["groupBy().count()"],
        "fluid epoch to steady": moved["fluid_epoch_ms"] / moved["steady_epoch_ms"],
        "all at once, MB/s beyond a steady epoch": moved["all_at_once_bytes"] / 1e6 / max(extra_s, 1e-3),
    }


def _print(console: Console, summary: dict[str, Any]) -> None:
    table = Table(title=f"records a second, epochs of at most {EPOCH_LIMIT_S:.0f} s")
    table.add_column("system")
    table.add_column("records/s", justify="right")
    for name, rate in summary["records_per_s"].items():
        table.add_row(name, f"{rate:,.0f}")
    console.print(table)
    for name in ("ratios", "steps", "seconds_of_an_epoch"):
        figures = ", ".join(f"{key} {value:,.2f}" for key, value in summary[name].items())
        console.print(f"{name.replace('_', ' ')}: {figures}")
    console.print(f"summary: {OUT / 'summary.json'}")


if __name__ == "__main__":
    main()
