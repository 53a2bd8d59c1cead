"""Does a policy notice that one worker has nearly all the work, share it out, and bring the latency down?

NEXMark's bids, open loop, the highest of each auction, every bid's seal checked by real computation. Nine bids in ten
are on a hot auction, as the generator's hot ratios say. A single hot auction cannot be split, however bins are moved;
but here another one is hot after every few auctions, always with an id that is divisible by the hot step. Bins are the
ids' low bits, as with a hash that leaves numbers as they are, dealt round: every hot bin is on worker 0, and the other
has next to nothing to do. The balancer is held back while that is measured, then let loose, then measured again.
Writes `out/bench-balancer/summary.json` and `balancer.png`; fails if the busiest worker is not within 15% of the mean.
"""

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from rich.console import Console
from rich.table import Table

import megaphone
import megaphone.nexmark
from megaphone.engine.spark.follower import Follower
from megaphone.harness.observe import Observer
from megaphone.harness.quiet import errors_to
from megaphone.harness.session import begin
from megaphone.harness.timeline import Timeline

WORKERS, BINS = 2, 64
RATE = 10_000
HOT = {"hot_auction_ratio": 10, "hot_auction_ratio_2": 4}
"""Nine bids in ten are on the hot auction, which is the last one whose number is divisible by four: 16 of 64 bins."""
BIDS = 46 / 50
"""Of all events."""
BUSY = 0.6
"""Of worker 0's time, what its bids take while it has all hot bins: it is what makes epochs long, and keeps up."""
TOLERANCE = 0.15
SETTLE_S = 10.0
STEADY_MS = 2000.0
"""An epoch no longer than this: what piled up while the workers were starting is through."""
AT_MOST_S = 60.0
"""How long to wait for that, and for the balancer: on a machine that has other things to do, it may never be so."""
OUT = Path("out/bench-balancer")


def highest(rounds: int, auction: int, bid: Any, best: int | None) -> tuple[int, list[tuple[int, int, int]]]:
    """Check a bid's seal, and tell the bid if it is the highest of its auction so far."""
    seal = hashlib.pbkdf2_hmac("sha256", bid.price.to_bytes(8, "big"), bid.bidder.to_bytes(8, "big"), rounds)
    if seal and (best is None or bid.price > best):
        return bid.price, [(auction, bid.bidder, bid.price)]
    return best or 0, []


def rounds_for(seconds: float) -> int:
    """How many rounds of the seal take so long on this machine, with all that goes on there."""
    rounds, begin = 1_000_000, time.perf_counter()
    hashlib.pbkdf2_hmac("sha256", b"a price", b"a bidder", rounds)
    return max(1, round(rounds * seconds / (time.perf_counter() - begin)))


@dataclass(frozen=True, slots=True)
class Sample:
    """What each worker had done by a moment."""

    at_s: float
    records: tuple[int, ...]
    busy_s: tuple[float, ...]

    @classmethod
    def of(cls, control: megaphone.Control) -> "Sample":
        """Now."""
        (status,) = control.status()
        workers = status.workers
        return cls(time.time(), tuple(w.applied for w in workers), tuple(w.busy_s for w in workers))


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of the run: the workers' shares, and the latency."""

    seconds: float
    busiest_over_mean_records: float
    busiest_over_mean_busy: float
    busy: tuple[float, ...]
    """The part of its time that each worker was busy."""
    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, samples: Sequence[Sample], timeline: Timeline) -> "Stretch":
        """From the first sample to the last."""
        first, last = samples[0], samples[-1]
        busy = tuple(b - a for a, b in zip(first.busy_s, last.busy_s, strict=True))
        latency = timeline.between(int(first.at_s * 1e9), int(last.at_s * 1e9))
        seconds = last.at_s - first.at_s
        return cls(
            seconds,
            over_mean([b - a for a, b in zip(first.records, last.records, strict=True)]),
            over_mean(busy),
            tuple(part / seconds for part in busy),
            *(latency.quantile(q) / 1e6 for q in (0.5, 0.99)),
            latency.max / 1e6,
        )


def over_mean(parts: Sequence[float]) -> float:
    """The largest over the mean."""
    return max(parts) * len(parts) / sum(parts) if sum(parts) else 1.0


@dataclass(slots=True)
class Running:
    """The query, under an open-loop stream."""

    control: megaphone.Control
    query: Any
    observer: Observer
    samples: list[Sample]

    def watch(self, seconds: float) -> list[Sample]:
        """Let it run; what was sampled meanwhile."""
        first, deadline = len(self.samples), time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.look()
        return self.samples[first:]

    def watch_until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Let it run until something has come about, or for so long."""
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            self.look()

    def look(self) -> None:
        """Take in its epochs, and how much each worker has done."""
        self.observer.look()
        if self.query.exception() is not None:
            raise RuntimeError(self.query.exception())
        if self.observer.timeline is not None:
            self.samples.append(Sample.of(self.control))
        time.sleep(0.25)

    @property
    def timeline(self) -> Timeline:
        """Latency so far."""
        assert self.observer.timeline is not None
        return self.observer.timeline


def start(spark: SparkSession, folder: Path, rounds: int) -> Running:
    """The highest bid of each auction, all hot bins on worker 0."""
    options = {"kind": "bid", "columns": "auction,bidder,price", "rate": RATE, **HOT}
    bids = spark.readStream.format("nexmark").options(**options).load()
    control = megaphone.Control(spark, workers=WORKERS, bins=BINS)
    low_bits = megaphone.Bits(sf.shiftleft("auction", 64 - (BINS - 1).bit_length()))
    told = megaphone.state_machine(
        control,
        bids,
        low_bits,
        partial(highest, rounds),
        "auction long, bidder long, price long",
        key="auction",
    )
    query = told.writeStream.format("noop").option("checkpointLocation", str(folder)).start()
    return Running(control, query, Observer(query, RATE, 0, "event"), [])


def measure(spark: SparkSession, console: Console, folder: Path, warm_up: float, seconds: float) -> dict[str, Any]:
    """Before, the balancer's doing, and after."""
    # Each bid on the hot worker, and what the fold takes besides.
    per_bid = BUSY / (RATE * BIDS * (1 - 1 / HOT["hot_auction_ratio"] / WORKERS))
    running = start(spark, folder, rounds_for(per_bid))
    balancer = megaphone.Balancer(TOLERANCE)
    follower = running.control.follow(balancer, every=1.0, strategy="batched")
    follower.pause()
    while running.observer.timeline is None:
        running.look()
    running.watch(warm_up)
    running.watch_until(lambda: 0 < running.observer.last_epoch_ms < STEADY_MS, AT_MOST_S)
    uneven = running.watch(seconds)
    follower.resume()
    running.watch_until(lambda: bool(follower.history) and has_ended(follower), AT_MOST_S)
    for answer in follower.history:
        console.print(f"  {answer}")
    running.watch(SETTLE_S)
    migrations = len(follower.history)
    evened = running.watch(seconds)
    follower.stop()
    # What was due in a stretch may be done only after it.
    running.watch(STEADY_MS / 1000)
    running.query.stop()
    before, after = Stretch.of(uneven, running.timeline), Stretch.of(evened, running.timeline)
    draw(running, follower)
    return {
        "parameters": {"workers": WORKERS, "bins": BINS, "rate": RATE, "bid_s": per_bid, **HOT, "tolerance": TOLERANCE},
        "before": asdict(before),
        "after": asdict(after),
        "migrations": [described(answer) for answer in follower.history],
        "migrations_after_it_was_even": len(follower.history) - migrations,
        "decisions": [str(decision) for decision in balancer.history],
    }


def has_ended(follower: Follower) -> bool:
    """Is there nothing under way that the balancer wished for?"""
    refused = [answer for answer in follower.history if answer.migration is None]
    if refused:
        raise RuntimeError(str(refused[0]))
    return all(answer.migration.ended_s is not None for answer in follower.history if answer.migration)


def described(answer: Any) -> dict[str, Any]:
    """A wish and its migration."""
    migration = answer.migration
    return {
        "reason": answer.wish.reason,
        "bins": migration.bins_moved,
        "bytes": migration.bytes_moved,
        "seconds": migration.duration_s,
    }


def table(summary: dict[str, Any]) -> Table:
    """Before and after, side by side."""
    found = Table(title="one worker had the hot bins; the balancer shared them out")
    for head in ("", "before", "after"):
        found.add_column(head, justify="left" if not head else "right")
    for name, form in (
        ("busiest_over_mean_records", ".2f"),
        ("busiest_over_mean_busy", ".2f"),
        ("p50_ms", ",.0f"),
        ("p99_ms", ",.0f"),
        ("max_ms", ",.0f"),
    ):
        found.add_row(name.replace("_", " "), *(format(summary[when][name], form) for when in ("before", "after")))
    return found


def draw(running: Running, follower: Follower) -> None:
    """Latency above, each worker's part below, the migrations shaded."""
    start = running.timeline.schedule.start_ns / 1e9
    figure, (above, below) = plt.subplots(2, 1, figsize=(11, 6), dpi=110, sharex=True, height_ratios=(3, 2))
    rows = [row for row in running.timeline.rows() if row["second"] >= 1]
    seconds = [row["second"] for row in rows]
    for name, colour in (("max_ms", "#b2182b"), ("p99_ms", "#ef8a62"), ("p50_ms", "#2166ac")):
        above.plot(seconds, [row[name] for row in rows], label=name.removesuffix("_ms"), color=colour, linewidth=1.3)
    above.set_yscale("log")
    above.set_ylabel("ms from when a bid was due")
    above.set_title("NEXMark's hot auctions, all on one worker, and a balancer", fontsize=11, loc="left")
    above.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False)
    for worker in range(WORKERS):
        below.plot(*busy_lately(running.samples, worker, start), label=f"worker {worker}", linewidth=1.3)
    below.set_xlabel("seconds")
    below.set_ylabel("busy, part of the time")
    below.set_ylim(0, 1)
    below.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=WORKERS, frameon=False)
    for answer in follower.history:
        for pane in (above, below):
            pane.grid(True, which="both", alpha=0.2)
            if answer.migration is not None and answer.migration.began_s is not None:
                began = answer.migration.began_s - start
                pane.axvspan(began, began + answer.migration.duration_s, color="#999999", alpha=0.35, linewidth=0)
    figure.tight_layout()
    OUT.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUT / "balancer.png")
    plt.close(figure)


def busy_lately(
    samples: Sequence[Sample], worker: int, start: float, window: int = 16
) -> tuple[list[float], list[float]]:
    """Seconds, and how busy a worker was over the last couple of them."""
    pairs = list(zip(samples, samples[window:], strict=False))
    parts = [(b.busy_s[worker] - a.busy_s[worker]) / (b.at_s - a.at_s) for a, b in pairs]
    return [b.at_s - start for _, b in pairs], parts


def main() -> None:
    """Run, show, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter stretches: about a minute")
    options = parser.parse_args()
    warm_up, seconds = (8.0, 12.0) if options.quick else (20.0, 45.0)
    console = Console(width=110)
    builder = megaphone.tuned(SparkSession.builder.master("local[2]").appName("bench-balancer"))
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(name, "false")
    folder = Path(tempfile.mkdtemp(prefix="megaphone-bench-"))
    try:
        with errors_to(OUT / "log.txt"):
            spark = begin(builder.config("spark.log.level", "FATAL"))
            summary = measure(spark, console, folder, warm_up, seconds)
            spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    (OUT / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    console.print(table(summary))
    console.print(f"summary: {OUT / 'summary.json'}, picture: {OUT / 'balancer.png'}")
    worst = max(summary["after"][f"busiest_over_mean_{by}"] for by in ("records", "busy"))
    sys.exit(0 if worst <= 1 + TOLERANCE else f"the busiest worker has {worst:.2f} times the mean")


if __name__ == "__main__":
    main()
