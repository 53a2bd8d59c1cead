"""Memory that two workers of one machine share for a moment: the fastest way from one to the other.

The old owner copies a bin into anonymous memory once, the new owner maps that same memory and keeps it. No socket, no
second copy: a third of the processor time that a stream takes (decisions/0011). On another machine, or where the
system does not have it, bins travel as a stream, into room of their own.  Neighbours: transfer.py decides which.
"""

import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from megaphone.engine.spark.messages import Loan

NAME = "megaphone-bin"
"""How lent memory is called, so that a borrower can tell it from any other file."""

ALIGNMENT = 64
"""Arrow and NumPy like their buffers at cache lines."""

LEND_FROM = 256 << 10
"""Bytes from which lending pays: mapping memory costs about as much as streaming this much."""

MAP_FROM = 1 << 20
"""Bytes from which memory of its own costs little beside filling it."""


def room(size: int) -> npt.NDArray[np.uint8]:
    """Memory for a part of a bin; a large one goes back to the system when the bin leaves, whatever lies beside it."""
    # The allocator keeps what is freed between two bins that stay, and learns to do so with ever larger ones.
    return np.frombuffer(mmap.mmap(-1, size), np.uint8) if size >= MAP_FROM else np.empty(size, np.uint8)


@cache
def kernel() -> str:
    """A name for the kernel that runs here, as long as it runs; empty where it tells none."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else ""


@cache
def machine() -> str:
    """A name for this machine as long as it runs; empty where memory cannot be lent."""
    if not hasattr(os, "memfd_create") or not kernel():
        return ""
    # Two containers on one kernel do not see each other's processes, but may have some of the same number.
    return f"{kernel()} {Path('/proc/self/ns/pid').readlink()}"


class Loans:
    """Memory lent to others, kept open until they surely have it."""

    def __init__(self) -> None:
        """Start with nothing lent."""
        self._lock = threading.Lock()
        self._files: list[int] = []

    def lend(self, buffers: Sequence[memoryview]) -> Loan:
        """Copy buffers into memory that the borrower can map."""
        file = os.memfd_create(NAME, os.MFD_CLOEXEC)
        with self._lock:
            self._files.append(file)
        os.fchmod(file, 0o600)
        places = list(_places(buffers))
        for (start, _), buffer in zip(places, buffers, strict=True):
            _write(file, buffer.cast("B"), start)
        size = max((start + size for start, size in places), default=0)
        os.ftruncate(file, size)
        return Loan(os.getpid(), file, places)

    def end(self) -> None:
        """Close what was lent; who has mapped it keeps it."""
        with self._lock:
            files, self._files = self._files, []
        for file in files:
            os.close(file)


def borrow(loan: Loan) -> list[memoryview]:
    """Map what another process of this machine has lent; raises OSError if it cannot be reached."""
    path = f"/proc/{loan.pid}/fd/{loan.file}"
    # Before it is opened: to open memory does nothing, to open a pipe or a device may.
    _check_is_lent(path, loan)
    file = os.open(path, os.O_RDWR)
    try:
        _check_is_lent(f"/proc/self/fd/{file}", loan)
        found = os.fstat(file)
        size = max((start + size for start, size in loan.places), default=0)
        if found.st_size != size or found.st_uid != os.geteuid():
            raise OSError(f"file {loan.file} of process {loan.pid} is not what was lent")
        memory = memoryview(mmap.mmap(file, 0))
    finally:
        os.close(file)
    return [memory[start : start + size] for start, size in loan.places]


def _check_is_lent(path: str, loan: Loan) -> None:
    """A number may mean another file by now: of the old owner, or of a process that has its number since."""
    if str(Path(path).readlink()) != f"/memfd:{NAME} (deleted)":
        raise OSError(f"file {loan.file} of process {loan.pid} is not lent memory")


def _places(buffers: Sequence[memoryview]) -> Iterator[tuple[int, int]]:
    start = 0
    for buffer in buffers:
        yield start, buffer.nbytes
        start += -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT


def _write(file: int, buffer: memoryview, start: int) -> None:
    done = 0
    while done < buffer.nbytes:
        done += os.pwrite(file, buffer[done:], start + done)
