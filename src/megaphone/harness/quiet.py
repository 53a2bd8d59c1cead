"""Quiet: what Spark and its processes write to the terminal, kept in a file instead.

A query that is stopped in mid-epoch leaves tracebacks of Spark's own, whatever the log level; they hide the results.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def errors_to(path: Path) -> Iterator[None]:
    """Send standard error, of this process and those it starts, to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    terminal = os.dup(2)
    with path.open("wb") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        os.close(terminal)
