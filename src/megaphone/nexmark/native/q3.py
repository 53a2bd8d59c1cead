"""Q3, native: who in Oregon, Idaho or California sells in category 10, and what? Joined on arrival, in any order."""

from typing import TYPE_CHECKING

import pyarrow as pa

from megaphone.dataflow.records import Records
from megaphone.engine.spark import operators
from megaphone.nexmark.queries.q3 import OUTPUT, meet
from megaphone.nexmark.queries.query import Streams, Windows
from megaphone.nexmark.queries.shelves import Shelves

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from megaphone.engine.spark.control import Control


class Join:
    """Both relations."""

    def __init__(self) -> None:
        """Nobody, nothing."""
        self.persons, self.auctions = Shelves(), Shelves()

    def step(self, persons: Records, auctions: Records, *, bound: int) -> pa.Table | None:
        """All in one place."""
        return meet(self.persons, self.auctions, persons, auctions, persons.column("id"), auctions.column("seller"))


def build(control: "Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Native."""
    inputs = [
        streams["person"].where("state in ('OR', 'ID', 'CA')"),
        streams["auction"].where("category = 10").select("id", "seller", "date_time"),
    ]
    return operators.native(control, inputs, ["id", "seller"], Join, OUTPUT, time="date_time", name="q3")
