"""Sampling: the memory of every process, the bytes moved and the time stolen, twice a second, beside the latency.

Resident bytes by role: the driver, its JVM (and of that the heap in use), the workers, and the Python processes of
Spark's tasks. Neighbours: trial.py has it go along.  Paper: memory over time.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import psutil

PERIOD_S = 0.5
ROLES = ("driver", "jvm", "workers", "tasks")

Sample = dict[str, Any]
"""The second, bytes by role, `total`, those of `each` process, `heap`, `moved` and `stolen` seconds."""


class Sampler:
    """Looks at this process and its children, from a thread, until it is told to stop."""

    def __init__(self, workers: Callable[[], Iterable[int]], extra: Mapping[str, Callable[[], float]]) -> None:
        """`workers` gives the workers' processes, `extra` what else is to be sampled, by name."""
        self.samples: list[Sample] = []
        self._workers, self._extra = workers, extra
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._go, name="sampler", daemon=True)

    def __enter__(self) -> "Sampler":
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._stop.set()
        self._thread.join()

    def _go(self) -> None:
        while not self._stop.wait(PERIOD_S):
            self.samples.append({"at_s": time.time(), **memory(set(self._workers())), **self._others()})

    def _others(self) -> Sample:
        return {name: float(_quietly(look)) for name, look in self._extra.items()}

    def since(self, start_s: float) -> list[Sample]:
        """The samples, with seconds since a start."""
        return [
            {"second": round(sample["at_s"] - start_s, 2), **{k: v for k, v in sample.items() if k != "at_s"}}
            for sample in self.samples
        ]

    def between(self, begin_s: float, end_s: float) -> list[Sample]:
        """The samples of a stretch of time."""
        return [sample for sample in self.samples if begin_s <= sample["at_s"] < end_s]


def memory(workers: set[int]) -> Sample:
    """Resident bytes by role, and of each process.

    >>> found = memory(set())
    >>> found["driver"] > 0, found["total"] == sum(found["each"].values())
    (True, True)
    """
    driver = psutil.Process()
    each = {("driver", driver.pid): driver.memory_info().rss}
    for process in _others(driver, workers):
        try:
            each[_role(process, workers), process.pid] = process.memory_info().rss
        except psutil.Error:
            # It has ended meanwhile.
            continue
    roles = {role: sum(rss for (of, _), rss in each.items() if of == role) for role in ROLES}
    return {**roles, "total": sum(roles.values()), "each": {f"{role} {pid}": rss for (role, pid), rss in each.items()}}


def stolen() -> float:
    """Seconds of this machine's processors that went to other machines, where it is virtual and says so.

    >>> stolen() >= 0
    True
    """
    return float(getattr(psutil.cpu_times(), "steal", 0.0))


def _others(driver: psutil.Process, workers: set[int]) -> Iterable[psutil.Process]:
    # Workers outlive the task that started them, and are nobody's children then.
    children = {process.pid: process for process in driver.children(recursive=True)}
    for pid in workers - children.keys():
        try:
            children[pid] = psutil.Process(pid)
        except psutil.Error:
            continue
    return children.values()


def _role(process: psutil.Process, workers: set[int]) -> str:
    if process.pid in workers:
        return "workers"
    return "jvm" if process.name() == "java" else "tasks"


def _quietly(look: Callable[[], Any]) -> Any:
    """A query that is just being stopped has nothing to show."""
    try:
        return look()
    except Exception:
        return 0
