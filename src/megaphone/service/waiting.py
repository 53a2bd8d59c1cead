"""Waiting for a migration, and showing how far it is: a bar on a terminal, else a line whenever something has moved.

On standard error, beside the answer.  Neighbours: console.py waits.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from megaphone.printing import printable
from megaphone.service.client import Failed, Gone, NoSuchQuery, ask_for
from megaphone.service.directory import Entry
from megaphone.service.tables import left, size

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LOOK_EVERY_S = 0.2

View = dict[str, Any]


def wait_for(entry: Entry, query: str, migration: View, quiet: bool) -> View:
    """Look at a migration until it has ended."""
    with _display(quiet) as show:
        while migration["ended_s"] is None:
            show(migration)
            time.sleep(LOOK_EVERY_S)
            try:
                (migration,) = ask_for(entry, "GET", "/history", query=query, number=migration["number"])
            except (Gone, NoSuchQuery, ValueError):
                raise Failed(f"the query has ended before its migration; {migration['text']}") from None
        show(migration)
    return migration


@contextmanager
def _display(quiet: bool) -> Iterator[Callable[[View], None]]:
    """A bar on a terminal, else a line whenever something has moved; on standard error, beside the answer."""
    if quiet:
        yield lambda view: None
    elif sys.stderr.isatty():
        with _bar() as progress:
            task = progress.add_task("", total=None, phase="", line="")
            yield lambda view: _advance(progress, task, view)
    else:
        told: list[str] = []
        yield lambda view: _print_once(_line(view), told)


def _bar() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.fields[phase]}"), BarColumn(), TextColumn("{task.fields[line]}"))
    return Progress(*columns, console=Console(stderr=True, markup=False, emoji=False), transient=True)


def _advance(progress: "Progress", task: "TaskID", view: View) -> None:
    phase, line = printable(view["phase"]), _line(view, phase=False)
    progress.update(task, total=view["bins"], completed=view["bins_moved"], phase=phase, line=line)


def _line(view: View, phase: bool = True) -> str:
    moved = f"{view['bins_moved']} of {view['bins']} bins, {size(view['bytes_moved'])}"
    rest = "" if view["ended_s"] else f", {left(view)}"
    return printable((f"{view['phase']}: " if phase else "") + moved + rest)


def _print_once(line: str, told: list[str]) -> None:
    # What is left changes with every look; a line is worth printing when something has moved.
    key = line.split(", about")[0]
    if told != [key]:
        told[:] = [key]
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
