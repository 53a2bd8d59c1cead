"""Q8, native: who joined in a window of twelve hours, and opened an auction in the same one? Joined on arrival."""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from megaphone.dataflow.records import Records
from megaphone.engine.spark import operators
from megaphone.nexmark.queries import shelf
from megaphone.nexmark.queries.bulk import texts
from megaphone.nexmark.queries.q8 import OUTPUT, Sides, within
from megaphone.nexmark.queries.query import Streams, Windows
from megaphone.nexmark.queries.shelf import Columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from megaphone.engine.spark.control import Control


class Join:
    """Both relations of each window that is open, by its number."""

    def __init__(self, windows: Windows) -> None:
        """No window."""
        self.length = windows.newcomers
        self.open: dict[int, Sides] = {}

    def step(self, persons: Records, auctions: Records, *, bound: int) -> dict[str, Any]:
        """Join window by window, and forget those that have ended."""
        told = []
        for number in np.unique(np.concatenate((persons.times, auctions.times)) // self.length).tolist():
            sides = self.open.setdefault(number, Sides())
            joining, selling = (within(records, number, self.length) for records in (persons, auctions))
            told += [(*found, np.full(len(found[0]), number * self.length)) for found in _meet(sides, joining, selling)]
        for number in [number for number in self.open if (number + 1) * self.length <= bound]:
            del self.open[number]
        ids, names, starts = shelf.join(*told) if told else ((), (), ())
        return {"id": ids, "name": list(names), "window_start": starts}


def _meet(sides: Sides, persons: Records, auctions: Records) -> list[Columns]:
    """Sellers that are new here with the people who were there, new people with all sellers: each pair once."""
    sellers = np.unique(auctions.column("seller"))
    sellers = sellers[~sides.sellers.has(sellers)]
    people = (persons.column("id"), texts(persons, "name"))
    _, found = sides.persons.find(sellers)
    if len(sellers):
        sides.sellers.add((sellers,))
    sell = sides.sellers.has(people[0])
    if len(persons):
        sides.persons.add(people)
    return [*([found] if found else []), tuple(column[sell] for column in people)]


def build(control: "Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Native."""
    inputs = [streams["person"], streams["auction"]]
    join = partial(Join, windows)
    late = windows.lateness
    return operators.native(control, inputs, ["id", "seller"], join, OUTPUT, time="date_time", lateness=late, name="q8")
