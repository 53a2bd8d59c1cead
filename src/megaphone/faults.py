"""Faults on purpose, for the fault suite: at a named point of an epoch, a process dies, stops or fails.

Nothing happens unless MEGAPHONE_FAULTS names a folder. A fault is a file in it, named after the point; its content
says what is to happen. Only one process can take it away, so each fault happens once.
Neighbours: the points are where `reach` is called; harness/chaos sets the faults.
"""

import os
import signal
import time
from pathlib import Path
from typing import Literal, get_args

import msgspec
import psutil

FOLDER = os.environ.get("MEGAPHONE_FAULTS")

Point = Literal[
    "before-plan",
    "after-plan",
    "in-F",
    "before-feed",
    "pull-old",
    "pull-new",
    "installed",
    "applied",
    "logged",
    "after-feed",
    "reported",
    "snapshot",
    "sink",
]
"""Where a fault can be, in the order in which an epoch comes by."""

POINTS: dict[Point, str] = {
    "before-plan": "driver, asked for the plan of an epoch that has none",
    "after-plan": "driver, the plan is written and not answered",
    "in-F": "task, in the middle of addressing records",
    "before-feed": "task, the records are here and not given to a worker",
    "pull-old": "worker, about to serve a bin that leaves",
    "pull-new": "worker, a bin has arrived and another has not",
    "installed": "worker, bins are installed and nothing is applied to them",
    "applied": "worker, an epoch is applied and not logged",
    "logged": "worker, an epoch is logged and its outputs not given out",
    "after-feed": "task, outputs are here and not reported",
    "reported": "driver, a report has come and is not noted",
    "snapshot": "worker, a snapshot is about to be written",
    "sink": "task, outputs are on their way to the sink",
}
"""Which process is there, and what it has done."""

assert tuple(POINTS) == get_args(Point)


MOVING = "@moving"
"""After a point's name: only in an epoch in which bins move."""


class Fault(msgspec.Struct, frozen=True):
    """What is to happen: end processes, be stopped until somebody wakes us, sleep, or fail."""

    kill: list[int] = []
    """Process numbers; 0 is the process that reached the point, -1 the executor it works for."""
    stop: bool = False
    sleep_s: float = 0.0
    fail: bool = False


def reach(point: Point, moving: bool = False) -> None:
    """An epoch has come to a point: whatever is set for it happens, once."""
    if FOLDER is None:
        return
    for name in [point, point + MOVING] if moving else [point]:
        path = Path(FOLDER) / name
        taken = path.with_name(f"{name}.{os.getpid()}.{time.time_ns()}.taken")
        try:
            path.rename(taken)
        except FileNotFoundError:
            continue
        _happen(msgspec.json.decode(taken.read_bytes(), type=Fault), point)


def _happen(fault: Fault, point: str) -> None:
    if fault.stop:
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(fault.sleep_s)
    for pid in fault.kill:
        os.kill(os.getpid() if pid == 0 else _executor() if pid == -1 else pid, signal.SIGKILL)
    if fault.kill:
        # Whoever was killed must not get any further through us.
        time.sleep(60)
    if fault.fail:
        raise RuntimeError(f"failed on purpose: {point}")


def _executor() -> int:
    """The Java process this one works for; a worker knows it from its birth."""
    told = os.environ.get("MEGAPHONE_EXECUTOR_PID")
    if told:
        return int(told)
    return next(int(process.pid) for process in psutil.Process().parents() if process.name() == "java")
