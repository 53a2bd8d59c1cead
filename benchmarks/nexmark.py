"""NEXMark, each query three ways in one run: migrateable with 2^12 bins, native on the same workers, Spark's own.

`saturation`: epochs grow until they take longer than the limit; what fits into one that takes just as long counts.
`latency`: open loop, at half the rate that the slowest of the three reached; from when an event was due to when its
epoch was committed. `steady`: how long migrateable and native take for epochs of as many events. Both run at once and
have an epoch each in turn, so that they share whatever else the machine does; both with their inputs logged and neither
with snapshots, which native state, being one piece, cannot have.
Writes `out/bench-nexmark/summary.json`, after every query, so that an interrupted run goes on with `--resume`; `--keep`
puts a copy into `benchmarks/results`.
"""

import argparse
import itertools
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from rich.console import Console
from rich.table import Table

import megaphone
from megaphone.harness.observe import Observer
from megaphone.harness.quiet import errors_to
from megaphone.harness.results import commit_of, setting, write
from megaphone.harness.session import begin
from megaphone.nexmark import Nexmark
from megaphone.nexmark.memory import keep_memory
from megaphone.nexmark.native import NATIVE
from megaphone.nexmark.plain import CONF, PLAIN
from megaphone.nexmark.queries import QUERIES, Query, Windows
from megaphone.nexmark.source import NexmarkSource, NexmarkStreamReader

OUT = Path("out/bench-nexmark")
KEPT = Path("benchmarks/results/nexmark")
WORKERS, BINS = 2, 1 << 12
EPOCH_LIMIT_S = 2.0
"""An event waits for the epoch before its own to end, and then for its own: latency is bounded by twice this."""
FIRST_ROWS, EPOCHS_OF_A_SIZE, SIZES = 2_000, 4, 15
STREAM = {"dilation": 60, "in_flight_auctions": 20_000, "strings": "true", "partitions": 2}
"""A minute of NEXMark's time in a second: then Q5's and Q7's windows come and go in a short run, as in the paper."""
RATE = 1_000_000
"""Of the event times when the clock is not asked; about as fast as the fastest go, so windows have as many events."""
WARM_UP_S, MEASURE_S = 4.0, 10.0
WARM_S = 8.0
STEADY_EPOCH_S = 0.5
"""About how long a steady epoch takes."""
STEADY_PAIRS, WARM_PAIRS = 100, 40
"""Epochs of each version that count, and those before them, in which the JVM compiles most of what it runs."""
LEAST_RATE = 500

Build = Callable[[SparkSession, Query, dict[str, DataFrame], Windows], DataFrame]


def migrateable(spark: SparkSession, query: Query, streams: dict[str, DataFrame], windows: Windows) -> DataFrame:
    """Ours."""
    return query.build(megaphone.Control(spark, workers=WORKERS, bins=BINS), streams, windows)


def steady(spark: SparkSession, query: Query, streams: dict[str, DataFrame], windows: Windows) -> DataFrame:
    """Ours without snapshots."""
    return query.build(megaphone.Control(spark, workers=WORKERS, bins=BINS, snapshot_share=0), streams, windows)


def native(spark: SparkSession, query: Query, streams: dict[str, DataFrame], windows: Windows) -> DataFrame:
    """On the same workers: no bins, no configuration, and no snapshots either."""
    control = megaphone.Control(spark, workers=WORKERS, bins=WORKERS, snapshot_share=0)
    return NATIVE[query.name](control, streams, windows)


def plain(spark: SparkSession, query: Query, streams: dict[str, DataFrame], windows: Windows) -> DataFrame:
    """Spark's own operators."""
    return PLAIN[query.name](streams, windows)


VERSIONS: dict[str, Build] = {"migrateable": migrateable, "native": native, "spark": plain}


@dataclass(frozen=True, slots=True)
class Size:
    """Epochs of one size."""

    events: int
    epoch_s: float
    events_per_s: float


@dataclass(frozen=True, slots=True)
class Bench:
    """One Spark session for all versions: each begins with a JVM that is warm."""

    spark: SparkSession
    console: Console

    @contextmanager
    def query(self, name: str, version: str, **options: Any) -> Iterator[StreamingQuery]:
        """A query of a version, running."""
        query, folder = QUERIES[name], tempfile.mkdtemp(prefix="megaphone-bench-")
        # What a session cannot change while it runs, `tuned` has set.
        settings = {
            key: value for key, value in CONF.items() if version == "spark" and self.spark.conf.isModifiable(key)
        }
        before = {key: self.spark.conf.get(key, None) for key in settings}
        for key, value in settings.items():
            self.spark.conf.set(key, value)
        streams = query.read(self.spark.readStream, **STREAM, **options)
        frame = (VERSIONS | {"steady": steady})[version](self.spark, query, streams, Windows())
        running = frame.writeStream.format("noop").option("checkpointLocation", folder).start()
        try:
            yield running
        finally:
            running.stop()
            shutil.rmtree(folder, ignore_errors=True)
            for key, text in before.items():
                if text is None:
                    self.spark.conf.unset(key)
                else:
                    self.spark.conf.set(key, text)

    def saturation(self, name: str, version: str) -> list[Size]:
        """Epochs of more and more events, until they take too long."""
        rows = [FIRST_ROWS << size for size in range(SIZES) for _ in range(EPOCHS_OF_A_SIZE)]
        with self.query(name, version, rate=RATE, rows=",".join(map(str, rows))) as query:
            found: list[Size] = []
            for events, epochs in itertools.groupby(_epochs(query), key=lambda epoch: epoch[0]):
                took = [seconds for _, seconds in itertools.islice(epochs, EPOCHS_OF_A_SIZE)]
                # The first of a size has new memory to get and, at the start, a JVM to warm.
                median = statistics.median(took[1:] or took)
                found.append(Size(events, median, events / median))
                if median > EPOCH_LIMIT_S or events == rows[-1]:
                    break
        return found

    def warm(self, name: str, version: str) -> None:
        """Let the JVM see a query: one that has not takes twice as long."""
        with self.query(name, version, rate=RATE, rows=FIRST_ROWS << 7) as query:
            deadline = time.monotonic() + WARM_S
            for _ in _epochs(query):
                if time.monotonic() > deadline:
                    return

    def in_turn(self, name: str, rows: int) -> list[tuple[float, float]]:
        """Seconds that an epoch of so many events takes, ours and native's beside it, again and again."""
        with tempfile.TemporaryDirectory(prefix="megaphone-bench-") as folder:
            ours, native = Path(folder, "ours"), Path(folder, "native")
            with (
                self.query(name, "steady", rate=RATE, rows=rows, gate=ours) as first,
                self.query(name, "native", rate=RATE, rows=rows, gate=native) as second,
            ):
                turns = [(Gate(ours), _epochs(first)), (Gate(native), _epochs(second))]
                return [_pair(turns, pair) for pair in range(WARM_PAIRS + STEADY_PAIRS)][WARM_PAIRS:]

    def latency(self, name: str, version: str, rate: int) -> dict[str, float]:
        """Milliseconds, at a rate, from when events were due."""
        with self.query(name, version, rate=rate) as query:
            observer = Observer(query, rate, preload=0, unit="event")
            _watch(query, observer, lambda: observer.timeline is not None)
            deadline = time.monotonic() + WARM_UP_S
            _watch(query, observer, lambda: time.monotonic() > deadline)
            begin, deadline = time.time_ns(), time.monotonic() + MEASURE_S
            _watch(query, observer, lambda: time.monotonic() > deadline)
            assert observer.timeline is not None
            found = observer.timeline.between(begin, time.time_ns())
        quantiles = {f"p{q}_ms": found.quantile(q / 100) / 1e6 for q in (25, 50, 75, 95, 99)}
        return {**quantiles, "max_ms": found.max / 1e6, "events": len(found)}


class Gate:
    """Lets a query into its next epoch."""

    def __init__(self, folder: Path) -> None:
        """Closed."""
        self._folder = folder
        self._events = 0
        folder.mkdir()

    def pass_one(self, epochs: Iterator[tuple[int, float]]) -> float:
        """Seconds that the next epoch takes."""
        (self._folder / str(self._events)).touch()
        events, seconds = next(epochs)
        self._events += events
        return seconds


def _pair(turns: Sequence[tuple[Gate, Iterator[tuple[int, float]]]], number: int) -> tuple[float, float]:
    """An epoch of each; who is first changes."""
    order = (0, 1) if number % 2 else (1, 0)
    took = {which: turns[which][0].pass_one(turns[which][1]) for which in order}
    return took[0], took[1]


class GatedSource(NexmarkSource):
    """The source, and an option `gate`: a folder where a file says from which event on an epoch may begin."""

    def __init__(self, options: dict[str, str]) -> None:
        """Take the option out."""
        super().__init__({name: value for name, value in options.items() if name != "gate"})
        self._gate = options.get("gate")

    def streamReader(self, schema: StructType) -> NexmarkStreamReader:
        """Of a stream."""
        reader = super().streamReader(schema)
        if self._gate is not None:
            latest, gate = reader.latestOffset, Path(self._gate)
            reader.latestOffset = lambda start, limit: (
                latest(start, limit) if (gate / str(start["event"])).exists() else start
            )
        return reader


def _watch(query: StreamingQuery, observer: Observer, until: Callable[[], bool]) -> None:
    while not until():
        _check(query)
        observer.look()
        time.sleep(0.1)


def _check(query: StreamingQuery) -> None:
    if query.exception() is not None:
        raise RuntimeError(query.exception())


def _epochs(query: StreamingQuery) -> Iterator[tuple[int, float]]:
    """How many events each epoch had, and how long it took; those without events are left out."""
    seen = -1
    while True:
        _check(query)
        for raw in _progress(query, seen):
            source = next(source for source in raw["sources"] if "event" in (source["endOffset"] or {}))
            events = source["endOffset"]["event"] - (source["startOffset"] or {"event": 0})["event"]
            if events:
                # One that waits says so under the number of the epoch that is to come.
                seen = raw["batchId"]
                yield events, raw["durationMs"]["triggerExecution"] / 1000
        time.sleep(0.05)


def _progress(query: StreamingQuery, seen: int) -> list[dict[str, Any]]:
    """What the query has told of the epochs since one; all of it, again and again, takes as long as an epoch."""
    last = query._jsq.lastProgress()
    if last is None or last.batchId() <= seen:
        return []
    return [json.loads(told.json()) for told in query._jsq.recentProgress() if told.batchId() > seen]


def generator_speed() -> float:
    """Events a second that one process makes, all kinds and columns, without strings."""
    keep_memory()
    nexmark, events, rounds = Nexmark(), 1 << 16, 64
    nexmark.records("event", 0, events)
    begin = time.process_time()
    for number in range(rounds):
        nexmark.records("event", number * events, (number + 1) * events)
    return rounds * events / (time.process_time() - begin)


def at_limit(sizes: Sequence[Size]) -> float:
    """The rate of epochs that just keep to the limit, between the largest that do and the first that do not.

    Epochs that all take too long count as they are: the shortest.
    """
    kept = [size for size in sizes if size.epoch_s <= EPOCH_LIMIT_S]
    if not kept:
        return min(sizes, key=lambda size: size.epoch_s).events_per_s
    last, above = kept[-1], [size for size in sizes if size.events > kept[-1].events]
    if not above:
        return last.events_per_s
    share = (EPOCH_LIMIT_S - last.epoch_s) / (above[0].epoch_s - last.epoch_s)
    return (last.events + share * (above[0].events - last.events)) / EPOCH_LIMIT_S


def measure(bench: Bench, name: str) -> dict[str, Any]:
    """One query, three ways."""
    found: dict[str, Any] = {version: {} for version in VERSIONS}
    for version in ("native", "migrateable"):
        bench.warm(name, version)
    for version in VERSIONS:
        sizes = bench.saturation(name, version)
        found[version] |= {"events_per_s": at_limit(sizes), "sizes": [asdict(size) for size in sizes]}
        bench.console.print(f"  {name} {version:<12} {at_limit(sizes):>12,.0f} events/s")
    rate = max(LEAST_RATE, int(min(found[version]["events_per_s"] for version in VERSIONS) / 2))
    for version in VERSIONS:
        found[version]["latency"] = latency_of(bench, name, version, rate)
    steady = steady_epochs(bench, name, found["migrateable"]["sizes"])
    return {
        "rate": rate,
        "stateful": QUERIES[name].stateful,
        **found,
        "steady": steady,
        "ratios": ratios(found, steady),
    }


def steady_epochs(bench: Bench, name: str, sizes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The median time of an epoch, of both versions; and the median of ours to native's beside it."""
    rows = max(size["events"] for size in sizes[:1] + [size for size in sizes if size["epoch_s"] <= STEADY_EPOCH_S])
    pairs = bench.in_turn(name, rows)
    ours, native = map(statistics.median, zip(*pairs, strict=True))
    ratio, spread = statistics.median(found := [a / b for a, b in pairs]), statistics.quantiles(found, n=4)
    bench.console.print(
        f"  {name} epochs of {rows:,}: ours {ours:.3f} s, native {native:.3f} s, "
        f"pair by pair {ratio:.3f} ({spread[0]:.2f} to {spread[2]:.2f})"
    )
    return {"events": rows, "epoch_s": {"steady": ours, "native": native}, "pairs": pairs, "to_native": ratio}


def latency_of(bench: Bench, name: str, version: str, rate: int) -> dict[str, float]:
    """Latency at a rate, measured and said."""
    latency = bench.latency(name, version, rate)
    words = ", ".join(f"{key.removesuffix('_ms')} {latency[key]:,.0f}" for key in ("p50_ms", "p99_ms", "max_ms"))
    bench.console.print(f"  {name} {version:<12} at {rate:>9,} events/s: {words} ms")
    return latency


def ratios(found: dict[str, Any], steady: dict[str, Any]) -> dict[str, float]:
    """Of ours to the others: more events is better above 1, less latency below."""
    ours = found["migrateable"]
    return {"steady epoch to native": steady["to_native"]} | {
        f"{what} to {other}": get(ours) / get(found[other])
        for other in ("native", "spark")
        for what, get in (
            ("events", lambda figures: figures["events_per_s"]),
            ("median latency", lambda figures: figures["latency"]["p50_ms"]),
            ("maximum latency", lambda figures: figures["latency"]["max_ms"]),
        )
    }


def show(console: Console, summary: dict[str, Any]) -> None:
    """A table of all queries."""
    table = Table(
        title=f"events a second, epochs of at most {EPOCH_LIMIT_S:.0f} s; ratios of migrateable to the others"
    )
    heads = ("query", *VERSIONS, "to native", "to Spark", "steady epoch to native", "median to Spark", "max to Spark")
    for head in heads:
        table.add_column(head, justify="left" if head == "query" else "right")
    for name, found in summary["queries"].items():
        ratio = found["ratios"]
        chosen = ("events to native", "events to spark", "steady epoch to native", "median latency to spark")
        table.add_row(
            name,
            *(f"{found[version]['events_per_s']:,.0f}" for version in VERSIONS),
            *(f"{ratio[key]:.2f}" for key in (*chosen, "maximum latency to spark")),
        )
    console.print(table)


def main() -> None:
    """Measure the queries asked for, and write down what was found after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("query", nargs="*", choices=[[], *QUERIES], help="q0 to q8; all, if none is named")
    parser.add_argument("--resume", action="store_true", help="keep what an earlier run has found")
    parser.add_argument("--keep", action="store_true", help=f"put a copy under {KEPT}, by commit")
    options = parser.parse_args()
    console, path = Console(width=130), OUT / "summary.json"
    OUT.mkdir(parents=True, exist_ok=True)
    summary: dict[str, Any] = {"queries": {}}
    if options.resume and path.exists():
        summary = json.loads(path.read_text())
    summary["generator_events_per_s"] = generator_speed()
    console.print(f"generator: {summary['generator_events_per_s']:,.0f} events/s on one core")
    summary |= {**setting(), "stream": STREAM, "workers": WORKERS, "bins": BINS, "epoch_limit_s": EPOCH_LIMIT_S}
    builder = megaphone.tuned(SparkSession.builder.master("local[2]").appName("bench-nexmark"))
    for key in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(key, "false")
    with errors_to(OUT / "log.txt"):
        spark = begin(builder.config("spark.log.level", "FATAL"))
        spark.dataSource.register(GatedSource)
        try:
            for name in options.query or QUERIES:
                if not (options.resume and name in summary["queries"]):
                    summary["queries"][name] = measure(Bench(spark, console), name)
                    path.write_text(json.dumps(summary, indent=1) + "\n")
        finally:
            spark.stop()
    show(console, summary)
    if options.keep:
        path = KEPT / commit_of(Path.cwd()) / "summary.json"
        write(path, summary)
    console.print(f"summary: {path}")


if __name__ == "__main__":
    main()
