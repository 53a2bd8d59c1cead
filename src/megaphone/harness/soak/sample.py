"""Samples: every figure of a query at rest, and what was the most while it was not.

Whoever has the live page open looks once a second: so do we, all the time.
"""

import statistics
import threading
import time
from pathlib import Path

import msgspec

from megaphone.errors import MegaphoneError
from megaphone.harness.chaos.warden import GaveUp
from megaphone.harness.soak.census import MIB, Figures, files, processes
from megaphone.harness.soak.job import EVENTS
from megaphone.harness.soak.measures import EPOCH
from megaphone.harness.soak.query import Soaked

REST_S = 16.0
"""Connections to workers that are gone are closed after ten seconds, and pools have had work by then."""

REST_EPOCHS = 40
"""More than Spark's checkpoint goes back."""

TIMES = 5
"""How often a figure is read. The least counts: what is there for a moment only adds to it."""

TERMINAL = "stderr.log"
"""What the user of the query would see on a terminal."""

PATHS = ("/status", "/history", "/bins", "/timeline", "/metrics", "/progress")


class Looker:
    """Looks once a second, as the live page does, and remembers the most it has seen on disk."""

    def __init__(self, query: Soaked) -> None:
        """Begin to look."""
        self._query = query
        self._most = (0, 0)
        self._logged = (self._log_bytes(), time.monotonic())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def since_last(self) -> Figures:
        """What was the most since this was last asked, and how much was logged."""
        (count, size), self._most = self._most, (0, 0)
        (logged, before_s), self._logged = self._logged, (self._log_bytes(), time.monotonic())
        grown, minutes = self._logged[0] - logged, (self._logged[1] - before_s) / 60
        return {
            "checkpoint, ours: files, the most so far": count,
            "checkpoint, ours: bytes, the most so far": size / MIB,
            "logged a minute": grown / 1000 / minutes,
        }

    def end(self) -> None:
        """Look no more."""
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        seen = -1
        while not self._stop.wait(1.0):
            try:
                for path in PATHS:
                    since = {"since": seen} if path in ("/timeline", "/progress") else {}
                    answer = self._query.get(path, **since)
                    if path == "/timeline":
                        seen = max(msgspec.json.decode(answer)["epoch"], default=seen)
            except MegaphoneError:
                # Who waits for the query says that it is gone.
                continue
            self._most = tuple(map(max, self._most, files(self._query.checkpoint / "megaphone")))  # type: ignore[assignment]

    def _log_bytes(self) -> int:
        return sum((self._query.folder / name).stat().st_size for name in (EVENTS, TERMINAL))


def sample(query: Soaked, looker: Looker) -> Figures:
    """Every figure, when the query has been at rest for a while."""
    query.settle()
    begin = query.status()["epoch"]
    time.sleep(REST_S)
    query.pass_epochs(max(0, begin + REST_EPOCHS - query.status()["epoch"]))
    since_last = looker.since_last()
    seen = [_now(query) for _ in range(TIMES)]
    least = {name: min(figures[name] for figures in seen) for name in seen[0]}
    return {**least, **since_last, EPOCH: _median_epoch(query, begin)}


def _now(query: Soaked) -> Figures:
    inside = query.tell("inside")
    # Spark deletes the files of a shuffle when Java has noticed that nobody wants it.
    time.sleep(1.5)
    return {
        **processes(query.processes(), query.driver_pid),
        "driver: objects": inside["objects"],
        "Java: threads": inside["java_threads"],
        "Java: heap in use": inside["heap"] / MIB,
        **_checkpoint(query.checkpoint),
        **_temporary(query.temporary),
        "tracebacks on the terminal": (query.folder / TERMINAL).read_bytes().count(b"Traceback (most recent"),
        **_answers(query),
    }


def _checkpoint(folder: Path) -> Figures:
    count, size = files(folder, but="megaphone")
    plans = [path.stat().st_size for path in sorted((folder / "megaphone").glob("*/plans/*"))[-3:]]
    if not plans:
        raise GaveUp(f"no plan of an epoch in {folder}")
    return {
        "checkpoint, Spark's: files": count,
        "checkpoint, Spark's: bytes": size / 1000,
        "an epoch's plan: bytes": max(plans),
    }


def _temporary(folder: Path) -> Figures:
    every = [path.relative_to(folder).parts[0] for path in folder.rglob("*")]
    ours = sum(name.startswith("megaphone") for name in every)
    return {"temporary files, ours": ours, "temporary files, Spark's": len(every) - ours}


def _answers(query: Soaked) -> Figures:
    answers = {path: query.get(path) for path in PATHS}
    entries = {
        "/history: migrations": len(msgspec.json.decode(answers["/history"])),
        "/timeline: epochs": len(msgspec.json.decode(answers["/timeline"])["epoch"]),
        "/progress: epochs": answers["/progress"].count(b"\n"),
    }
    figures: Figures = {f"{path}: bytes": len(answers[path]) for path in ("/status", "/bins", "/metrics")}
    for name, count in entries.items():
        path = name.partition(":")[0]
        figures |= {name: count, f"{path}: bytes of each": len(answers[path]) / count}
    return figures


def _median_epoch(query: Soaked, since: int) -> float:
    seconds: list[float | None] = msgspec.json.decode(query.get("/timeline", since=since))["seconds"]
    return 1000 * statistics.median(took for took in seconds if took is not None)
