"""Q8, native: who joined in a window of twelve hours, and opened an auction in the same one? Joined on arrival."""

from functools import partial
from typing import TYPE_CHECKING, Any

from megaphone.dataflow.records import Records
from megaphone.engine.spark import operators
from megaphone.nexmark.queries.q8 import OUTPUT, Open, newcomers
from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from megaphone.engine.spark.control import Control


class Join:
    """Both relations of each window that is open."""

    def __init__(self, windows: Windows) -> None:
        """No window."""
        self.length = windows.newcomers
        self.open = Open(1)

    def step(self, persons: Records, auctions: Records, *, bound: int) -> dict[str, Any]:
        """All in one place; forget the windows that have ended."""
        joining, selling = persons.column("id"), auctions.column("seller")
        told = newcomers(self.open, self.length, persons, auctions, joining, selling)
        self.open.forget(bound // self.length)
        return told


def build(control: "Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Native."""
    inputs = [streams["person"], streams["auction"]]
    join = partial(Join, windows)
    late = windows.lateness
    return operators.native(control, inputs, ["id", "seller"], join, OUTPUT, time="date_time", lateness=late, name="q8")
