"""The warden: starts the query, breaks it, sees to it that it goes on, and counts who is left.

Every process of the query carries the folder of faults in its environment: by that it is known as ours.
Neighbours: suite.py says what to break, job.py is what is broken.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psutil

from megaphone.faults import Fault
from megaphone.harness.chaos.disk import SmallDisk
from megaphone.harness.chaos.job import WORKERS
from megaphone.harness.chaos.verdict import Judge

T = TypeVar("T")

PATIENCE_S = 120.0
"""For what takes a few seconds."""

WORKER = "megaphone.engine.spark.worker"


class GaveUp(Exception):
    """The query did not come back."""


def ask(driver: "subprocess.Popen[str]", order: str, *arguments: Any) -> dict[str, Any] | None:
    """Tell a driver to do something; none if it is gone."""
    assert driver.stdin is not None
    assert driver.stdout is not None
    try:
        driver.stdin.write(json.dumps({"do": order, "with": arguments}) + "\n")
        driver.stdin.flush()
        ready, _, _ = select.select([driver.stdout], [], [], 30.0)
        line = driver.stdout.readline() if ready else ""
    except (OSError, ValueError):
        return None
    return json.loads(line) if line else None


def until(condition: Callable[[], T | None], what: str, patience_s: float = PATIENCE_S) -> T:
    """Wait for a condition, or give up."""
    deadline = time.monotonic() + patience_s
    while (found := condition()) is None:
        if time.monotonic() > deadline:
            raise GaveUp(f"{what} did not come about in {patience_s:.0f} s")
        time.sleep(0.05)
    return found


def arm(faults: Path, point: str, fault: Fault) -> None:
    """Let something happen at a point, to those who look for their faults in a folder."""
    draft = faults / f".{point}"
    draft.write_bytes(msgspec.json.encode(fault))
    draft.rename(faults / point)


def taken(faults: Path, point: str) -> int | None:
    """Which process came to a point; none yet."""
    for path in faults.glob(f"{point}.*.taken"):
        return int(path.name.removeprefix(f"{point}.").split(".")[0])
    return None


class Warden:
    """One query on one folder, through all its faults."""

    job = "megaphone.harness.chaos.job"
    """The module of the driver."""

    def __init__(self, folder: Path, master: str, settings: dict[str, str], disk: SmallDisk | None = None) -> None:
        """Start it; on a small disk, if there is one."""
        self.folder = folder
        self.checkpoint = disk.seen if disk else folder / "checkpoint"
        self.faults = folder / "faults"
        self.faults.mkdir(parents=True)
        self.judge = Judge(folder / "output", self.checkpoint / "offsets")
        self.starts = 0
        self._log = (folder / "stderr.log").open("ab")
        module = [sys.executable, "-m", self.job]
        told = [f"{name}={value}" for name, value in settings.items()]
        self._command = [*(disk.enter if disk else []), *module, str(folder), master, *told]
        self._driver: subprocess.Popen[str] | None = None
        self.begin()

    # -- the query ------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the driver, if it does not run."""
        if self._driver is not None and self._driver.poll() is None:
            return
        self.starts += 1
        environment = {
            **os.environ,
            "MEGAPHONE_FAULTS": str(self.faults),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(self.temporary),
        }
        environment.pop("XDG_RUNTIME_DIR", None)
        self._driver = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def ask(self, order: str, *arguments: Any) -> dict[str, Any] | None:
        """Tell the driver to do something; none if it is gone."""
        assert self._driver is not None
        return ask(self._driver, order, *arguments)

    def status(self) -> dict[str, Any]:
        """How the query is; the driver is started again if it is gone."""
        answer = self.ask("status")
        if answer is None or "error" in answer:
            if answer is None:
                self._bury()
                self.begin()
            return {"epoch": -1, "workers": {}, "migrating": False, "asked": 0, "done": 0}
        return answer

    def until_healthy(self, epochs: int = 3) -> dict[str, Any]:
        """Wait until the query has all its workers, has finished migrating, and gets on."""
        goal = self.judge.epoch + epochs

        def healthy() -> dict[str, Any] | None:
            status = self.status()
            whole = len(status["workers"]) == WORKERS and not status["migrating"] and status["asked"] == status["done"]
            return status if whole and self.judge.epoch >= goal else None

        return self.until(healthy, "a healthy query")

    def until(self, condition: Callable[[], T | None], what: str, patience_s: float = PATIENCE_S) -> T:
        """Wait for a condition, or give up."""
        return until(condition, what, patience_s)

    # -- faults ---------------------------------------------------------------------------------------------------

    @property
    def driver_pid(self) -> int:
        """The Python process of the driver."""
        assert self._driver is not None
        return self._driver.pid

    @property
    def java_pid(self) -> int:
        """The Java process of the driver."""
        children = psutil.Process(self.driver_pid).children(recursive=True)
        return next(child.pid for child in children if child.name() == "java")

    def arm(self, point: str, fault: Fault) -> None:
        """Let something happen at a point."""
        arm(self.faults, point, fault)

    def taken(self, point: str) -> int | None:
        """Which process came to a point; none yet."""
        return taken(self.faults, point)

    def clear(self) -> None:
        """No fault is set, and none has happened."""
        for path in self.faults.iterdir():
            path.unlink()

    # -- who is there ---------------------------------------------------------------------------------------------

    def processes(self) -> dict[int, str]:
        """Every process of this query, and what it is."""
        found = {}
        for process in psutil.process_iter(["cmdline", "status"]):
            with contextlib.suppress(psutil.Error):
                ours = process.environ().get("MEGAPHONE_FAULTS") == str(self.faults)
                if ours and process.info["status"] != psutil.STATUS_ZOMBIE:
                    found[process.pid] = " ".join(process.info["cmdline"] or [])[:100]
        return found

    def stray_workers(self, wanted: set[int]) -> set[int]:
        """Workers that are there and are nobody, though they have had time to go."""
        deadline = time.monotonic() + 10
        while stray := {pid for pid, what in self.processes().items() if WORKER in what} - wanted:
            if time.monotonic() > deadline:
                return stray
            time.sleep(0.1)
            wanted |= set(self.status()["workers"].values())
        return set()

    def end(self) -> int:
        """Stop the query; how many processes are left of it when they have had time to go."""
        self.ask("stop")
        assert self._driver is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._driver.wait(60)
        deadline = time.monotonic() + 20
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.2)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._log.close()
        shutil.rmtree(self.temporary, ignore_errors=True)
        return len(left)

    def _bury(self) -> None:
        """The driver is gone, or on its way: wait until all that hung on it is gone, too."""
        assert self._driver is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._driver.wait(20)
        if self._driver.poll() is None:
            self._driver.kill()
            self._driver.wait()

    @property
    def temporary(self) -> Path:
        """Where the query has its temporary files, the run directory among them."""
        # A short path: the name of a socket has a hundred bytes.
        path = self.folder / "t"
        path.mkdir(exist_ok=True)
        return path
