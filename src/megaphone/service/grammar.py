"""The grammar of the verbs at the command line. It imports nothing that takes time: what is wrong is answered at once.

Neighbours: cli.py parses with it, console.py does what was said.
"""

import argparse
import re
from pathlib import Path
from typing import Any

Parsers = Any


def add_verbs(verbs: Parsers) -> None:
    """Teach a parser the verbs on running queries."""
    _verb(verbs, "ps", "list the queries of this machine that you run")
    _add_query(_verb(verbs, "status", "show a query: its workers, their load, and what moves"))
    _add_query(_verb(verbs, "history", "show every migration of a query"))
    dashboard = _verb(verbs, "dashboard", "print the address of a query's live page")
    dashboard.add_argument("--open", action="store_true", help="open it in a browser too")
    _add_query(dashboard)
    about = "show what a verb would do: moves, steps, bytes and time; nothing moves"
    plan = verbs.add_parser("plan", help=about, description=f"{about.capitalize()}.")
    for parser in _add_moving(plan.add_subparsers(dest="wish", required=True, metavar="VERB")):
        parser.add_argument("--save", type=Path, metavar="FILE", help="write the plan, for `megaphone migrate --plan`")
    for parser in _add_moving(verbs):
        parser.add_argument("--no-wait", action="store_true", help="return as soon as it is accepted")
    _add_query(_verb(verbs, "pause", "issue no further step of the migration under way"))
    _add_query(_verb(verbs, "resume", "go on where pause stopped"))
    _add_query(_verb(verbs, "cancel", "stop migrating after the step in flight; what has moved stays moved"))


def _add_moving(verbs: Parsers) -> list[argparse.ArgumentParser]:
    """The verbs that move bins, or would."""
    rescale = _verb(verbs, "rescale", "go on with another number of workers")
    rescale.add_argument("--workers", type=int, required=True, metavar="N")
    rebalance = _verb(verbs, "rebalance", "even the load, by moving the least state that will do")
    rebalance.add_argument("--by", choices=("load", "bins"), default="load", help="records a second, or bins")
    drain = _verb(verbs, "drain", "move every bin off a worker, or off all workers of a host")
    drain.add_argument("who", metavar="WORKER|HOST", help="a worker's number, or the name of its host")
    migrate = _verb(verbs, "migrate", "move bins where you say")
    where = migrate.add_mutually_exclusive_group(required=True)
    where.add_argument("--move", type=_moves, metavar="BIN=WORKER,...", dest="target", help="some bins")
    where.add_argument("--to", type=_owners, metavar="WORKER,...", dest="target", help="a worker for every bin")
    where.add_argument("--plan", type=Path, metavar="FILE", help="a plan that `megaphone plan --save` wrote")
    parsers = [rescale, rebalance, drain, migrate]
    for parser in parsers:
        _add_query(parser)
        _add_pace(parser)
    return parsers


def _verb(verbs: Parsers, name: str, about: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=about, description=f"{about.capitalize()}.")
    parser.set_defaults(name=name)
    parser.add_argument("--json", action="store_true", help="for programs")
    return parser


def _add_query(parser: argparse.ArgumentParser) -> None:
    about = "its name, the beginning of its id, or the name of its control; may be left out if only one runs"
    parser.add_argument("query", metavar="QUERY", nargs="?", help=about)


def _add_pace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--strategy", help="adaptive, all_at_once, batched, fluid or optimized")
    parser.add_argument("--batch", type=int, metavar="BINS", help="bins in a step, for batched")
    parser.add_argument("--gap", type=int, metavar="EPOCHS", help="epochs to wait between steps")
    parser.add_argument("--at", type=int, metavar="TIME", help="the first step at this time, not at once")
    parser.add_argument(
        "--latency-target", type=_seconds, metavar="SECONDS", help="as 0.5 or 500ms; steps as large as it allows"
    )


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(ms|s)?", text)
    if found is None or not float(found[1]):
        raise argparse.ArgumentTypeError(f"'{text}' is no time; write it as 0.5 or 500ms")
    return float(found[1]) / (1000 if found[2] == "ms" else 1)


def _moves(text: str) -> dict[str, int]:
    try:
        return {str(int(bin)): int(worker) for bin, worker in (pair.split("=") for pair in text.split(","))}
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' are no moves; write them as 3=1,5=0") from None


def _owners(text: str) -> list[int]:
    try:
        return [int(worker) for worker in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' are no workers; write one for every bin, as 0,1,0,1") from None
