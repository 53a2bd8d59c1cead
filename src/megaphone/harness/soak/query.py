"""The query under the soak, as its user has it: verbs and answers over HTTP, and its driver in a process of its own."""

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import msgspec

from megaphone.errors import MegaphoneError
from megaphone.harness.chaos.warden import GaveUp, Warden
from megaphone.harness.soak.job import WORKERS
from megaphone.service import client
from megaphone.service.directory import Entry

MASTER = "local[2,8]"

STOPPED_S = 5.0
"""How long a stopped worker stays so: longer than it may be silent here."""


class Soaked(Warden):
    """A query that must not end before it is told to."""

    job = "megaphone.harness.soak.job"

    def __init__(self, folder: Path) -> None:
        """Start it, and wait until it is served."""
        # Spark puts its sockets where Java has its temporary files.
        settings = {
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder / 't'}",
            "spark.local.dir": str(folder / "t"),
        }
        super().__init__(folder, MASTER, settings)
        self.kills = 0
        """Workers that were killed, or stopped until they were given up."""
        try:
            # Not asked before: a Spark that is slow to start would answer too late.
            self.until(lambda: (self.checkpoint / "commits").is_dir() or None, "a query")
            self.entry = msgspec.convert(self.until(lambda: self.tell("door")["entry"], "a query"), Entry)
        except BaseException:
            self.end()
            raise

    def tell(self, order: str) -> dict[str, Any]:
        """What the driver answers; it has failed if it does not."""
        answer = self.ask(order)
        if answer is None or "error" in answer:
            raise GaveUp(f"the driver was told to {order}, and {(answer or {}).get('error', 'did not answer')}")
        return answer

    def get(self, path: str, **options: Any) -> bytes:
        """An answer, as it is sent."""
        return client.ask(self.entry, "GET", path, **options)

    def status(self) -> dict[str, Any]:
        """How it is."""
        (status,) = msgspec.json.decode(self.get("/status"))
        found: dict[str, Any] = status
        return found

    def workers(self) -> dict[int, int]:
        """The process of each worker."""
        return {worker["worker"]: worker["pid"] for worker in self.status()["workers"]}

    def do(self, verb: str, **wish: Any) -> int:
        """Have something done; the number of its migration, which has been accepted and not ended."""
        try:
            return int(client.ask_for(self.entry, "POST", f"/{verb}", wish)["number"])
        except MegaphoneError as error:
            raise GaveUp(f"{verb} {wish}: {error}") from error

    def wait(self, number: int) -> None:
        """Wait until a migration has ended."""

        def ended() -> bool | None:
            (migration,) = msgspec.json.decode(self.get("/history", number=number))
            return migration["ended_s"] is not None or None

        self.until(ended, f"the end of migration {number}")

    def settle(self, workers: int = WORKERS, epochs: int = 3) -> None:
        """Wait until it has so many workers, moves nothing, and has opened some more epochs."""

        def settled() -> dict[str, Any] | None:
            status = self.status()
            return status if len(status["workers"]) == workers and status["migration"] is None else None

        self.until(settled, f"a quiet query of {workers} workers")
        self.pass_epochs(epochs)

    def pass_epochs(self, epochs: int) -> None:
        """Wait until it has opened some more epochs."""
        goal = self.status()["epoch"] + epochs
        self.until(lambda: self.status()["epoch"] >= goal or None, f"epoch {goal}")

    def kill(self, worker: int) -> None:
        """Kill a worker's process, and wait until another has its place."""
        pid = self.workers()[worker]
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self._replaced(worker, pid)

    def silence(self, worker: int) -> None:
        """Stop a worker's process for longer than anybody waits, then let it come back, stale."""
        pid = self.workers()[worker]
        os.kill(pid, signal.SIGSTOP)
        time.sleep(STOPPED_S)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        self._replaced(worker, pid)

    def _replaced(self, worker: int, pid: int) -> None:
        self.kills += 1
        self.until(lambda: self.workers().get(worker, pid) != pid or None, f"another worker {worker}")
