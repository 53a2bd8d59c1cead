"""The census: what each kind of process of a query has, and which files there are of it."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

import psutil

from megaphone.harness.chaos.warden import WORKER

MIB = 1 << 20

DRIVER, JAVA, PYTHON, WORKERS, OTHERS = "driver", "Java", "Spark's Python", "workers", "others"

MARKS = {WORKERS: WORKER, PYTHON: "pyspark.", JAVA: "/java"}
"""What the commands of a kind have in them."""

Figures = dict[str, float]


def processes(commands: Mapping[int, str], driver: int) -> Figures:
    """Processes, threads, descriptors and memory of a query, by kind: of all of a kind, and the most of one."""
    figures: Figures = {}
    kinds: dict[str, list[Figures]] = {kind: [] for kind in (DRIVER, *MARKS, OTHERS)}
    for pid, command in commands.items():
        # One that ends while it is looked at is not there.
        with contextlib.suppress(psutil.Error):
            found = _of(psutil.Process(pid))
            kinds[DRIVER if pid == driver else _kind(command)].append(found)
    for kind, all_of_it in kinds.items():
        figures[f"{kind}: processes"] = len(all_of_it)
        for name in ("threads", "descriptors", "memory"):
            each = [found[name] for found in all_of_it]
            figures[f"{kind}: {name}"] = sum(each)
            figures[f"{kind}: {name} of one"] = max(each, default=0)
    return figures


def _kind(command: str) -> str:
    return next((kind for kind, mark in MARKS.items() if mark in command), OTHERS)


def _of(process: psutil.Process) -> Figures:
    return {
        "threads": process.num_threads(),
        "descriptors": process.num_fds(),
        "memory": process.memory_full_info().uss / MIB,
    }


def files(folder: Path, but: str = "") -> tuple[int, int]:
    """Files, folders and sockets below a folder, and bytes; not those below a path in it."""
    count = size = 0
    for path in folder.rglob("*"):
        # Files come and go.
        with contextlib.suppress(OSError):
            if not (but and but in path.relative_to(folder).parts):
                size += path.lstat().st_size if path.is_file() else 0
                count += 1
    return count, size
