"""`make demo`: the same rebalancing three ways, while words are being counted.

Two of four workers own all bins; half of the state moves to the other two, all at once, in batches, and in matchings,
under an open-loop stream of words. Ends with a table, `out/demo/summary.json` and a picture.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from megaphone.control.controller import Migration
from megaphone.engine.spark.control import Control
from megaphone.engine.spark.operators import unary
from megaphone.harness.observe import Observer
from megaphone.harness.quiet import errors_to
from megaphone.harness.report import Span, draw_timeline
from megaphone.harness.session import quiet_session
from megaphone.harness.source import FORMAT, KeysSource
from megaphone.harness.timeline import Timeline
from megaphone.harness.words import HOURS, OUTPUT, Vocabulary, count_by_hour

WORDS = 1_700_000
RATE = 20_000
BINS = 512
STRATEGIES: tuple[tuple[str, dict[str, Any]], ...] = (("all_at_once", {}), ("batched", {"batch": 4}), ("optimized", {}))
WARM_UP_S = 8.0
STEADY_S = 8.0
SETTLE_S = 4.0
LEAD_S = 1.0
"""The records of a migration's first epoch were due before it began: they belong to it."""

SKEWED = [bin % 2 for bin in range(BINS)]
BALANCED = [bin % 4 for bin in range(BINS)]
OUT = Path("out/demo")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One strategy's migration, and the latency before and during it."""

    strategy: str
    steps: int
    bytes_moved: int
    duration_s: float
    steady_p50_ms: float
    steady_p99_ms: float
    steady_max_ms: float
    migration_p50_ms: float
    migration_p99_ms: float
    migration_max_ms: float
    began_s: float
    ended_s: float


Show = Callable[[str, float, float], None]
"""Shows what is going on, the share of it that is done, and how long the last epoch took in milliseconds."""


def main() -> None:
    """Run the demo."""
    console = Console() if sys.stdout.isatty() else Console(width=110)
    console.print(
        f"[bold]Megaphone[/]: {WORDS:,} words, {HOURS} counters each ({WORDS * HOURS * 8 / 1e9:.1f} GB of state), "
        f"{RATE:,} words a second, 4 workers, {BINS} bins"
    )
    folder = Path(tempfile.mkdtemp(prefix="megaphone-demo-"))
    log = OUT / "log.txt"
    try:
        with errors_to(log):
            outcomes, timeline = _run(console, folder)
    except KeyboardInterrupt:
        console.print("stopped")
        raise SystemExit(130) from None
    except Exception:
        console.print(f"failed; what Spark said is in {log}")
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _finish(console, outcomes, timeline)


def _run(console: Console, folder: Path) -> tuple[list[Outcome], Timeline]:
    with console.status("starting Spark"):
        spark = quiet_session("megaphone demo", "local[2]")
    try:
        control, observer, query = _start(spark, folder)
        with _progress(console) as show:
            _wait(lambda: observer.timeline is not None, observer, show, "loading the words")
            _pause(WARM_UP_S, observer, show, "warming up")
            outcomes = [_measure(control, observer, show, name, options) for name, options in STRATEGIES]
        query.stop()
        assert observer.timeline is not None
        return outcomes, observer.timeline
    finally:
        spark.stop()


def _start(spark: SparkSession, folder: Path) -> tuple[Control, Observer, Any]:
    spark.dataSource.register(KeysSource)
    options = {"keys": WORDS, "rate": RATE, "preload": WORDS}
    now = sf.current_timestamp()
    words = (
        spark.readStream.format(FORMAT)
        .options(**options)
        .load()
        .select(
            sf.concat(sf.lit("word"), sf.col("key")).alias("word"),
            ((sf.dayofweek(now) - 1) * 24 + sf.hour(now)).cast("long").alias("hour"),
        )
    )
    control = Control(spark, workers=4, bins=BINS, assignment=SKEWED)
    counts = unary(control, words, exchange="word", fold=count_by_hour, output=OUTPUT, state=Vocabulary)
    query = counts.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint")).start()
    return control, Observer(query, RATE, WORDS), query


@contextmanager
def _progress(console: Console) -> Iterator[Show]:
    note = TextColumn("{task.fields[note]}")
    with Progress(
        TextColumn("{task.description:<28}"), BarColumn(), note, TimeElapsedColumn(), console=console
    ) as bars:
        tasks: dict[str, Any] = {}

        def show(what: str, done: float, epoch_ms: float) -> None:
            if what not in tasks:
                for task in tasks.values():
                    bars.stop_task(task)
                tasks[what] = bars.add_task(what, total=1.0, note="")
            bars.update(tasks[what], completed=done, note=f"epoch {epoch_ms:5.0f} ms" if epoch_ms else "")

        yield show


def _wait(until: Callable[[], bool], observer: Observer, show: Show, what: str, total: float = 0) -> None:
    begin = time.monotonic()
    while not until():
        observer.look()
        elapsed = time.monotonic() - begin
        show(what, min(1.0, elapsed / total) if total else 0.0, observer.last_epoch_ms)
        time.sleep(0.1)
    show(what, 1.0, observer.last_epoch_ms)


def _pause(seconds: float, observer: Observer, show: Show, what: str) -> None:
    deadline = time.monotonic() + seconds
    _wait(lambda: time.monotonic() >= deadline, observer, show, what, seconds)


def _measure(control: Control, observer: Observer, show: Show, name: str, options: dict[str, Any]) -> Outcome:
    """Steady, migrate, settle, and then back again without measuring."""
    steady_from = time.time() + 1.0
    _pause(STEADY_S, observer, show, f"steady before {name}")
    migration = control.migrate(BALANCED, name, **options)
    _follow(migration, observer, show, name)
    _pause(SETTLE_S, observer, show, f"settle after {name}")
    outcome = _outcome(migration, observer, steady_from)
    if name != STRATEGIES[-1][0]:
        back = control.migrate(SKEWED, "batched", batch=8)
        _follow(back, observer, show, f"back, after {name}")
        _pause(SETTLE_S / 2, observer, show, f"rest after {name}")
    return outcome


def _follow(migration: Migration, observer: Observer, show: Show, what: str) -> None:
    while migration.ended_s is None:
        observer.look()
        show(what, migration.bins_moved / len(migration.plan.moves), observer.last_epoch_ms)
        time.sleep(0.05)
    show(what, 1.0, observer.last_epoch_ms)


def _outcome(migration: Migration, observer: Observer, steady_from: float) -> Outcome:
    timeline, began = observer.timeline, migration.began_s
    assert timeline is not None
    assert began is not None
    ended = began + migration.duration_s
    steady = timeline.between(int(steady_from * 1e9), int((began - LEAD_S) * 1e9))
    during = timeline.between(int((began - LEAD_S) * 1e9), int(ended * 1e9))
    start = timeline.schedule.start_ns / 1e9
    return Outcome(
        migration.plan.strategy,
        len(migration.plan.steps),
        migration.bytes_moved,
        migration.duration_s,
        steady_p50_ms=steady.quantile(0.5) / 1e6,
        steady_p99_ms=steady.quantile(0.99) / 1e6,
        steady_max_ms=steady.max / 1e6,
        migration_p50_ms=during.quantile(0.5) / 1e6,
        migration_p99_ms=during.quantile(0.99) / 1e6,
        migration_max_ms=during.max / 1e6,
        began_s=began - start,
        ended_s=ended - start,
    )


def _finish(console: Console, outcomes: list[Outcome], timeline: Timeline) -> None:
    picture = OUT / "latency.png"
    spans = [Span(outcome.strategy, outcome.began_s, outcome.ended_s) for outcome in outcomes]
    moved = outcomes[0].bytes_moved / 1e9
    draw_timeline(
        list(timeline.rows()),
        spans,
        f"{moved:.1f} GB of state moved while {RATE:,} words a second are counted",
        picture,
    )
    summary = {"strategies": [_as_json(outcome) for outcome in outcomes], "picture": str(picture)}
    (OUT / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    console.print(_table(outcomes))
    console.print(f"picture: {picture}\nsummary: {OUT / 'summary.json'}")


def _as_json(outcome: Outcome) -> dict[str, Any]:
    return {name: getattr(outcome, name) for name in Outcome.__slots__}


_LATENCIES = [(when, q) for when in ("steady", "migration") for q in ("p50", "p99", "max")]


def _table(outcomes: list[Outcome]) -> Table:
    table = Table(title="latency in ms, from when a record was due: before and during the migration")
    for head in ("strategy", "steps", "moved", "took", *(f"{when}\n{q}" for when, q in _LATENCIES)):
        table.add_column(head, justify="left" if head == "strategy" else "right", no_wrap=True)
    for outcome in outcomes:
        latencies = (f"{getattr(outcome, f'{when}_{q}_ms'):.0f}" for when, q in _LATENCIES)
        moved, took = f"{outcome.bytes_moved / 1e9:.2f} GB", f"{outcome.duration_s:.1f} s"
        table.add_row(outcome.strategy, str(outcome.steps), moved, took, *latencies)
    return table


if __name__ == "__main__":
    main()
