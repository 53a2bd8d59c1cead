"""The command line: parse, call, print.

    megaphone ps                        the queries that run on this machine
    megaphone status [QUERY]            one of them: workers, load, what moves; also history
    megaphone dashboard [QUERY]         the address of its live page
    megaphone plan VERB ... [QUERY]     what a verb would do: moves, steps, bytes and time
    megaphone rescale --workers N, rebalance, drain WORKER|HOST, migrate, pause, resume, cancel
    megaphone state CHECKPOINT          what a query keeps: its operators, workers and bins
    megaphone nexmark QUERY             one of NEXMark's queries, while its state moves
    megaphone bench VERB                the evaluation: list, run, plot, compare

It answers on standard output, and says on standard error, in one sentence, what is wrong. Exit codes: 0 done; 1 if it
cannot be done, has failed or was cancelled; 2 for wrong arguments and what the query refuses; 3 if no such query runs;
130 after Ctrl-C, which ends the waiting and not the migration; 141 when nobody reads on.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from megaphone.harness.nexmark.arguments import declare
from megaphone.service.grammar import add_verbs
from megaphone.service.tables import size as _size
from megaphone.service.terminal import Parser, complain, say, say_json

# What takes time to import is imported where it is needed: a version or a wrong argument is answered at once, and
# Ctrl-C finds `main` in place.
if TYPE_CHECKING:
    from rich.console import Console

    from megaphone.durability.inspection import BinState, ControlState, Inspection, OperatorState

FORMS = ("smoke", "quick", "full")
PIPE = 10_000
"""Columns where nobody looks: a line is as long as it is."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        # Python would try to write the rest once more, at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 141
        complain(f"cannot write the answer: {error.strerror}")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = Parser("megaphone", description="Look after queries whose state moves.")
    parser.add_argument("--version", action="version", version=f"megaphone {version('megaphone-spark')}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    about = "show what a query keeps in its checkpoint location; the query may be running"
    state = verbs.add_parser("state", help=about, description=f"{about.capitalize()}.")
    state.add_argument(
        "checkpoint", metavar="CHECKPOINT", type=_location, help="the query's checkpointLocation: a path or a URI"
    )
    state.add_argument("--bins", action="store_true", help="a line for each bin: its worker and its last snapshot")
    state.add_argument("--json", action="store_true", help="for programs")
    add_verbs(verbs)
    _add_bench(verbs)
    about = "run one of NEXMark's queries on this machine, and move its state meanwhile"
    nexmark = verbs.add_parser("nexmark", help=about, description=f"{about[0].upper()}{about[1:]}.")
    declare(nexmark)
    return parser


def _add_bench(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    about = "measure what the paper's evaluation measures"
    bench = verbs.add_parser("bench", help=about, description=f"{about.capitalize()}.")
    bench.add_argument("--benchmarks", metavar="FOLDER", default="benchmarks", help="where the experiments are")
    todo = bench.add_subparsers(dest="todo", required=True, metavar="VERB")
    todo.add_parser("list", help="the experiments, how long they take, and when they were last run")
    run = todo.add_parser("run", help="run experiments; one that was interrupted goes on")
    plot = todo.add_parser("plot", help="draw saved results once more, and write docs/evaluation.md")
    compare = todo.add_parser("compare", help="every ratio with its verdict; exit code 1 if one is not reached")
    for verb in (run, plot, compare):
        verb.add_argument("experiment", nargs="*", help="all, if none is named")
    run.add_argument("--form", choices=FORMS, default="quick", help="smoke: seconds; quick: minutes; full: hours")
    run.add_argument("--again", action="store_true", help="also what has been run")
    for verb in (plot, compare):
        verb.add_argument("--form", choices=FORMS, help="the newest, if it is not said; full before quick")
        verb.add_argument("--commit", help="of which commit; the newest, if it is not said")


def _location(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("an empty path")
    return text


def _nexmark(arguments: argparse.Namespace) -> int:
    from megaphone.harness.nexmark.command import nexmark

    return nexmark(arguments)


def _run(arguments: argparse.Namespace) -> int:
    from megaphone.errors import MegaphoneError

    if arguments.verb == "nexmark":
        return _nexmark(arguments)
    if arguments.verb not in ("state", "bench"):
        from megaphone.service.console import run

        return run(arguments)
    try:
        if arguments.verb == "bench":
            return _bench(arguments)
        _state(arguments.checkpoint, arguments.bins, arguments.json)
    except MegaphoneError as error:
        complain(error)
        return 1
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    from megaphone.harness.bench import Bench

    bench = Bench(Path(arguments.benchmarks).resolve(), _console())
    if arguments.todo == "list":
        return bench.list()
    if arguments.todo == "run":
        return bench.run(arguments.experiment, arguments.form, arguments.again)
    show = bench.plot if arguments.todo == "plot" else bench.compare
    return show(arguments.experiment, arguments.commit, arguments.form)


def _state(checkpoint: str, by_bin: bool, as_json: bool) -> None:
    from megaphone.durability.inspection import bins, inspect

    found = bins(checkpoint) if by_bin else inspect(checkpoint)
    if as_json:
        return say_json(found)
    # Without styles: escapes of our own could not be told from others.
    console = _console(color_system=None)
    with console.capture() as capture:
        if isinstance(found, list):
            _show_bins(console, found)
        else:
            _show(console, found)
    # Tables are filled up with blanks to the right.
    return say("".join(f"{line.rstrip()}\n" for line in capture.get().split("\n")[:-1]))


def _console(color_system: Literal["auto"] | None = "auto") -> "Console":
    from rich.console import Console

    width = None if sys.stdout.isatty() else PIPE
    return Console(width=width, highlight=False, markup=False, emoji=False, soft_wrap=True, color_system=color_system)


def _show(console: "Console", found: "Inspection") -> None:
    for number, control in enumerate(found.controls):
        if number:
            console.print()
        _show_control(console, control)


def _show_control(console: "Console", control: "ControlState") -> None:
    console.print(f"{control.control}: {_epochs(control)}, attempt {control.attempt}, {control.bins} bins")
    console.print(f"on disk: {_size(sum(control.bytes.values()))} ({_kinds(control.bytes)})")
    if control.migration:
        console.print(f"under way: {control.migration}")
    for operator in control.operators:
        console.print()
        _show_operator(console, operator)


def _epochs(control: "ControlState") -> str:
    committed = f"epoch {control.committed} committed" if control.committed >= 0 else "no epoch committed"
    return committed if control.planned == control.committed else f"{committed}, {control.planned} planned"


def _kinds(sizes: Mapping[str, int]) -> str:
    largest_first = sorted(sizes.items(), key=lambda kind: -kind[1])
    return ", ".join(f"{kind} {_size(many)}" for kind, many in largest_first if many)


def _show_operator(console: "Console", operator: "OperatorState") -> None:
    reads = " and ".join(f"({columns})" for columns in operator.columns)
    keys = " and ".join(operator.keys)
    console.print(
        f"{operator.operator}: state {operator.state}, keyed by {keys}, time by {operator.clock}, reads {reads}"
    )
    console.print(f"{operator.applied} records applied, {operator.late} late")
    heads = ("worker", "bins", "snapshots", "oldest", "newest", "log", "to redo", "frontier")
    rows = [
        (
            str(worker.worker),
            str(worker.bins),
            _size(worker.snapshot_bytes),
            _epoch(worker.oldest_snapshot),
            _epoch(worker.newest_snapshot),
            _size(worker.log_bytes),
            str(worker.redo),
            worker.frontier,
        )
        for worker in operator.workers
    ]
    _show_table(console, heads, rows)


def _show_bins(console: "Console", bins: "list[BinState]") -> None:
    heads = ("control", "operator", "bin", "worker", "snapshot", "bytes")
    rows = [
        (bin.control, bin.operator, str(bin.bin), str(bin.worker), _epoch(bin.snapshot), str(bin.snapshot_bytes))
        for bin in bins
    ]
    _show_table(console, heads, rows)


def _show_table(console: "Console", heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """A table, or where the terminal is too narrow for it a paragraph for each row."""
    from rich.table import Table

    table = Table(*heads, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in table.columns:
        column.no_wrap, column.justify = True, "right"
    for row in rows:
        table.add_row(*row)
    wide = sum(max(map(len, column)) + 2 for column in zip(heads, *rows, strict=True)) - 2
    if wide <= console.width:
        console.print(table)
        return
    for row in rows:
        console.print(", ".join(f"{head} {cell}" for head, cell in zip(heads, row, strict=True)))


def _epoch(epoch: int | None) -> str:
    return "-" if epoch is None else str(epoch)


if __name__ == "__main__":
    sys.exit(main())
