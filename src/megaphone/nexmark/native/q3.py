"""Q3, native: who in Oregon, Idaho or California sells in category 10, and what? Joined on arrival, in any order."""

from typing import TYPE_CHECKING

import pyarrow as pa

from megaphone.dataflow.records import Records
from megaphone.engine.spark import operators
from megaphone.nexmark.queries.bulk import texts
from megaphone.nexmark.queries.q3 import OUTPUT, PERSON, pairs
from megaphone.nexmark.queries.query import Streams, Windows
from megaphone.nexmark.queries.shelf import Shelf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from megaphone.engine.spark.control import Control


class Join:
    """Both relations."""

    def __init__(self) -> None:
        """Nobody, nothing."""
        self.persons, self.auctions = Shelf(), Shelf()

    def step(self, persons: Records, auctions: Records, *, bound: int) -> pa.Table | None:
        """New auctions with all persons, and the auctions that were there with new persons: each pair once."""
        ids, sellers, items = persons.column("id"), auctions.column("seller"), auctions.column("id")
        people = (ids, *(texts(persons, name) for name in PERSON))
        if len(ids):
            self.persons.add(people)
        which_auction, found_persons = self.persons.find(sellers)
        which_person, found_auctions = self.auctions.find(ids)
        if len(items):
            self.auctions.add((sellers, items))
        told = [pairs(found_persons, items[which_auction])] if found_persons else []
        if found_auctions:
            told.append(pairs(tuple(column[which_person] for column in people), found_auctions[1]))
        return pa.concat_tables(told) if told else None


def build(control: "Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Native."""
    inputs = [
        streams["person"].where("state in ('OR', 'ID', 'CA')"),
        streams["auction"].where("category = 10").select("id", "seller", "date_time"),
    ]
    return operators.native(control, inputs, ["id", "seller"], Join, OUTPUT, time="date_time", name="q3")
