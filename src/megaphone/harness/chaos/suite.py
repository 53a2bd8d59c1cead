"""The suite: which faults, at which points, in which phases; each a few lines that set it and see it happen.

A case is one fault. It is set before its phase begins, so that it falls into the very epoch it is meant for, and it is
over when the query is healthy again: all workers there, the migration done, outputs coming.
Neighbours: warden.py does the breaking, `python -m megaphone.harness.chaos` runs them all.
"""

import io
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from megaphone.faults import MOVING, POINTS, Fault
from megaphone.harness.chaos.warden import GaveUp, Warden

STRATEGIES = ("fluid", "batched", "optimized", "all_at_once")
STEADY = "steady"
PHASES = (STEADY, *STRATEGIES)

IN_WORKER = ("pull-old", "pull-new", "installed", "applied", "logged", "snapshot")
IN_TASK = ("in-F", "before-feed", "after-feed", "sink")
IN_DRIVER = ("before-plan", "after-plan", "reported")
ONLY_MOVING = ("pull-old", "pull-new")
NEVER_MOVING = ("snapshot",)

FULL_S = 3.0

STOPPED_S = 5.0
"""How long a stopped process stays so: longer than a worker may be silent here."""


@dataclass(frozen=True, slots=True)
class Case:
    """One fault at one point in one phase."""

    kind: str
    point: str
    phase: str

    @property
    def name(self) -> str:
        """The point as faults are set: in a migration, only where bins move."""
        always = self.phase == STEADY or self.point in NEVER_MOVING
        return self.point if always else self.point + MOVING

    def __str__(self) -> str:
        return f"{self.kind} at {self.point}, {self.phase}"


@dataclass(frozen=True, slots=True)
class Ground:
    """Where cases happen: one query, started one way."""

    name: str
    master: str
    settings: tuple[tuple[str, str], ...]
    cases: tuple[Case, ...]
    small_disk: bool = False


def cases(kind: str, points: tuple[str, ...], phases: tuple[str, ...] = PHASES) -> Iterator[Case]:
    """A kind of fault at some points, in every phase in which an epoch comes by there."""
    for point in points:
        for phase in phases:
            if not (point in ONLY_MOVING and phase == STEADY):
                yield Case(kind, point, phase)


def grounds(seed: int) -> list[Ground]:
    """The whole suite, in an order that the seed decides."""
    local = [
        *cases("kill worker", IN_WORKER),
        *cases("kill two workers", ("installed", "applied", "logged")),
        *cases("stop worker", ("pull-old", "pull-new", "installed", "applied", "logged")),
        *cases("fail task", IN_TASK),
        *cases("slow sink", ("sink",)),
    ]
    drivers = [
        *cases("kill driver", (*IN_DRIVER, "sink", "before-commit")),
        # Half a minute each: of what a driver's death means to workers, the smallest and the largest step will do.
        *cases("kill driver", ("pull-old", "pull-new", "applied", "logged"), ("fluid", "all_at_once")),
        *cases("tear last files", ("after-feed", "after-plan"), (STEADY, "fluid", "all_at_once")),
    ]
    executors = [
        *cases("kill executor", (*IN_TASK, "pull-old", "pull-new", "installed", "logged")),
        *cases("stop task", ("in-F", "before-feed", "after-feed", "sink")),
        *cases("kill worker", ("pull-old", "pull-new", "logged")),
    ]
    full = list(cases("fill disk", ("any",), PHASES)) * 2
    cluster = "local-cluster[2,1,1024]"
    speculation = (
        ("spark.speculation", "true"),
        ("spark.speculation.interval", "100ms"),
        ("spark.speculation.multiplier", "2"),
        ("spark.speculation.quantile", "0.4"),
        ("spark.speculation.minTaskRuntime", "500ms"),
    )
    chance = random.Random(seed)
    for group in (local, drivers, executors, full):
        chance.shuffle(group)
    return [
        Ground("one machine", "local[2,8]", (), tuple(local)),
        Ground("driver", "local[2,8]", (), tuple(drivers)),
        Ground("executors", cluster, speculation, tuple(executors)),
        Ground("small disk", "local[2,8]", (), tuple(full), small_disk=True),
    ]


def short(seed: int) -> list[Ground]:
    """One of each kind that a single machine and a minute or two can have."""
    chance = random.Random(seed)
    picked = [
        Case("kill worker", "pull-old", "fluid"),
        Case("kill worker", "pull-new", "all_at_once"),
        Case("kill worker", "logged", STEADY),
        Case("stop worker", "applied", "batched"),
        Case("fail task", "after-feed", "optimized"),
        Case("kill driver", "after-plan", "fluid"),
        Case("kill driver", "before-commit", STEADY),
        Case("tear last files", "after-feed", "all_at_once"),
    ]
    chance.shuffle(picked)
    return [Ground("one machine", "local[2,8]", (), tuple(picked))]


def inject(case: Case, warden: Warden) -> None:
    """Let a fault happen, and wait until it has."""
    INJECTIONS[case.kind](case, warden)


def _enter(case: Case, warden: Warden) -> None:
    """Begin the phase."""
    if case.phase != STEADY:
        warden.until(lambda: (warden.ask("migrate", case.phase) or {}).get("steps"), "a migration")


def _await(case: Case, warden: Warden) -> int:
    """The process that came to the point."""
    return warden.until(lambda: warden.taken(case.name), f"the point {case.name}", 60.0)


def _at(fault: Callable[[Warden], Fault]) -> Callable[[Case, Warden], None]:
    def injection(case: Case, warden: Warden) -> None:
        warden.arm(case.name, fault(warden))
        _enter(case, warden)
        _await(case, warden)

    return injection


def _kill_two_workers(case: Case, warden: Warden) -> None:
    other = random.Random(str(case)).choice(sorted(warden.status()["workers"].values()))
    warden.arm(case.name, Fault(kill=[other, 0]))
    _enter(case, warden)
    _await(case, warden)


def _stop(case: Case, warden: Warden) -> None:
    """Stop a process for longer than anybody waits, then let it come back, stale."""
    warden.arm(case.name, Fault(stop=True))
    _enter(case, warden)
    pid = _await(case, warden)
    time.sleep(STOPPED_S)
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return


def _kill_driver(case: Case, warden: Warden) -> None:
    if case.point == "before-commit":
        _enter(case, warden)
        _kill_before_commit(warden)
        return
    warden.arm(case.name, Fault(kill=[warden.driver_pid, warden.java_pid]))
    _enter(case, warden)
    _await(case, warden)


def _kill_before_commit(warden: Warden) -> None:
    """Between the sink's commit and Spark's own: the sink's log has an epoch that Spark's has not."""
    sink = warden.folder / "output" / "_spark_metadata"
    driver, java = warden.driver_pid, warden.java_pid
    following = warden.judge.epoch + 2
    deadline = time.monotonic() + 60
    names = [sink / str(following), sink / f"{following}.compact"]
    while not any(name.exists() for name in names):
        if time.monotonic() > deadline:
            raise GaveUp(f"epoch {following} did not come")
    for pid in (java, driver):
        os.kill(pid, signal.SIGKILL)


def _tear_last_files(case: Case, warden: Warden) -> None:
    """The driver dies in the middle of an epoch, and the last files it and its workers wrote are only half there."""
    _kill_driver(case, warden)
    warden.until(lambda: not warden.processes() or None, "the end of all processes")
    commits = {int(path.name) for path in (warden.checkpoint / "commits").glob("[0-9]*")}
    uncommitted = max(commits, default=-1) + 1
    for folder in ("log", "plans"):
        for path in (warden.checkpoint / "megaphone" / "control0" / folder).iterdir():
            if path.name.startswith(f"{uncommitted:012}-"):
                _tear(path)


def _tear(path: Path) -> None:
    half = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(half)
    path.with_name(f"{path.name}.1-1.writing").write_bytes(half)


def _fill_disk(case: Case, warden: Warden) -> None:
    """Nothing can be written any more, not even where something is deleted, until somebody makes room."""
    _enter(case, warden)
    filler = warden.checkpoint / "filler"
    with filler.open("wb", buffering=0) as file:
        _fill(file)
        before = warden.judge.epoch
        deadline = time.monotonic() + FULL_S
        while time.monotonic() < deadline:
            _fill(file)
    gone_on = warden.judge.epoch - before
    filler.unlink()
    if gone_on > 2:
        raise GaveUp(f"on a full disk the query went on for {gone_on} epochs")


def _fill(file: io.RawIOBase) -> None:
    for size in (1 << 16, 1 << 10, 1):
        try:
            while file.write(bytes(size)):
                pass
        except OSError:
            continue


INJECTIONS: dict[str, Callable[[Case, Warden], None]] = {
    "kill worker": _at(lambda _: Fault(kill=[0])),
    "kill two workers": _kill_two_workers,
    "stop worker": _stop,
    "stop task": _stop,
    "fail task": _at(lambda _: Fault(fail=True)),
    "slow sink": _at(lambda _: Fault(sleep_s=2.0)),
    "kill driver": _kill_driver,
    "kill executor": _at(lambda _: Fault(kill=[-1])),
    "tear last files": _tear_last_files,
    "fill disk": _fill_disk,
}

assert {point for points in (IN_WORKER, IN_TASK, IN_DRIVER) for point in points} == set(POINTS)
