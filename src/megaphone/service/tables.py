"""Tables and lines for people, from what the HTTP interface answers.

Neighbours: console.py prints them.
"""

from collections.abc import Sequence
from typing import Any

View = dict[str, Any]


def ps_lines(rows: Sequence[View]) -> list[str]:
    """The queries of a machine."""
    heads = ("query", "name", "control", "pid", "epoch", "workers", "bins", "migration")
    return table(
        heads,
        [
            (
                row["query"],
                row["name"] or "-",
                row["control"],
                str(row["pid"]),
                str(row["epoch"]),
                str(len(row["workers"])),
                str(row["bins"]),
                row["migration"]["text"] if row["migration"] else "-",
            )
            for row in rows
        ],
    )


def status_lines(status: View) -> list[str]:
    """One query."""
    name = f" ({status['name']})" if status["name"] else ""
    lines = [
        f"query {status['query']}{name}, control {status['control']}: epoch {status['epoch']}, "
        f"the last took {status['last_epoch_s']:.2f} s, {status['bins']} bins"
    ]
    for operator, state in status["operators"].items():
        lines.append(
            f"{operator}: {state['applied']} records applied, {state['late']} late, frontier {state['frontier']}, "
            f"state {_about(state['state_bytes'], status['sizes_measured'])}"
        )
    heads = ("worker", "host", "pid", "bins", "records/s", "busy", "state")
    rows = [
        (
            str(worker["worker"]),
            worker["host"],
            str(worker["pid"]),
            str(worker["bins"]),
            f"{worker['records_per_s']:.0f}",
            f"{worker['busy']:.0%}",
            _about(worker["state_bytes"], status["sizes_measured"]),
        )
        for worker in status["workers"]
    ]
    lines += table(heads, rows)
    lines.append(f"busiest worker: {status['imbalance']:.2f} times the mean; moved: {size(status['bytes_moved'])}")
    migration = status["migration"]
    if migration:
        lines.append(f"under way: {migration['text']}, {size(migration['bytes_moved'])} moved, {left(migration)}")
    return lines


def history_lines(history: Sequence[View]) -> list[str]:
    """The migrations of a query."""
    heads = ("number", "strategy", "phase", "bins", "moved", "bytes", "seconds")
    lines = table(
        heads,
        [
            (
                str(view["number"]),
                view["strategy"],
                view["phase"],
                str(view["bins"]),
                str(view["bins_moved"]),
                size(view["bytes_moved"]),
                f"{view['seconds']:.1f}",
            )
            for view in history
        ],
    )
    return lines + [f"{view['number']} {view['phase']}: {view['reason']}" for view in history if view["reason"]]


def plan_lines(plan: View) -> list[str]:
    """A dry run."""
    return str(plan["text"]).splitlines()


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns side by side, the first to the left and the others to the right.

    >>> table(("worker", "bins"), [("0", "16"), ("1", "8")])
    ['worker  bins', '0         16', '1          8']
    """
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in (heads, *rows)]


def left(migration: View) -> str:
    """What is still to come of a migration."""
    about = f"about {size(migration['bytes_left'])}"
    if migration["seconds_left"] is None:
        return f"{about} left, not before time {migration['not_before']}"
    return f"{about} and {migration['seconds_left']:.1f} s left"


def size(count: float) -> str:
    """Bytes, for people.

    >>> [size(n) for n in (0, 999, 1234, 56_700_000, 8e12)]
    ['0 B', '999 B', '1.2 kB', '57 MB', '8.0 TB']
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 9.95 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _about(count: int, measured: float) -> str:
    return size(count) if measured == 1 else f"~{size(count)}" if measured else "?"
