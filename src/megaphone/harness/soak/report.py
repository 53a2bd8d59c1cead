"""The report: a table for people, the saved run it is made from, and the page that shows it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from megaphone.harness.results import write
from megaphone.harness.soak.measures import Line

SAVED = Path("benchmarks/results/soak/run.json")
PAGE = Path("docs/reliability.md")

BEGIN, END = "<!-- from the saved run of `make soak`; do not edit -->", "<!-- end of the saved run -->"

HEADS = ("measure", "start", "middle", "end", "allowed", "")

GROWS = "grows"


def rows(lines: Iterable[Line]) -> list[tuple[str, ...]]:
    """The cells of the table."""
    return [
        (
            f"{line.name}, {line.unit}" if line.unit else line.name,
            *map(_number, (line.start, line.middle, line.end)),
            line.rule,
            GROWS if line.grows else "",
        )
        for line in lines
    ]


def _number(value: float) -> str:
    return f"{value:,.1f}" if value < 100 and value != int(value) else f"{value:,.0f}"


def text(lines: Iterable[Line]) -> str:
    """The table for a terminal."""
    cells = [HEADS, *rows(lines)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADS))]
    return "\n".join(_aligned(row, widths) for row in cells)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = row
    padded = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
    return "  ".join(padded).rstrip()


def save(path: Path, about: Mapping[str, Any], lines: Sequence[Line]) -> None:
    """Keep a run."""
    write(path, {**about, "lines": [asdict(line) for line in lines]})


def section(saved: Mapping[str, Any]) -> str:
    """A saved run as the page shows it."""
    table = [HEADS, ("---",) * len(HEADS), *rows(Line(**line) for line in saved["lines"])]
    told = (f"| {' | '.join(row)} |".replace(f"| {GROWS} |", f"| **{GROWS}** |") for row in table)
    return "\n".join([f"The last run: {origin(saved)}", "", *told])


def origin(saved: Mapping[str, Any]) -> str:
    """What was run, where, and how it ended."""
    machine, versions = saved["machine"], saved["versions"]
    form = "" if saved["full"] else " (a short form, not the whole of `make soak`)"
    return " ".join(
        (
            f"{saved['verdict']}: {saved['minutes']:g} min{form}, {saved['epochs']:,} epochs,",
            f"{saved['migrations']} migrations, {saved['kills']} kills; {saved['rows']:,} rows, {saved['lost']} lost,",
            f"{saved['doubled']} doubled, {saved['left']} processes left.",
            f"At the end an epoch took {saved['epoch_ratio']:.2f} of its time at the start.",
            f"Commit {saved['commit']}; {machine['processor']}, {machine['cores']} cores,",
            f"{machine['memory_bytes'] / 2**30:.0f} GiB; PySpark {versions['pyspark']}, Python {versions['python']}.",
        )
    )


def page(before: str, saved: Mapping[str, Any]) -> str:
    """A page with a saved run in its place."""
    head, mark, rest = before.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (mark and end):
        raise ValueError(f"the page has no place for the run: a line '{BEGIN}' and a line '{END}'")
    return f"{head}{BEGIN}\n\n{section(saved)}\n\n{END}{tail}"


def read(path: Path) -> dict[str, Any]:
    """A saved run."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found
