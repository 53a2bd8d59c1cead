"""A Python process that Spark has started: how it settles in, and how it leaves.

Neighbours: router.py, host.py and every source of ours run in such processes.
"""

import gc
import sys
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

DAEMON = "pyspark.daemon"
"""Spark's program that processes of tasks and of plans are forked from."""

_settled = 0
"""How many modules were loaded when this process last settled in."""


def settle_in() -> None:
    """Take what this process has loaded out of the garbage collector's sight, and again when it has loaded more.

    Spark has a Python process collect garbage after every task: 20 ms each time for modules that stay anyway.
    """
    global _settled
    if len(sys.modules) != _settled:
        gc.collect()
        gc.freeze()
        _settled = len(sys.modules)


def leave_quietly() -> None:
    """Let this process, if it is one of Spark's, end without a traceback when Spark hangs up on it.

    Spark does so when a query stops, when it cancels a task, and when a process had nothing to do for a minute, as
    those have that helped to plan a query. The process then fails to answer: over a Unix socket it notices, and tells
    the terminal at length, though nobody waits for the answer.
    """
    main: Any = sys.modules["__main__"]
    program = getattr(getattr(main, "__spec__", None), "name", "")
    if program.startswith("pyspark."):
        sys.excepthook = _unless_hung_up
    if program == DAEMON and not isinstance(main.worker, partial):
        # It is called for every task, so this holds from the next one on.
        main.worker = partial(_work, main.worker)


def _work(worker: Callable[..., int], *arguments: Any) -> int:
    try:
        return worker(*arguments)
    except BrokenPipeError:
        # Not a task's own error: that is sent to the JVM, as long as it listens.
        return 1


def _unless_hung_up(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, (BrokenPipeError, EOFError)):
        sys.__excepthook__(kind, error, trace)
