"""The stage: hosts, a cluster on them, a running query; and what a scenario sees of it and does to it.

Neighbours: scenarios.py says what happens, network.py, cluster.py and job.py are what it happens to.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from megaphone.faults import Fault
from megaphone.harness.chaos.verdict import Judge
from megaphone.harness.chaos.warden import WORKER, GaveUp, arm, ask, taken, until
from megaphone.harness.hosts.cluster import SETTINGS, environment, faults_of, is_daemon, standalone
from megaphone.harness.hosts.network import Host, Network

T = TypeVar("T")

SILENCE_S = 3
"""How long a worker may be silent; 30 unless set."""

PATIENCE_S = 90.0
"""For what takes a few seconds, or as long as Spark takes to notice."""


@dataclass(frozen=True, slots=True)
class Sight:
    """The query, seen from its driver."""

    epoch: int
    hosts: dict[int, str]
    """Where each worker is."""
    pids: dict[int, int]
    bins: dict[int, int]
    executors: list[str]
    """The hosts, by address, on which Spark has executors."""
    settled: bool
    """Is every migration done that was asked for?"""

    def on(self, host: Host) -> list[int]:
        """The workers on a host."""
        return [worker for worker, name in self.hosts.items() if name == host.name]

    def __str__(self) -> str:
        names = sorted(set(self.hosts.values()))
        return ", ".join(f"{sum(name == host for host in self.hosts.values())} on {name}" for name in names)


class Stage:
    """A query on a head and some hosts."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        """Build it, and start the query."""
        self.folder = folder
        self.network = Network(folder, "head", *names)
        self.head, *self.hosts = self.network.hosts.values()
        self.judge = Judge(folder / "output", folder / "checkpoint" / "offsets")
        self._driver: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        """Start the cluster, and the query on it."""
        master = standalone(self.head, self.hosts, self.folder)
        settings = {
            **SETTINGS,
            "spark.cores.max": str(len(self.hosts)),
            "spark.driver.host": self.head.address,
            "spark.megaphone.silence": str(SILENCE_S),
        }
        told = [f"{name}={value}" for name, value in settings.items()]
        with (self.folder / "driver.log").open("wb") as log:
            self._driver = self.head.start(
                [sys.executable, "-m", "megaphone.harness.hosts.job", str(self.folder), master, *told],
                environment(self.head, self.folder),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        until(lambda: (self.folder / "checkpoint" / "commits").is_dir() or None, "a query", PATIENCE_S)

    # -- the query ------------------------------------------------------------------------------------------------

    def tell(self, order: str, *arguments: Any) -> dict[str, Any]:
        """Have the driver do something."""
        assert self._driver is not None
        answer = ask(self._driver, order, *arguments)
        if answer is None or "error" in answer:
            raise GaveUp(f"the driver was told to {order}, and {(answer or {}).get('error', 'did not answer')}")
        return answer

    def see(self) -> Sight:
        """How the query is."""
        told = self.tell("status")
        workers = told["workers"]
        return Sight(
            told["epoch"],
            {worker["worker"]: worker["host"] for worker in workers},
            {worker["worker"]: worker["pid"] for worker in workers},
            {worker["worker"]: worker["bins"] for worker in workers},
            told["executors"],
            not told["migrating"] and told["asked"] == told["done"],
        )

    def until(self, seen: Callable[[Sight], Any], what: str) -> Sight:
        """Wait until the query is as it should be, and gets on."""

        def look() -> Sight | None:
            sight = self.see()
            return sight if seen(sight) else None

        until(look, what, PATIENCE_S)
        goal = self.judge.epoch + 3
        until(lambda: self.judge.epoch >= goal or None, f"epoch {goal}", PATIENCE_S)
        return self.see()

    # -- the hosts ------------------------------------------------------------------------------------------------

    def workers_on(self, host: Host) -> set[int]:
        """The processes on a host that are or were workers of ours."""
        return {pid for pid, command in host.processes().items() if WORKER in command}

    def talk_by_tcp(self, sight: Sight, host: Host) -> bool:
        """Has a worker elsewhere called one on this host, over the network?"""
        called = {(host.address, port) for worker in sight.on(host) for port in host.ports(sight.pids[worker])}
        others = [other for other in self.hosts if other is not host]
        return any(called & other.peers(sight.pids[worker]) for other in others for worker in sight.on(other))

    def cut_at(self, host: Host, point: str) -> None:
        """Cut a host off when one of its workers has come to a point in a migration."""
        faults = faults_of(host, self.folder)
        # Long enough that the cable is out before the worker goes on.
        arm(faults, point, Fault(sleep_s=1.0))
        self.tell("migrate", "fluid")
        until(lambda: taken(faults, point), f"the point {point} on host {host.name}", 60.0)
        self.network.cut(host)

    def end(self) -> list[str]:
        """Stop the query; what is left of it on any host when it has had time to go."""
        assert self._driver is not None
        # It may be gone already, or not answer: what it leaves is counted all the same.
        with contextlib.suppress(GaveUp, subprocess.TimeoutExpired):
            self.tell("stop")
            self._driver.wait(60)
        deadline = time.monotonic() + 20
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return left

    def _left(self) -> list[str]:
        commands = [command for host in (self.head, *self.hosts) for command in host.processes().values()]
        return [command for command in commands if not is_daemon(command)]
