"""Q7, highest bid: which bid was the highest in each window of ten seconds?"""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import megaphone
from megaphone.dataflow.folds import States, VectorNotificator
from megaphone.dataflow.records import Records
from megaphone.nexmark.queries.bulk import Int64s, changes, micros
from megaphone.nexmark.queries.query import Query, Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SQL = """
SELECT make_timestamptz((epoch_us(date_time) // $highest + 1) * $highest) AS window_end,
    auction, bidder, price, date_time
FROM bid
QUALIFY row_number() OVER (PARTITION BY window_end ORDER BY price DESC, date_time, auction, bidder) = 1
"""

DEPARTS = """\
The whole bid is told, not its price alone. Of equally high bids it is the earliest; of these, the one on the auction,
and then by the bidder, with the smallest id. The window's length can be chosen (the paper says a minute, the authors'
code ten seconds).
The first operator finds the highest bid among those that a worker has at hand, and keeps nothing: what it found is
dated to the window's end and waits there, in the second operator, which tells the highest of all and forgets it. The
authors keep a maximum for each window in every bin, for ever."""

OUTPUT = "window_end timestamp, auction long, bidder long, price long, date_time timestamp"


def highest_at_hand(windows: Windows, bids: Records, states: States, notificator: VectorNotificator) -> dict[str, Any]:
    """Of all bins of this worker at once: a maximum of maxima is one, whoever hosts what."""
    return highest_of(bids, (bids.times // windows.highest + 1) * windows.highest, windows.highest)


def highest(windows: Windows, bids: Records, states: States, notificator: VectorNotificator) -> dict[str, Any]:
    """All that was found in a window is here when time passes its end; it was kept by the notificator."""
    return highest_of(bids, bids.times, windows.highest)


def highest_of(bids: Records, ends: Int64s, length: int) -> dict[str, Any]:
    """The highest bid of each window; only the few that are as high are compared in full."""
    window, prices = (ends - ends.min()) // length, bids.column("price")
    high = np.full(int(window.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(high, window, prices)
    rows = np.flatnonzero(prices == high[window])
    ends, few = ends[rows], bids.take(rows)
    times = micros(few, "date_time")
    order = np.lexsort((few.column("bidder"), few.column("auction"), times, ends))
    order = order[changes(ends[order])]
    columns = {name: few.column(name)[order] for name in ("auction", "bidder", "price")}
    return {"window_end": ends[order], **columns, "date_time": times[order]}


def build(control: "megaphone.Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Migrateable."""
    found = megaphone.unary(
        control,
        streams["bid"],
        "auction",
        megaphone.vectorised(partial(highest_at_hand, windows), ordered=False),
        OUTPUT,
        time="date_time",
        lateness=windows.lateness,
        name="q7_at_hand",
    )
    last = megaphone.vectorised(partial(highest, windows), ordered=False)
    return megaphone.unary(control, found, "window_end", last, OUTPUT, time="window_end", name="q7")


QUERY = Query("q7", {"bid": ("auction", "bidder", "price", "date_time")}, OUTPUT, SQL, DEPARTS, build)
