"""Waiting for a worker that may be gone without a word: stopped, cut off, or stuck.

A call that takes long is not cut short; it is given up only when the coordinator says that the process called is no
longer the worker.  Neighbours: task.py waits for workers, tenancy.py for other workers; placement.py decides.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from megaphone.errors import WorkerLost

T = TypeVar("T")

ASK_EVERY_S = 1.0


class Attended(Generic[T]):
    """A call under way in a thread of its own, which dies with the process and keeps nothing alive."""

    def __init__(self, call: Callable[[], T]) -> None:
        """Start it."""
        self._call = call
        self._result: T | None = None
        self._error: BaseException | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, daemon=True, name="attended").start()

    @property
    def done(self) -> bool:
        """Is there a result, or an error?"""
        return self._done.is_set()

    def result(self, alive: Callable[[], bool]) -> T:
        """What the call gave or raised; gives it up when what it waits for is not alive."""
        while not self._done.wait(ASK_EVERY_S):
            if not alive() and not self._done.wait(ASK_EVERY_S):
                raise WorkerLost("no answer, and the worker has been replaced")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()
