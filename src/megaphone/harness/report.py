"""Reports: the latency timeline as a picture.

Made from measured rows only.  Neighbours: timeline.py gives the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter, ScalarFormatter

from megaphone.harness.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Span:
    """A migration on the timeline, in seconds since the start."""

    label: str
    begin: float
    end: float


TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
SERIES = (("max_ms", "max", "#b2182b"), ("p99_ms", "p99", "#ef8a62"), ("p50_ms", "p50", "#2166ac"))


def draw_timeline(timeline: Timeline, spans: Sequence[Span], title: str, path: Path) -> None:
    """Latency over time, the migrations shaded."""
    rows = [row for row in timeline.rows() if row["second"] >= 1]
    figure, axes = plt.subplots(figsize=(11, 4), dpi=110)
    seconds = [row["second"] for row in rows]
    for name, label, colour in SERIES:
        axes.plot(seconds, [row[name] for row in rows], label=label, color=colour, linewidth=1.3)
    top = max(row["max_ms"] for row in rows)
    for span in spans:
        axes.axvspan(span.begin, span.end, color="#999999", alpha=0.25, linewidth=0)
        axes.text((span.begin + span.end) / 2, top * 1.25, span.label, ha="center", va="bottom", fontsize=10)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    bottom = min(row["p50_ms"] for row in rows)
    axes.set_yticks([tick for tick in TICKS if bottom / 2 < tick < top * 2])
    axes.set_ylim(top=top * 2)
    axes.set_xlabel("seconds")
    axes.set_ylabel("ms from when a record was due")
    axes.set_title(title, fontsize=11, loc="left")
    axes.grid(True, which="both", alpha=0.2)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)
