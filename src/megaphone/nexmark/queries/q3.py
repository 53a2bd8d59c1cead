"""Q3, local item suggestion: who in Oregon, Idaho or California sells in category 10, and what?"""

from typing import TYPE_CHECKING

import pyarrow as pa

import megaphone
from megaphone.bins import BinId
from megaphone.dataflow.folds import States, VectorNotificator
from megaphone.dataflow.records import Records
from megaphone.nexmark.queries import shelf
from megaphone.nexmark.queries.bulk import Int64s, bins_of, cuts, texts
from megaphone.nexmark.queries.query import Query, Streams, Windows
from megaphone.nexmark.queries.shelf import Columns, Shelf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SQL = """
SELECT name, city, state, auction.id AS auction
FROM auction JOIN person ON seller = person.id
WHERE category = 10 AND state IN ('OR', 'ID', 'CA')
"""

DEPARTS = """\
A seller keeps all of their auctions; the authors' migrateable version keeps the last one, and so loses those that come
before the person does. Both relations are kept for ever, as in the paper."""

OUTPUT = "name string, city string, state string, auction long"
PERSON = ("name", "city", "state")


class Sides:
    """The two relations of a bin."""

    __slots__ = ("auctions", "persons")

    def __init__(self) -> None:
        """Nobody, nothing."""
        self.persons = Shelf()
        """By id."""
        self.auctions = Shelf()
        """Their ids, by seller."""


@megaphone.vectorised
def join(
    persons: Records, auctions: Records, states: States, _persons: VectorNotificator, _auctions: VectorNotificator
) -> pa.Table | None:
    """New auctions with all persons, and the auctions that were there with new persons: each pair once."""
    bins = bins_of(persons, auctions)
    sides: list[Sides] = [states[BinId(bin)] for bin in bins.tolist()]
    known_persons, known_auctions = [side.persons for side in sides], [side.auctions for side in sides]
    of_persons, of_auctions = cuts(persons.bins, bins), cuts(auctions.bins, bins)
    ids, sellers, items = persons.column("id"), auctions.column("seller"), auctions.column("id")
    people = (ids, *(texts(persons, name) for name in PERSON))
    shelf.put(known_persons, people, of_persons)
    which_auction, found_persons = shelf.find(known_persons, sellers, of_auctions)
    which_person, found_auctions = shelf.find(known_auctions, ids, of_persons)
    shelf.put(known_auctions, (sellers, items), of_auctions)
    told = [pairs(found_persons, items[which_auction])] if found_persons else []
    if found_auctions:
        told.append(pairs(tuple(column[which_person] for column in people), found_auctions[1]))
    return pa.concat_tables(told) if told else None


def pairs(people: Columns, auctions: Int64s) -> pa.Table:
    told = [pa.array(column.tolist(), pa.string()) for column in people[1:]]
    return pa.table([*told, auctions], [*PERSON, "auction"])


def build(control: "megaphone.Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Migrateable."""
    return megaphone.binary(
        control,
        streams["person"].where("state in ('OR', 'ID', 'CA')"),
        streams["auction"].where("category = 10").select("id", "seller", "date_time"),
        "id",
        "seller",
        join,
        OUTPUT,
        state=Sides,
        time="date_time",
        lateness=windows.lateness,
        name="q3",
    )


QUERY = Query(
    "q3",
    {"person": ("id", "name", "city", "state", "date_time"), "auction": ("id", "seller", "category", "date_time")},
    OUTPUT,
    SQL,
    DEPARTS,
    build,
)
