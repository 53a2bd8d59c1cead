"""The summary of a run as a page of text.

Neighbours: summary.py has the figures.  To: command.py.
"""

from collections.abc import Iterator, Sequence

from megaphone.harness.nexmark.summary import Latency, Moved, Summary
from megaphone.harness.units import size

HEADS = ("", "events", "p50", "p99", "max")


def page(summary: Summary) -> str:
    """For people."""
    return "".join(f"{line}\n" for line in _lines(summary))


def _lines(summary: Summary) -> Iterator[str]:
    settings = summary.settings
    yield f"{summary.query}, {summary.question}"
    yield (
        f"{summary.events:,} events in {summary.seconds:.1f} s, {summary.epochs} epochs; "
        f"{settings['workers']} workers, {settings['bins']} bins, {settings['version']}"
    )
    if summary.ended != "complete":
        yield f"{summary.ended}: {summary.due - summary.events:,} events were due and not done"
    if summary.late:
        yield f"{summary.late:,} records came behind the frontier, and were not applied"
    yield ""
    yield "latency in ms, from when an event was due until the outputs of its epoch were committed"
    yield from _table([HEADS, *_latencies(summary)])
    yield ""
    yield from map(_moved, summary.migrations)
    if summary.frontier_lag is not None:
        lag = summary.frontier_lag
        yield f"event time: the frontier was {lag.p50_ms:,.0f} ms behind the schedule, {lag.max_ms:,.0f} ms at most"
    memory = summary.memory
    yield f"memory: {size(memory.at_the_end)} at the end, {size(memory.at_most)} at most ({memory.what})"


def _latencies(summary: Summary) -> Iterator[tuple[str, ...]]:
    yield _row(f"warm-up, first {summary.settings['warm_up_s']:g} s", summary.warm_up)
    yield _row("steady", summary.steady)
    for moved in summary.migrations:
        yield _row(f"{moved.strategy} at {moved.wished_s:g} s", moved.latency)


def _row(name: str, latency: Latency) -> tuple[str, ...]:
    told = (latency.p50_ms, latency.p99_ms, latency.max_ms)
    return name, f"{latency.events:,}", *(f"{ms:,.0f}" if latency.events else "-" for ms in told)


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        told = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        yield "  ".join([name.ljust(widths[0]), *told])


def _moved(moved: Moved) -> str:
    done = f"{moved.steps_done} of {moved.steps} steps, {moved.bins_moved} of {moved.bins} bins"
    return (
        f"{moved.strategy} at {moved.wished_s:g} s: {moved.phase}, {done}, {size(moved.bytes_moved)} "
        f"in {moved.ended_s - moved.began_s:.1f} s"
    )
