"""Reports: what was measured, as pictures.

Made from saved rows only.  Neighbours: timeline.py and latency.py give the rows, the experiments say which to draw.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, ScalarFormatter
from PIL import Image

TINTS = 64
"""Of a picture: a fifth of the bytes, and nobody sees it."""


@dataclass(frozen=True, slots=True)
class Span:
    """A migration on the timeline, in seconds since the start."""

    label: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Panel:
    """One timeline among several."""

    title: str
    rows: Sequence[Mapping[str, float]]
    spans: Sequence[Span] = ()
    warm_up_s: float | None = None
    """When the warm-up ended."""


Points = Sequence[tuple[float, float]]

DUE = "ms from when a record was due"
TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
SERIES = (
    ("max_ms", "max", "#b2182b"),
    ("p99.9_ms", "p99.9", "#d6604d"),
    ("p99_ms", "p99", "#ef8a62"),
    ("p95_ms", "p95", "#fddbc7"),
    ("p75_ms", "p75", "#92c5de"),
    ("p50_ms", "p50", "#2166ac"),
    ("p25_ms", "p25", "#053061"),
)
FEW = ("max_ms", "p99_ms", "p50_ms")
"""What one can tell apart in a small picture."""
TOP_ROW, SECOND_ROW = 0.97, 0.9
"""Where names stand, as a part of a picture's height."""
NAME = 0.12
"""How much of its width the name of a migration takes."""
COLOURS = ("#2166ac", "#b2182b", "#1b7837", "#e08214", "#762a83", "#4d4d4d", "#35978f", "#c51b7d", "#8c510a", "#000000")
OWN = {"batched": COLOURS[0], "all_at_once": COLOURS[1], "fluid": COLOURS[2], "steady": COLOURS[5]}


def draw_timeline(
    rows: Sequence[Mapping[str, float]], spans: Sequence[Span], title: str, path: Path, warm_up_s: float | None = None
) -> None:
    """Latency over time, the migrations shaded, and where the warm-up ended."""
    draw_timelines([Panel(title, [row for row in rows if row["second"] >= 1], spans, warm_up_s)], path)


def draw_timelines(panels: Sequence[Panel], path: Path, across: int = 1, series: Sequence[str] = FEW) -> None:
    """Timelines beside and below each other, all on the same scale."""
    down = -(-len(panels) // across)
    figure, grid = plt.subplots(down, across, figsize=(11, 1 + 3 * down), dpi=110, sharey=True, squeeze=False)
    for axes, panel in zip(grid.flat, panels, strict=False):
        _timeline(axes, panel, series)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    _milliseconds(grid.flat[0], [row for panel in panels for row in panel.rows])
    for axes in grid[:, 0]:
        axes.set_ylabel(DUE, fontsize=9)
    grid.flat[0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=len(series), frameon=False, fontsize=9)
    _save(figure, path)


def _timeline(axes: Any, panel: Panel, series: Sequence[str]) -> None:
    seconds = [row["second"] for row in panel.rows]
    for name, label, colour in SERIES:
        if name in series:
            # The maximum is wider: where the 99th percentile is the same, both are seen.
            width = 2.4 if name == "max_ms" else 1.2
            axes.plot(seconds, [row[name] for row in panel.rows], label=label, color=colour, linewidth=width)
    _mark_spans(axes, panel.spans, seconds)
    if panel.warm_up_s is not None:
        axes.axvline(panel.warm_up_s, color="#999999", linewidth=1, linestyle=":")
        _label(axes, panel.warm_up_s, TOP_ROW, "warm-up ", ha="right", color="#777777")
    axes.margins(x=0.01)
    axes.set_title(panel.title, fontsize=10, loc="left")
    axes.set_xlabel("seconds", fontsize=9)
    axes.grid(True, which="both", alpha=0.2)


def _mark_spans(axes: Any, spans: Sequence[Span], seconds: Sequence[float]) -> None:
    """Shade migrations and name them, one lower where two names would meet."""
    crowded = NAME * (seconds[-1] - seconds[0]) if seconds else 0.0
    before, row = -math.inf, TOP_ROW
    for span in spans:
        axes.axvspan(span.begin, span.end, color="#999999", alpha=0.25, linewidth=0)
        middle = (span.begin + span.end) / 2
        row = SECOND_ROW if row == TOP_ROW and middle - before < crowded else TOP_ROW
        _label(axes, middle, row, span.label, ha="center")
        before = middle


def _label(axes: Any, second: float, row: float, text: str, **how: Any) -> None:
    axes.text(second, row, text, va="top", fontsize=8, transform=axes.get_xaxis_transform(), **how)


def _milliseconds(axes: Any, rows: Sequence[Mapping[str, float]]) -> None:
    """A logarithmic scale with plain numbers on it."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    top = max((row["max_ms"] for row in rows), default=1)
    bottom = min((row["p50_ms"] for row in rows if row["p50_ms"] > 0), default=1)
    axes.set_yticks([tick for tick in TICKS if bottom / 2 < tick < top * 2])
    # Room for names above the lines, a fifth of the picture or so.
    axes.set_ylim(top=top * min(2.5, max(1.4, (top / bottom) ** 0.3)))


def draw_ccdf(panels: Mapping[str, Mapping[str, Points]], path: Path) -> None:
    """The share of records that took longer than so many milliseconds: a line for each variant."""
    figure, grid = plt.subplots(1, len(panels), figsize=(11, 4), dpi=110, sharey=True, squeeze=False)
    for axes, (title, lines) in zip(grid.flat, panels.items(), strict=True):
        for (label, points), colour in _coloured(lines):
            axes.step(*zip(*points, strict=True), where="post", label=label, color=colour, linewidth=1.2)
        axes.set_xscale("log")
        axes.set_yscale("log")
        _plain_numbers(axes.xaxis)
        axes.set_xlabel(DUE)
        axes.set_title(title, fontsize=10, loc="left")
        axes.grid(True, which="both", alpha=0.2)
    grid.flat[0].set_ylabel("share of records above")
    grid.flat[-1].legend(frameon=False, fontsize=8)
    _save(figure, path)


def draw_curves(
    panels: Mapping[str, Mapping[str, Points]], across: str, up: str, path: Path, scale: str = "log"
) -> None:
    """A line with marks for each variant, panel by panel."""
    figure, grid = plt.subplots(1, len(panels), figsize=(11, 4), dpi=110, squeeze=False)
    for axes, (title, lines) in zip(grid.flat, panels.items(), strict=True):
        for (label, points), colour in _coloured(lines):
            mark = "o" if scale == "log" else None
            axes.plot(*zip(*points, strict=True), marker=mark, label=label, color=colour, linewidth=1.3)
        axes.set_xscale(scale)
        axes.set_yscale(scale)
        axes.set_xlabel(across)
        axes.set_title(title, fontsize=10, loc="left")
        axes.grid(True, which="both", alpha=0.2)
        if scale == "log":
            _plain_numbers(axes.xaxis, axes.yaxis)
        else:
            axes.set_ylim(bottom=0)
    grid.flat[0].set_ylabel(up)
    grid.flat[0].legend(frameon=False, fontsize=8)
    _save(figure, path)


def _plain_numbers(*some: Any) -> None:
    """20 and not 2 x 10^1, on some axes."""
    for axis in some:
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 1000 * low else (1.0,)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if value < 1e5 else f"{value:,.0f}"))
        axis.set_minor_formatter(NullFormatter())


def _coloured(lines: Mapping[str, Points]) -> Iterator[tuple[tuple[str, Points], str]]:
    """The lines that have a point, each with a colour; strategies have the same in every picture."""
    others = cycle([colour for colour in COLOURS if colour not in {OWN.get(label) for label in lines}])
    for label, points in lines.items():
        if points:
            yield (label, points), OWN.get(label) or next(others)


def draw_bars(bars: Mapping[str, float], across: str, path: Path) -> None:
    """A bar for each variant, on a logarithmic scale, with its figure."""
    figure, axes = plt.subplots(figsize=(11, 1 + 0.45 * max(1, len(bars))), dpi=110)
    names = list(bars)[::-1]
    drawn = axes.barh(names, [max(bars[name], 1e-9) for name in names], color=COLOURS[0])
    axes.bar_label(drawn, labels=[f"{bars[name]:,.0f}" for name in names], padding=4, fontsize=9)
    axes.set_xscale("log")
    axes.set_xlabel(across)
    axes.margins(x=0.15)
    axes.grid(True, axis="x", which="both", alpha=0.2)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.canvas.draw()
    drawn = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")
    plt.close(figure)
    # Lines need few colours, and without names of libraries in it the same results give the same bytes.
    drawn.quantize(TINTS, dither=Image.Dither.NONE).save(path, optimize=True)
