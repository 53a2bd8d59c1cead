"""The verbs at the command line: find the query, ask it, show its answer, and wait for the end of what was begun.

Neighbours: cli.py is the command, grammar.py says what can be said; directory.py finds, client.py asks, the same as
anybody could over HTTP.
"""

import argparse
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from megaphone.control.documents import Malformed, parse
from megaphone.errors import MegaphoneError
from megaphone.service import directory
from megaphone.service.client import Failed, NoSuchQuery, Refused, ask_for
from megaphone.service.directory import Entry, query_matches
from megaphone.service.head import MAX_BODY
from megaphone.service.page import page_address
from megaphone.service.tables import history_lines, plan_lines, ps_lines, status_lines
from megaphone.service.terminal import complain, say, say_json
from megaphone.service.waiting import wait_for

DONE, FAILED, REFUSED, NO_QUERY = 0, 1, 2, 3

View = dict[str, Any]


def run(arguments: argparse.Namespace) -> int:
    """Do what was said; the exit code."""
    try:
        return _act(arguments)
    except NoSuchQuery as error:
        return _complain(error, NO_QUERY)
    except Refused as error:
        return _complain(error, REFUSED)
    except MegaphoneError as error:
        return _complain(error, FAILED)


def _act(arguments: argparse.Namespace) -> int:
    verbs = {"ps": _ps, "status": _status, "history": _history, "dashboard": _dashboard, "plan": _plan}
    verbs |= dict.fromkeys(("pause", "resume", "cancel"), _tell)
    return verbs.get(arguments.verb, _move)(arguments)


def _complain(error: Exception, code: int) -> int:
    complain(error)
    return code


def _ps(arguments: argparse.Namespace) -> int:
    rows = [
        {"control": entry.control, "pid": entry.pid, "address": entry.address, **status}
        for entry in directory.entries()
        for status in _statuses(entry)
    ]
    _show(arguments, rows, ps_lines)
    return DONE


def _statuses(entry: Entry) -> list[View]:
    try:
        return list(ask_for(entry, "GET", "/status"))
    except MegaphoneError:
        # It ended while we looked, or does not answer: then there is nothing to show of it.
        return []


def _status(arguments: argparse.Namespace) -> int:
    entry, query = find(arguments.query)
    (status,) = ask_for(entry, "GET", "/status", query=query)
    _show(arguments, status, status_lines)
    return DONE


def _history(arguments: argparse.Namespace) -> int:
    entry, query = find(arguments.query)
    _show(arguments, ask_for(entry, "GET", "/history", query=query), history_lines)
    return DONE


def _dashboard(arguments: argparse.Namespace) -> int:
    entry, query = find(arguments.query)
    address = page_address(entry.address, entry.token, query if len(entry.queries) > 1 else None)
    _show(arguments, {"address": address}, lambda view: [view["address"]])
    if arguments.open and not webbrowser.open(directory.enter_door(entry, address).as_uri()):
        raise Failed("no browser could be opened; copy the address into one")
    return DONE


def _plan(arguments: argparse.Namespace) -> int:
    entry, query = find(arguments.query)
    if getattr(arguments, "plan", None):
        raise Refused("a plan of a plan; give --move or --to, or follow it with `megaphone migrate --plan`")
    plan = ask_for(entry, "POST", "/plan", {"query": query, "verb": arguments.name, **_wish(arguments)})
    if arguments.save:
        try:
            arguments.save.write_bytes(msgspec.json.encode(plan["plan"]) + b"\n")
        except OSError as error:
            raise Failed(f"cannot write {arguments.save}: {error.strerror}") from None
    _show(arguments, plan, plan_lines)
    return DONE


def _move(arguments: argparse.Namespace) -> int:
    entry, query = find(arguments.query)
    wish = {"query": query, **_wish(arguments)}
    if getattr(arguments, "plan", None):
        wish["plan"] = _read_plan(arguments.plan)
    migration = ask_for(entry, "POST", f"/{arguments.name}", wish)
    if not arguments.no_wait:
        migration = wait_for(entry, query, migration, quiet=arguments.json)
    _show(arguments, migration, lambda view: [view["text"]])
    return FAILED if migration["phase"] in ("cancelled", "failed") else DONE


def _tell(arguments: argparse.Namespace) -> int:
    entry, query = find(arguments.query)
    _show(arguments, ask_for(entry, "POST", f"/{arguments.name}", {"query": query}), lambda view: [view["text"]])
    return DONE


def _wish(arguments: argparse.Namespace) -> View:
    """What was said, as the HTTP interface takes it."""
    names = ("workers", "by", "who", "target", "strategy", "batch", "gap", "at", "latency_target")
    said = {name: getattr(arguments, name, None) for name in names}
    return {name: value for name, value in said.items() if value is not None}


def _read_plan(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BODY + 1)
        if len(content) > MAX_BODY:
            raise Refused(f"{path} has more than {MAX_BODY} bytes; follow it from Python, with Plan.read")
        return parse(content)
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror}") from None
    except Malformed as error:
        raise Refused(f"{path} is not a plan: {error}") from None


def find(wanted: str | None) -> tuple[Entry, str]:
    """The query that is meant, and who serves it."""
    running = [(entry, query) for entry in directory.entries() for query in entry.queries]
    chosen = [
        (entry, query)
        for entry, query in running
        if wanted is None or wanted == entry.control or query_matches(query, wanted)
    ]
    if len(chosen) == 1:
        return chosen[0][0], chosen[0][1].id
    names = ", ".join(query.name or query.id for _, query in chosen or running)
    if chosen:
        raise Refused(f"{len(chosen)} queries of yours run here; choose {names}")
    if wanted is None or not running:
        raise NoSuchQuery("no query of yours runs on this machine")
    raise NoSuchQuery(f"no query '{wanted}' runs here; choose {names}")


def _show(arguments: argparse.Namespace, value: Any, lines: Callable[[Any], list[str]]) -> None:
    if arguments.json:
        say_json(value)
    else:
        say("".join(f"{line}\n" for line in lines(value)))
