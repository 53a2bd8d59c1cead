"""Q4, average price for a category: what have closed auctions of each category fetched on average, so far?"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import megaphone
from megaphone.bins import BinId
from megaphone.dataflow.folds import States, VectorNotificator
from megaphone.dataflow.records import Records, runs
from megaphone.nexmark.queries import closing
from megaphone.nexmark.queries.query import Query, Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SQL = f"""
WITH closed AS ({closing.CLOSED})
SELECT category, CAST(sum(price) OVER so_far // count(*) OVER so_far AS BIGINT) AS average, auction, expires
FROM closed
WINDOW so_far AS (PARTITION BY category ORDER BY expires, auction ROWS UNBOUNDED PRECEDING)
"""

DEPARTS = f"""\
{closing.DEPARTS}
An average counts auctions in the order they expire in, and by their ids where that is the same, so that it does not
depend on who hosts what. It is in whole numbers, rounded down, as there."""

OUTPUT = "category long, average long, auction long, expires timestamp"


@megaphone.vectorised
def average(closed: Records, states: States, notificator: VectorNotificator) -> dict[str, Any]:
    """Of each category the sum and the number so far; they are few, so a dict will do."""
    return averages(closed, lambda bin: states[BinId(bin)])


def averages(closed: Records, so_far: Callable[[int], dict[int, tuple[int, int]]]) -> dict[str, Any]:
    """Each closed auction with the average of its category up to it; `so_far` has sums and numbers, by bin."""
    order = np.lexsort((closed.column("auction"), closed.times, closed.column("category")))
    closed = closed.take(order)
    categories, prices, average = closed.column("category"), closed.column("price"), np.empty(len(closed), np.int64)
    for start, stop in runs(categories):
        state, category = so_far(int(closed.bins[start])), int(categories[start])
        total, many = state.get(category, (0, 0))
        totals = total + prices[start:stop].cumsum()
        average[start:stop] = totals // np.arange(many + 1, many + 1 + stop - start)
        state[category] = int(totals[-1]), many + stop - start
    return {**{name: closed.data.column(name) for name in ("category", "auction", "expires")}, "average": average}


def build(control: "megaphone.Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Migrateable."""
    closed = closing.closed_auctions(control, streams, windows, "category", "q4_closed")
    return megaphone.unary(control, closed, "category", average, OUTPUT, time="expires", name="q4")


INPUTS = closing.INPUTS | {"auction": (*closing.INPUTS["auction"], "category")}
QUERY = Query("q4", INPUTS, OUTPUT, SQL, DEPARTS, build)
