"""Q8, monitor new users: who joined in a window of twelve hours, and opened an auction in the same one?"""

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

import megaphone
from megaphone.bins import BinId
from megaphone.dataflow.folds import VectorNotificator
from megaphone.dataflow.joint import Joint
from megaphone.dataflow.records import Records
from megaphone.nexmark.queries.bulk import Int64s, tally, texts
from megaphone.nexmark.queries.query import Query, Streams, Windows
from megaphone.nexmark.queries.shelves import KEYS, Columns, Shelves, concatenated, distinct, in_order, places

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
tumble, and each person is told once, as soon as both sides are known; which came first does not matter. A window that
has ended is forgotten with the next events; the authors forget nothing."""

OUTPUT = "id long, name string, window_start timestamp"


Sides = tuple[Shelves, Shelves]
"""The people of a window with their names, by id; and its sellers, each once."""


class Open(Joint):
    """Both relations of each window that is open."""

    def __init__(self, bins: int) -> None:
        """No window."""
        super().__init__(bins)
        self.sides: dict[int, Sides] = {}
        """By the window's number."""

    def get(self, bin: BinId) -> dict[int, tuple[Columns, Columns]] | None:
        """What each window has of a bin."""
        rows = {number: (persons.get(bin), sellers.get(bin)) for number, (persons, sellers) in self.sides.items()}
        return {number: sides for number, sides in rows.items() if any(sides)} or None

    def of(self, number: int) -> Sides:
        """Of a window, which may be new."""
        return self.sides.setdefault(number, (Shelves(len(self.due)), Shelves(len(self.due))))

    def forget(self, before: int) -> None:
        """Forget windows that have ended."""
        for number in [number for number in self.sides if number < before]:
            del self.sides[number]

    def _drop(self, bin: BinId) -> None:
        for shelves in chain.from_iterable(self.sides.values()):
            shelves.drop(bin)

    def _put(self, bin: BinId, state: dict[int, tuple[Columns, Columns]]) -> None:
        for number, sides in state.items():
            for shelves, rows in zip(self.of(number), sides, strict=True):
                if rows:
                    shelves.give(bin, rows)


def join(
    windows: Windows,
    persons: Records,
    auctions: Records,
    states: Open,
    notificator: VectorNotificator,
    _auctions: VectorNotificator,
) -> dict[str, Any]:
    """All bins at once; a bin that is to leave holds its windows open for all."""
    joining, selling = places(persons.bins, persons.column("id")), places(auctions.bins, auctions.column("seller"))
    told = newcomers(states, windows.newcomers, persons, auctions, joining, selling)
    states.forget(int(notificator.bounds.min()) // windows.newcomers)
    return told


def newcomers(
    open: Open, length: int, persons: Records, auctions: Records, joining: Int64s, selling: Int64s
) -> dict[str, Any]:
    """Window by window: there are one or two in an epoch. Who joins and who sells is told by places."""
    joined, sold, told = persons.times // length, auctions.times // length, []
    names = texts(persons, "name")
    for number in tally(np.concatenate((joined, sold)))[0].tolist():
        now = joined == number
        found = _meet(*open.of(number), in_order((joining[now], names[now])), distinct(selling[sold == number]))
        told += [(*rows, np.full(len(rows[0]), number * length)) for rows in found]
    ids, who, starts = concatenated(*told) if told else ((), (), ())
    return {"id": ids, "name": list(who), "window_start": starts}


def _meet(known_persons: Shelves, known_sellers: Shelves, people: Columns, sellers: Int64s) -> Iterator[Columns]:
    """Sellers that are new here with the people who were there, new people with all sellers: each pair once."""
    sellers = sellers[~known_sellers.has(sellers)]
    known_sellers.put((sellers,))
    _, found = known_persons.find(sellers)
    if found:
        yield found
    sell = known_sellers.has(people[0])
    yield people[0][sell] & KEYS, people[1][sell]
    known_persons.put(people)


def build(control: "megaphone.Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Migrateable."""
    return megaphone.binary(
        control,
        streams["person"],
        streams["auction"],
        "id",
        "seller",
        megaphone.vectorised(partial(join, windows), ordered=False),
        OUTPUT,
        state=Open,
        time="date_time",
        lateness=windows.lateness,
        name="q8",
    )


QUERY = Query(
    "q8", {"person": ("id", "name", "date_time"), "auction": ("seller", "date_time")}, OUTPUT, SQL, DEPARTS, build
)
