"""A Python process that Spark has started: how it settles in, and how it leaves.

Neighbours: router.py, host.py and every source of ours run in such processes.
"""

import gc
import sys
from types import TracebackType

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
    """Let this process, which belongs to one source of one query, end without a traceback when the query stops.

    Spark hangs up on it, and it then fails twice over to tell Spark so.
    """
    sys.excepthook = _unless_hung_up


def _unless_hung_up(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, (BrokenPipeError, EOFError)):
        sys.__excepthook__(kind, error, trace)
