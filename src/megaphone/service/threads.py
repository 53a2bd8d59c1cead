"""Threads for what takes long, beside an event loop that must not wait."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """What `work` returns or raises, in a thread of its own; unlike those of `asyncio.to_thread`, it keeps no process.

    >>> asyncio.run(in_thread(lambda: threading.current_thread().daemon))
    True
    """
    result: Future[T] = Future()
    # From here on it cannot be cancelled: what has begun ends.
    result.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True, name="megaphone-http-request").start()
    return await asyncio.wrap_future(result)
