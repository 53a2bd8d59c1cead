"""Q3, local item suggestion: who in Oregon, Idaho or California sells in category 10, and what?"""

from typing import TYPE_CHECKING

import pyarrow as pa

import megaphone
from megaphone.dataflow.folds import VectorNotificator
from megaphone.dataflow.records import Records
from megaphone.nexmark.queries.bulk import Int64s, texts
from megaphone.nexmark.queries.query import Query, Streams, Windows
from megaphone.nexmark.queries.shelves import Columns, Relations, Shelves, in_order, places

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


class Sides(Relations):
    """Persons by id, and the ids of auctions by seller."""

    number = 2


@megaphone.vectorised(ordered=False)
def join(
    persons: Records, auctions: Records, states: Sides, _persons: VectorNotificator, _auctions: VectorNotificator
) -> pa.Table | None:
    """Both relations, by bin."""
    known_persons, known_auctions = states.shelves
    of_persons, of_auctions = (
        places(persons.bins, persons.column("id")),
        places(auctions.bins, auctions.column("seller")),
    )
    return meet(known_persons, known_auctions, persons, auctions, of_persons, of_auctions)


def meet(
    known_persons: Shelves,
    known_auctions: Shelves,
    persons: Records,
    auctions: Records,
    of_persons: Int64s,
    of_auctions: Int64s,
) -> pa.Table | None:
    """New auctions with all persons, and the auctions that were there with new persons: each pair once."""
    # Sorted here, they need not be sorted to be found and to be kept.
    people = in_order((of_persons, *(texts(persons, name) for name in PERSON)))
    of_auctions, items = in_order((of_auctions, auctions.column("id")))
    known_persons.put(people)
    which_auction, found_persons = known_persons.find(of_auctions)
    which_person, found_auctions = known_auctions.find(people[0])
    known_auctions.put((of_auctions, items))
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
