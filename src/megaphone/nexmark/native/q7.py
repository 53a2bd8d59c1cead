"""Q7, native: which bid was the highest in each window of ten seconds?"""

from functools import partial
from typing import TYPE_CHECKING, Any

from megaphone.dataflow.native import Waiting
from megaphone.dataflow.records import Records
from megaphone.engine.spark import operators
from megaphone.nexmark.queries.q7 import FOUND, OUTPUT, at_hand, highest_of, whole_windows
from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from megaphone.engine.spark.control import Control


class Highest:
    """What was found in windows that have not ended."""

    def __init__(self, length: int) -> None:
        """Nothing."""
        self.length, self.early = length, Waiting()

    def step(self, found: Records, *, bound: int) -> dict[str, Any] | None:
        """The highest of all, once time has passed a window's end."""
        due = self.early.due(found, bound)
        return highest_of(due.data, due.times, self.length) if len(due) else None


def build(control: "Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Native."""
    length = windows.highest
    found = streams["bid"].mapInArrow(at_hand(length), FOUND)
    late, step = whole_windows(windows.lateness, length), partial(Highest, length)
    return operators.native(control, [found], ["window_end"], step, OUTPUT, time="window_end", lateness=late, name="q7")
