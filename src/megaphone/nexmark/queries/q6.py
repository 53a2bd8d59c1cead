"""Q6, average selling price by seller: what did the last ten closed auctions of each seller fetch on average?"""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import megaphone
from megaphone.dataflow.folds import VectorNotificator
from megaphone.dataflow.records import Records
from megaphone.nexmark.queries import closing
from megaphone.nexmark.queries.bulk import Int64s, changes
from megaphone.nexmark.queries.query import Query, Streams, Windows
from megaphone.nexmark.queries.shelves import Columns, Relations, Shelves, places

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


class Prices(Relations):
    """The last prices of each seller, the latest last."""


@megaphone.vectorised(ordered=False)
def average(closed: Records, states: Prices, notificator: VectorNotificator) -> dict[str, Any]:
    """All bins at once."""
    return averages(closed, states.shelves[0], places(closed.bins, closed.column("seller")))


def averages(closed: Records, known: Shelves, sellers: Int64s) -> dict[str, Any]:
    """Put each seller's earlier prices before the new ones, and take sums over ten."""
    order = np.lexsort((closed.column("auction"), closed.times, sellers))
    closed, sellers = closed.take(order), sellers[order]
    prices, firsts = closed.column("price"), changes(sellers)
    which, earlier = known.find(sellers[firsts])
    known.put((sellers, prices), _last)
    every = np.concatenate((sellers[firsts][which], sellers))
    all_prices = np.concatenate((earlier[1], prices)) if earlier else prices
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
    return megaphone.unary(control, closed, "seller", average, OUTPUT, state=Prices, time="expires", name="q6")


INPUTS = closing.INPUTS | {"auction": (*closing.INPUTS["auction"], "seller")}
QUERY = Query("q6", INPUTS, OUTPUT, SQL, DEPARTS, build)
