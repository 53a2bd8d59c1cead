"""Q8, monitor new users: who joined in a window of twelve hours, and opened an auction in the same one?"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import megaphone
from megaphone.bins import BinArray, BinId
from megaphone.dataflow.folds import States, VectorNotificator
from megaphone.dataflow.records import Records
from megaphone.nexmark.queries import shelf
from megaphone.nexmark.queries.bulk import (
    Int64s,
    Places,
    alarms,
    arrived,
    bins_of,
    cuts,
    locate,
    tally,
    texts,
)
from megaphone.nexmark.queries.query import Query, Streams, Windows
from megaphone.nexmark.queries.shelf import Columns, Shelf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SQL = """
WITH newcomer AS (
    SELECT id, name, epoch_us(date_time) // $newcomers AS number FROM person
), seller AS (
    SELECT DISTINCT seller AS id, epoch_us(date_time) // $newcomers AS number FROM auction
)
SELECT id, name, make_timestamptz(number * $newcomers) AS window_start FROM newcomer JOIN seller USING (id, number)
"""

DEPARTS = """\
People are people: the authors read them from the stream of auctions, and join an auction's id with its seller. Windows
tumble, and each person is told once, as soon as both sides are known; which came first does not matter. When a window
ends, a bin is woken and forgets it; the authors forget nothing."""

OUTPUT = "id long, name string, window_start timestamp"


class Sides:
    """The two relations of a bin in one window."""

    __slots__ = ("persons", "sellers")

    def __init__(self) -> None:
        """Nobody."""
        self.persons = Shelf()
        """With their names, by id."""
        self.sellers = Shelf()
        """Each once."""


def join(
    windows: Windows,
    persons: Records,
    auctions: Records,
    states: States,
    later_persons: VectorNotificator,
    _auctions: VectorNotificator,
) -> dict[str, Any]:
    """Window by window: there are one or two in an epoch. A bin's state has those that are open, by number."""
    length, bounds, bins = windows.newcomers, later_persons.bounds, bins_of(persons, auctions)
    persons, auctions = arrived(persons), arrived(auctions)
    numbers = np.concatenate((persons.times, auctions.times)) // length
    told = []
    for number in tally(numbers)[0].tolist() if len(numbers) else ():
        joining, selling = within(persons, number, length), within(auctions, number, length)
        _wake(bins_of(joining, selling), states, later_persons, persons.data.schema, number, (number + 1) * length)
        told += [(*found, np.full(len(found[0]), number * length)) for found in _meet(joining, selling, states, number)]
    _forget(states, bins, bounds // length)
    ids, names, starts = shelf.join(*told) if told else ((), (), ())
    return {"id": ids, "name": list(names), "window_start": starts}


def within(records: Records, number: int, length: int) -> Records:
    return records.where(records.times // length == number)


def _meet(persons: Records, auctions: Records, states: States, number: int) -> Iterator[Columns]:
    """Sellers that are new here with the people who were there, new people with all sellers: each pair once."""
    bins = bins_of(persons, auctions)
    sides: list[Sides] = [states[BinId(bin)].setdefault(number, Sides()) for bin in bins.tolist()]
    known_persons, known_sellers = [side.persons for side in sides], [side.sellers for side in sides]
    auctions = auctions.take(_once(auctions.column("seller"))).sorted() if len(auctions) else auctions
    auctions = auctions.where(~shelf.has(known_sellers, auctions.column("seller"), cuts(auctions.bins, bins)))
    sellers, of_persons = auctions.column("seller"), cuts(persons.bins, bins)
    people = (persons.column("id"), texts(persons, "name"))
    shelf.put(known_sellers, (sellers,), cuts(auctions.bins, bins))
    _, found = shelf.find(known_persons, sellers, cuts(auctions.bins, bins))
    if found:
        yield found
    sell = shelf.has(known_sellers, people[0], of_persons)
    yield tuple(column[sell] for column in people)
    shelf.put(known_persons, people, of_persons)


def _once(keys: Int64s) -> Places:
    """Where each key is once."""
    return locate(keys, tally(keys)[0])


def _wake(
    bins: BinArray, states: States, notificator: VectorNotificator, schema: pa.Schema, number: int, end: int
) -> None:
    """Have bins woken at a window's end, if it is new to them: then they forget it."""
    new = [number not in states[BinId(bin)] for bin in bins.tolist()]
    woken = bins[np.array(new, np.bool_) & (notificator.bounds[bins] < end)]
    notificator.notify_at(alarms(schema, woken, np.full(len(woken), end)))


def _forget(states: States, bins: BinArray, ended: Int64s) -> None:
    """Drop the windows that have ended."""
    for bin, first_open in zip(map(BinId, bins.tolist()), ended[bins].tolist(), strict=True):
        open = states[bin]
        for number in [number for number in open if number < first_open]:
            del open[number]
        if not open:
            del states[bin]


def build(control: "megaphone.Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Migrateable."""
    return megaphone.binary(
        control,
        streams["person"],
        streams["auction"],
        "id",
        "seller",
        megaphone.vectorised(partial(join, windows)),
        OUTPUT,
        time="date_time",
        lateness=windows.lateness,
        name="q8",
    )


QUERY = Query(
    "q8", {"person": ("id", "name", "date_time"), "auction": ("seller", "date_time")}, OUTPUT, SQL, DEPARTS, build
)
