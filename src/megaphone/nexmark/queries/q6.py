"""Q6, average selling price by seller: what did the last ten closed auctions of each seller fetch on average?"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import megaphone
from megaphone.bins import BinId
from megaphone.dataflow.folds import States, VectorNotificator
from megaphone.dataflow.records import Records
from megaphone.nexmark.queries import closing, shelf
from megaphone.nexmark.queries.bulk import Int64s, bins_of, changes, cuts
from megaphone.nexmark.queries.query import Query, Streams, Windows
from megaphone.nexmark.queries.shelf import Columns, Shelf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SQL = f"""
WITH closed AS ({closing.CLOSED})
SELECT seller, CAST(sum(price) OVER last_ten // count(*) OVER last_ten AS BIGINT) AS average, auction, expires
FROM closed
WINDOW last_ten AS (PARTITION BY seller ORDER BY expires, auction ROWS 9 PRECEDING)
"""

DEPARTS = f"""\
{closing.DEPARTS}
Averages are by seller, as the paper has it; the authors' code goes by the winning bidder. A seller's auctions come in
the order they expire in, and by their ids where that is the same. Whole numbers, rounded down, as there."""

OUTPUT = "seller long, average long, auction long, expires timestamp"

LAST = 10


@megaphone.vectorised
def average(closed: Records, states: States, notificator: VectorNotificator) -> dict[str, Any]:
    """Each bin has its sellers' last prices on a shelf."""
    return averages(closed, lambda bin: states[BinId(bin)])


def averages(closed: Records, shelf_of: Callable[[int], Shelf]) -> dict[str, Any]:
    """Put each seller's earlier prices before the new ones, and take sums over ten."""
    order = np.lexsort((closed.column("auction"), closed.times, closed.column("seller"), closed.bins))
    closed = closed.take(order)
    sellers, prices = closed.column("seller"), closed.column("price")
    bins = bins_of(closed)
    shelves = [shelf_of(bin) for bin in bins.tolist()]
    firsts = changes(sellers)
    _, earlier = shelf.find(shelves, sellers[firsts], cuts(closed.bins[firsts], bins))
    shelf.put(shelves, (sellers, prices), cuts(closed.bins, bins), _last)
    every, all_prices = shelf.join(earlier, (sellers, prices)) if earlier else (sellers, prices)
    order = every.argsort(kind="stable")
    average = np.empty(len(every), np.int64)
    average[order] = _of_last(every[order], all_prices[order])
    same = {name: closed.data.column(name) for name in ("seller", "auction", "expires")}
    return {**same, "average": average[len(every) - len(closed) :]}


def _last(rows: Columns) -> npt.NDArray[np.bool_]:
    """Those that a seller has not ten after."""
    last = np.ones(len(rows[0]), np.bool_)
    last[:-LAST] = rows[0][LAST:] != rows[0][:-LAST]
    return last


def _of_last(sellers: Int64s, prices: Int64s) -> Int64s:
    """The average of each price and up to nine before it, of the same seller."""
    starts, places = changes(sellers), np.arange(len(sellers))
    since = starts[starts.searchsorted(places, "right") - 1]
    many = np.minimum(places - since + 1, LAST)
    sums = np.append(0, prices.cumsum())
    averages: Int64s = (sums[places + 1] - sums[places + 1 - many]) // many
    return averages


def build(control: "megaphone.Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Migrateable."""
    closed = closing.closed_auctions(control, streams, windows, "seller", "q6_closed")
    return megaphone.unary(control, closed, "seller", average, OUTPUT, state=Shelf, time="expires", name="q6")


INPUTS = closing.INPUTS | {"auction": (*closing.INPUTS["auction"], "seller")}
QUERY = Query("q6", INPUTS, OUTPUT, SQL, DEPARTS, build)
