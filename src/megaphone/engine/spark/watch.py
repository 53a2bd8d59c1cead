"""Plans from a watched folder: drop a file, and it is followed.

Each `<name>.json` is followed at most once. Beside it appears `<name>.accepted` when its migration was taken on, and
`<name>.done` when it ended, or `<name>.refused` with the reason. `query.status` says how the query is, as JSON, for
those who write plans. Every file gets an answer, and no file ends the watch. docs/controllers.md says how to write one.
"""

import hashlib
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from megaphone.control.controller import Migration
from megaphone.control.plan import Plan
from megaphone.control.policies.observation import Observation
from megaphone.engine.spark.shared_folder import Seal, SharedFolder, uids
from megaphone.errors import PlanError
from megaphone.printing import LOGGER, printable

LOOK_EVERY_S = 0.2
LEISURE = 10
"""A look at a folder of very many files is followed by a pause this many times as long."""

TELL_EVERY_S = 1.0
RETRY_EVERY_S = 5.0
"""For answers that could not be written."""

SETTLE_S = 1.0
"""A file that cannot be followed may be half written: it is refused when it has not changed for so long."""

START_S = 30.0
"""How long a plan waits for a query that is just being started."""

TAKEN_S = 300.0
"""How long a plan that another watch has taken on may be without an answer, until that watch is held to have ended."""

MAX_NAME = 200
"""Bytes of a plan's name. A file's can have 255, and an answer's is longer than that of its plan."""

MAX_ANSWER = 2000
"""Characters of an answer."""

STATUS = "query.status"
PLAN = ".json"
ANSWERS = (".accepted", ".done", ".refused")


@dataclass(slots=True)
class Entry:
    """A plan file that was seen, and what has become of it."""

    seal: Seal
    since_s: float
    over: bool = False
    """Was it taken on, or refused?"""
    migration: Migration | None = None
    """While it is under way."""


class Watch:
    """Looks into a folder until it is stopped."""

    def __init__(
        self,
        directory: Path,
        migrate: Callable[[Plan], Migration],
        observe: Callable[[], Observation | None],
        is_running: Callable[[], bool],
        owners: Iterable[int | str] = (),
    ) -> None:
        """Start to look; `owners` are users whose plans are followed besides this user's own."""
        self._folder = SharedFolder(directory, uids(owners))
        self._migrate = migrate
        self._observe = observe
        self._is_running = is_running
        self._entries: dict[str, Entry] = {}
        self._unsaid: dict[str, str] = {}
        self._troubles: dict[str, BaseException] = {}
        self._pause_s = LOOK_EVERY_S
        self._told_s = self._retried_s = float("-inf")
        if self._folder.is_open_to_all:
            LOGGER.warning(
                "everybody can write to the watched folder %s, and so keep plans from being followed or have them "
                "followed again; watch a private one",
                self._folder.path,
            )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="megaphone-plans")
        self._thread.start()

    @property
    def watching(self) -> bool:
        """Does it still look?"""
        return self._thread.is_alive()

    @property
    def error(self) -> BaseException | None:
        """What goes wrong at present, such as an answer that cannot be written; None if all is well."""
        return next(iter(list(self._troubles.values())), None)

    def stop(self) -> None:
        """Look no more; migrations under way go on."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._pause_s):
            self._attempt("the folder", self._look)
        self._attempt("the folder", self._answer_ended)
        self._folder.close()

    def _attempt(self, what: str, work: Callable[..., None], *args: Any) -> None:
        """Do something; whatever goes wrong is told once, and does not end the watch."""
        try:
            work(*args)
            self._troubles.pop(what, None)
        except BaseException as error:
            before = self._troubles.get(what)
            self._troubles[what] = error
            if before is None or repr(before) != repr(error):
                LOGGER.warning(
                    "watched folder %s: %s: %s",
                    self._folder.path,
                    _plain(what),
                    _plain(f"{type(error).__name__} {error}"),
                )

    def _look(self) -> None:
        began = time.monotonic()
        self._attempt(STATUS, self._tell)
        names = self._folder.names()
        self._forget(names)
        answered = {name.rpartition(".")[0] for name in names if name.endswith(ANSWERS)}
        # Names that begin with a dot are drafts, of editors and of ours.
        plans = (name for name in names if name.endswith(PLAN) and not name.startswith("."))
        unanswered = sorted(name for name in plans if _answer_name(name) not in answered)
        self._pause_s = max(LOOK_EVERY_S, LEISURE * (time.monotonic() - began))
        for name in unanswered:
            if self._stopped.is_set():
                break
            self._attempt(name, self._take, name)
            self._attempt(STATUS, self._tell)
        self._answer_ended()
        self._retry()

    def _forget(self, names: set[str]) -> None:
        for name in [name for name in self._entries if name not in names]:
            if self._entries[name].migration is None:
                del self._entries[name]
                self._troubles.pop(name, None)

    def _tell(self) -> None:
        if time.monotonic() < self._told_s + TELL_EVERY_S:
            return
        self._told_s = time.monotonic()
        seen = self._observe()
        if seen is not None:
            self._folder.write(STATUS, seen.to_json() + "\n")

    def _take(self, name: str) -> None:
        seal = self._folder.seal(name)
        if seal is None:
            return
        entry = self._entries.get(name)
        if entry is None or entry.seal != seal:
            entry = self._entries[name] = Entry(seal, time.monotonic())
        if not entry.over:
            self._decide(name, entry)

    def _decide(self, name: str, entry: Entry) -> None:
        waited_s = time.monotonic() - entry.since_s
        try:
            plan = self._read(name)
        except PlanError as error:
            if waited_s >= SETTLE_S:
                self._refuse(name, entry, str(error))
            return
        if self._is_running():
            self._follow(name, entry, plan)
        elif waited_s >= START_S:
            self._refuse(name, entry, "no query is running; start one, and write the plan under another name")

    def _read(self, name: str) -> Plan:
        _check_name(name)
        content = self._folder.read(name)
        try:
            return Plan.from_json(content.decode())
        except UnicodeDecodeError as error:
            raise PlanError(f"not a plan: {error}") from None
        except PlanError:
            raise
        except Exception as error:
            # Nested too deep, or what nobody has thought of.
            raise PlanError(f"not a plan: {type(error).__name__}: {error}") from None

    def _follow(self, name: str, entry: Entry, plan: Plan) -> None:
        # Before it is followed, so that one whose answer cannot be written is not followed again after a restart. If
        # not even this can be written, it is not followed yet.
        try:
            self._folder.create(_mark(name))
        except FileExistsError:
            # Another watch has taken it on: one that will answer, or one that has ended before it could.
            if time.monotonic() - entry.since_s >= TAKEN_S:
                reason = "it was taken on before, and the watch ended; if it is not in the history, write it anew"
                self._refuse(name, entry, reason)
            return
        entry.over = True
        try:
            entry.migration = self._migrate(plan)
        except PlanError as error:
            self._answer(name, ".refused", str(error))
        except BaseException as error:
            told = "\n".join(map(_plain, traceback.format_exc().splitlines()))
            LOGGER.error("watched folder %s: %s could not be followed\n%s", self._folder.path, name, told)
            self._answer(name, ".refused", f"it could not be followed: {type(error).__name__}: {error}")
        else:
            self._answer(name, ".accepted", str(entry.migration))

    def _refuse(self, name: str, entry: Entry, reason: str) -> None:
        entry.over = True
        self._answer(name, ".refused", reason)

    def _answer_ended(self) -> None:
        for name, entry in self._entries.items():
            if entry.migration is not None and entry.migration.ended_s is not None:
                self._answer(name, ".done", str(entry.migration))
                entry.migration = None

    def _answer(self, name: str, kind: str, text: str) -> None:
        answer = _answer_name(name)
        heading = "" if answer + PLAN == name else f"{_plain(name)}: "
        self._unsaid[answer + kind] = f"{heading}{_plain(text)}\n"
        self._attempt(answer + kind, self._say, answer + kind)

    def _say(self, answer: str) -> None:
        self._folder.write(answer, self._unsaid[answer])
        del self._unsaid[answer]
        self._folder.remove(_mark(answer))

    def _retry(self) -> None:
        if self._unsaid and time.monotonic() >= self._retried_s + RETRY_EVERY_S:
            self._retried_s = time.monotonic()
            for answer in list(self._unsaid):
                self._attempt(answer, self._say, answer)


def _check_name(name: str) -> None:
    if _answer_name(name) + PLAN != name:
        raise PlanError(f"a plan's name has only printable characters, and at most {MAX_NAME} bytes; choose another")


def _answer_name(plan: str) -> str:
    """What the answers to a plan are called, up to their suffix.

    >>> _answer_name("a.b.json"), _answer_name("esc\\x1b.json")
    ('a.b', 'unnamed-d3665b04740a7a1f')
    """
    name = plan.removesuffix(PLAN)
    if name.isprintable() and len(os.fsencode(name)) <= MAX_NAME:
        return name
    return f"unnamed-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}"


def _mark(name: str) -> str:
    """What says that a plan was taken on, by its own name or by that of an answer to it."""
    return f".{name.rpartition('.')[0]}.taken"


def _plain(text: str) -> str:
    """A line that is fit for an answer."""
    return printable(text)[:MAX_ANSWER]
