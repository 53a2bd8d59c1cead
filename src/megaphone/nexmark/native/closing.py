"""Closed auctions, native: what did each auction fetch that has ended?"""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from megaphone.dataflow.native import Waiting
from megaphone.dataflow.records import Records
from megaphone.engine.spark import operators
from megaphone.nexmark.queries.auctions import Auctions
from megaphone.nexmark.queries.closing import closed
from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from megaphone.engine.spark.control import Control


class Close:
    """The open auctions of a worker, with the highest bid on each."""

    def __init__(self, column: str) -> None:
        """None yet; `column` says whose average they will count for."""
        self.column = column
        self.open = Auctions(bins=1)
        self.early_bids, self.early_auctions = Waiting(), Waiting()

    def step(self, bids: Records, auctions: Records, *, bound: int) -> dict[str, Any]:
        """Open the new auctions, judge the bids, close what has expired."""
        fresh, due = self.early_auctions.due(auctions, bound), self.early_bids.due(bids, bound)
        nowhere = np.zeros(len(fresh), np.uint32)
        return closed(self.column, due, fresh, nowhere, self.open, np.array([bound]))


def closed_auctions(control: "Control", streams: Streams, windows: Windows, column: str, name: str) -> "DataFrame":
    """Each closed auction, with the column that its average goes by, at the time it expires."""
    return operators.native(
        control,
        [streams["bid"], streams["auction"]],
        ["auction", "id"],
        partial(Close, column),
        f"auction long, {column} long, price long, expires timestamp",
        time="date_time",
        lateness=windows.lateness,
        name=name,
    )
