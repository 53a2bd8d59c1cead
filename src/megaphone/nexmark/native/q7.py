"""Q7, native: which bid was the highest in each window of ten seconds?"""

from functools import partial
from typing import TYPE_CHECKING, Any

from megaphone.dataflow.native import Waiting
from megaphone.dataflow.records import Records
from megaphone.engine.spark import operators
from megaphone.nexmark.queries.q7 import OUTPUT, highest_of
from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from megaphone.engine.spark.control import Control


class AtHand:
    """Keeps nothing."""

    def __init__(self, windows: Windows) -> None:
        """Windows of a length."""
        self.length = windows.highest

    def step(self, bids: Records, *, bound: int) -> dict[str, Any] | None:
        """The highest of what has come."""
        return highest_of(bids, (bids.times // self.length + 1) * self.length, self.length) if len(bids) else None


class Highest:
    """What workers have found in windows that have not ended."""

    def __init__(self, windows: Windows) -> None:
        """Nothing."""
        self.length, self.early = windows.highest, Waiting()

    def step(self, found: Records, *, bound: int) -> dict[str, Any] | None:
        """The highest of all, once time has passed a window's end."""
        due = self.early.due(found, bound)
        return highest_of(due, due.times, self.length) if len(due) else None


def build(control: "Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Native."""
    late = windows.lateness
    first, last = partial(AtHand, windows), partial(Highest, windows)
    bids = [streams["bid"]]
    found = operators.native(
        control, bids, ["auction"], first, OUTPUT, time="date_time", lateness=late, name="q7_at_hand"
    )
    return operators.native(control, [found], ["window_end"], last, OUTPUT, time="window_end", name="q7")
