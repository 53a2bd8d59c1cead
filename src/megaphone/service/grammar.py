"""The grammar of the verbs at the command line. It imports nothing that takes time: what is wrong is answered at once.

Neighbours: cli.py parses with it, console.py does what was said.
"""

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from megaphone.checks import latency_target, numeral, shown
from megaphone.errors import PlanError

T = TypeVar("T")
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
    rescale.add_argument("--workers", type=_number, required=True, metavar="N")
    rebalance = _verb(verbs, "rebalance", "even the load, by moving the least state that will do")
    rebalance.add_argument("--by", choices=("load", "bins"), default="load", help="records a second, or bins")
    drain = _verb(verbs, "drain", "move every bin off a worker, or off all workers of a host")
    drain.add_argument("who", type=_who, metavar="WORKER|HOST", help="a worker's number, or the name of its host")
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
    parser.add_argument("--batch", type=_number, metavar="BINS", help="bins in a step, for batched")
    parser.add_argument("--gap", type=_number, metavar="EPOCHS", help="epochs to wait between steps")
    parser.add_argument("--at", type=_number, metavar="TIME", help="the first step at this time, not at once")
    parser.add_argument(
        "--latency-target", type=_seconds, metavar="SECONDS", help="as 0.5 or 500ms; steps as large as it allows"
    )


def _number(text: str) -> int:
    return _checked(numeral, text, "{}")


def _who(text: str) -> int | str:
    """A worker's number, or the name of a host."""
    return _number(text) if re.fullmatch("-?[0-9]+", text) else text


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(ms|s)?", text, re.ASCII)
    if found is None:
        raise argparse.ArgumentTypeError(f"{shown(text)} is no time; write it as 0.5 or 500ms")
    return _checked(latency_target, float(found[1]) / (1000 if found[2] == "ms" else 1))


def _moves(text: str) -> dict[str, int]:
    found = re.fullmatch(r"[0-9]+=[0-9]+(,[0-9]+=[0-9]+)*", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{shown(text)} are no moves; write them as 3=1,5=0")
    moves: dict[str, int] = {}
    for pair in text.split(","):
        bin, worker = map(_number, pair.split("="))
        if str(bin) in moves:
            fact = f"bin {bin} would go to workers {moves[str(bin)]} and {worker}"
            raise argparse.ArgumentTypeError(f"{fact}; choose one")
        moves[str(bin)] = worker
    return moves


def _owners(text: str) -> list[int]:
    if not re.fullmatch(r"[0-9]+(,[0-9]+)*", text):
        raise argparse.ArgumentTypeError(f"{shown(text)} are no workers; write one for every bin, as 0,1,0,1")
    return [_number(worker) for worker in text.split(",")]


def _checked(check: Callable[..., T], *arguments: Any) -> T:
    """What a check lets pass; its refusal in the form that the parser tells."""
    try:
        return check(*arguments)
    except PlanError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
