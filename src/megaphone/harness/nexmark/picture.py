"""The picture of a run: latency by when events were due, with the migrations marked.

Neighbours: report.py draws.  From: command.py.
"""

from pathlib import Path

from megaphone.harness.nexmark.summary import Summary
from megaphone.harness.timeline import Timeline


def draw(summary: Summary, timeline: Timeline, path: Path) -> str:
    """Draw it, and say where it is, or why there is none."""
    try:
        from megaphone.harness.report import Span, draw_timeline
    except ModuleNotFoundError as error:
        return f"none, since {error.name} is not installed (pip install 'megaphone-spark[plot]')"
    if summary.events <= summary.settings["rate"]:
        return "none, since nothing was done after the first second"
    spans = [Span(moved.strategy, moved.began_s, moved.ended_s) for moved in summary.migrations]
    draw_timeline(list(timeline.rows()), spans, _title(summary), path, summary.settings["warm_up_s"])
    return str(path)


def _title(summary: Summary) -> str:
    settings = summary.settings
    return f"NEXMark {summary.query}: {settings['rate']:,} events a second, {settings['workers']} workers"
