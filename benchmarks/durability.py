"""What do snapshots cost an epoch, does the disk fill up, and how long does a recovery take?

Words are counted by the hour, open loop, two workers. `latency`: the same stream with snapshots off and on, in turn;
one picture. `disk`: ten minutes with snapshots on, the bytes on disk every few seconds, and a worker killed after one
minute and after nine: what the log is cut to bounds both. Writes `out/bench-durability/summary.json`.
"""

import argparse
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from rich.console import Console

import megaphone
from megaphone.harness.observe import Observer
from megaphone.harness.quiet import errors_to
from megaphone.harness.session import begin
from megaphone.harness.source import FORMAT, KeysSource
from megaphone.harness.timeline import Timeline
from megaphone.harness.words import HOURS, OUTPUT, Vocabulary, count_by_hour

WORDS, RATE, BINS = 300_000, 20_000, 256
OUT = Path("out/bench-durability")
WARM_UP_S, MEASURE_S, SOAK_S = 10.0, 40.0, 600.0
LOOK_EVERY_S = 5.0
SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Running:
    """A query under an open-loop stream."""

    control: megaphone.Control
    observer: Observer
    folder: Path

    def watch(self, seconds: float) -> None:
        """Let it run, and take in its epochs."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.observer.look()
            time.sleep(0.1)

    @property
    def timeline(self) -> Timeline:
        """Latency so far."""
        assert self.observer.timeline is not None
        return self.observer.timeline

    def bytes_by_kind(self) -> dict[str, int]:
        """Bytes in each folder of the checkpoint's part that is ours."""
        root = self.folder / "megaphone" / "control0"
        return {kind: _size(root / kind) for kind in ("log", "bins", "plans")}


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


@contextmanager
def running(spark: SparkSession, share: float) -> Iterator[Running]:
    """Words counted by the hour, from a preloaded state on."""
    folder = Path(tempfile.mkdtemp(prefix="megaphone-bench-"))
    now = sf.current_timestamp()
    source = spark.readStream.format(FORMAT).options(keys=WORDS, rate=RATE, preload=WORDS).load()
    words = source.select(
        sf.concat(sf.lit("word"), sf.col("key")).alias("word"),
        ((sf.dayofweek(now) - 1) * 24 + sf.hour(now)).cast("long").alias("hour"),
    )
    control = megaphone.Control(spark, workers=2, bins=BINS, snapshot_share=share)
    counts = megaphone.unary(control, words, "word", count_by_hour, OUTPUT, state=Vocabulary)
    query = counts.writeStream.format("noop").option("checkpointLocation", str(folder)).start()
    try:
        found = Running(control, Observer(query, RATE, WORDS), folder)
        while found.observer.timeline is None:
            found.watch(0.2)
            if query.exception() is not None:
                raise RuntimeError(query.exception())
        found.watch(WARM_UP_S)
        yield found
    finally:
        query.stop()
        shutil.rmtree(folder, ignore_errors=True)


def latency(spark: SparkSession, console: Console, seconds: float) -> dict[str, Any]:
    """The stream with snapshots off and on, twice in turn; the second round is drawn."""
    summary: dict[str, Any] = {}
    drawn: dict[str, list[dict[str, float]]] = {}
    ways = [("off", 0.0), ("on", SHARE)]
    for round in (1, 2):
        # The other way round the second time: whatever gets warmer or slower meanwhile falls on both.
        for name, share in ways if round == 1 else ways[::-1]:
            with running(spark, share) as query:
                begin = time.time()
                query.watch(seconds)
                measured = query.timeline.between(int(begin * 1e9), int((time.time() - 1) * 1e9))
                start = begin - query.timeline.schedule.start_ns / 1e9
                rows = [dict(row) for row in query.timeline.rows() if row["second"] >= start]
                drawn[name] = [{**row, "second": row["second"] - start} for row in rows]
                figures = {q: measured.quantile(float(q[1:]) / 100) / 1e6 for q in ("p50", "p95", "p99")}
                figures |= {"max": measured.max / 1e6, "snapshots": _written(query)}
            summary[f"{name} {round}"] = figures
            console.print(f"  snapshots {name}: " + ", ".join(f"{k} {v:,.0f}" for k, v in figures.items()))
    for q in ("p50", "p99", "max"):
        on, off = ([summary[f"{name} {round}"][q] for round in (1, 2)] for name in ("on", "off"))
        summary[f"{q} on over off"] = sum(on) / sum(off)
    _draw_latency(drawn)
    return summary


def _written(query: Running) -> int:
    return sum(1 for _ in (query.folder / "megaphone" / "control0").glob("bins/*/*"))


def disk(spark: SparkSession, console: Console, seconds: float) -> dict[str, Any]:
    """Bytes on disk over time, and how long the stream is held up by a killed worker, early and late."""
    samples: list[dict[str, float]] = []
    held_up: dict[str, float] = {}
    with running(spark, SHARE) as query:
        begin = time.monotonic()
        faults = {0.1 * seconds: "early", 0.9 * seconds: "late"}
        while (elapsed := time.monotonic() - begin) < seconds:
            query.watch(LOOK_EVERY_S)
            samples.append({"second": elapsed, **query.bytes_by_kind()})
            for due in [due for due in faults if due <= elapsed]:
                held_up[faults.pop(due)] = _kill_one(query)
                console.print(f"  {elapsed:4.0f} s: a worker killed; the longest latency {held_up}")
    totals = [sample["log"] + sample["bins"] + sample["plans"] for sample in samples]
    third = len(totals) // 3
    summary = {
        "seconds": seconds,
        "state_bytes": WORDS * HOURS * 8,
        "most_bytes_second_third": max(totals[third : 2 * third]),
        "most_bytes_last_third": max(totals[2 * third :]),
        "most_log_bytes_second_third": max(sample["log"] for sample in samples[third : 2 * third]),
        "most_log_bytes_last_third": max(sample["log"] for sample in samples[2 * third :]),
        "held_up_ms": held_up,
        "samples": samples,
    }
    _draw_disk(samples)
    console.print({name: value for name, value in summary.items() if name != "samples"})
    return summary


def _kill_one(query: Running) -> float:
    """Kill a worker, and say how late the latest record was for it."""
    (status,) = query.control.status()
    begin = time.time()
    os.kill(status.workers[0].pid, signal.SIGKILL)
    query.watch(15)
    return query.timeline.between(int((begin - 1) * 1e9), int(time.time() * 1e9)).max / 1e6


def _draw_latency(drawn: dict[str, list[dict[str, float]]]) -> None:
    figure, panes = plt.subplots(1, 2, figsize=(11, 3.4), dpi=110, sharey=True)
    for pane, (name, rows) in zip(panes, sorted(drawn.items()), strict=True):
        for quantile, colour in (("max_ms", "#b2182b"), ("p99_ms", "#ef8a62"), ("p50_ms", "#2166ac")):
            seconds, values = [row["second"] for row in rows], [row[quantile] for row in rows]
            pane.plot(seconds, values, label=quantile.removesuffix("_ms"), color=colour, linewidth=1.2)
        pane.set_title(f"snapshots {name}", fontsize=11, loc="left")
        pane.set_xlabel("seconds")
        pane.grid(True, alpha=0.2)
    panes[0].set_ylabel("ms from when a record was due")
    panes[0].set_ylim(bottom=0)
    panes[1].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False)
    _save(figure, "latency.png")


def _draw_disk(samples: list[dict[str, float]]) -> None:
    figure, axes = plt.subplots(figsize=(11, 3.4), dpi=110)
    seconds = [sample["second"] for sample in samples]
    axes.stackplot(
        seconds,
        *([sample[kind] / 1e6 for sample in samples] for kind in ("bins", "log", "plans")),
        labels=("snapshots of bins", "input log", "plans"),
        colors=("#92c5de", "#f4a582", "#999999"),
    )
    axes.set_xlabel("seconds")
    axes.set_ylabel("MB on disk")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False)
    axes.grid(True, alpha=0.2)
    _save(figure, "disk.png")


def _save(figure: Any, name: str) -> None:
    figure.tight_layout()
    OUT.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUT / name)
    plt.close(figure)


def main() -> None:
    """Run the parts asked for, and keep what was found beside what is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="*", default=["latency", "disk"], help="latency, disk, or both")
    parser.add_argument("--seconds", type=float, default=SOAK_S, help="how long `disk` goes on")
    parser.add_argument("--measure", type=float, default=MEASURE_S, help="how long each stretch of `latency` is")
    options = parser.parse_args()
    console = Console(width=110)
    builder = megaphone.tuned(SparkSession.builder.master("local[2]").appName("bench-durability"))
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(name, "false")
    path = OUT / "summary.json"
    summary = json.loads(path.read_text()) if path.exists() else {}
    with errors_to(OUT / "log.txt"):
        spark = begin(builder.config("spark.log.level", "FATAL"))
        spark.dataSource.register(KeysSource)
        if "latency" in options.part:
            summary["latency"] = latency(spark, console, options.measure)
        if "disk" in options.part:
            summary["disk"] = disk(spark, console, options.seconds)
        spark.stop()
    path.write_text(json.dumps(summary, indent=1) + "\n")
    console.print(f"summary: {path}")


if __name__ == "__main__":
    main()
