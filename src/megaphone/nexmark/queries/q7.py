"""Q7, highest bid: which bid was the highest in each window of ten seconds?"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import megaphone
from megaphone.dataflow.folds import States, VectorNotificator
from megaphone.dataflow.records import Records
from megaphone.nexmark.queries.bulk import Int64s, changes
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
The highest bid of what is at hand is found where bids are read, as in the authors' native version: that needs no state,
so there is nothing to move, and bids need not cross the exchange. What was found is dated to the window's end and waits
there, in the operator, which tells the highest of all and forgets it. The authors' migrateable version keeps a maximum
for each window in every bin, for ever."""

OUTPUT = "window_end timestamp, auction long, bidder long, price long, date_time timestamp"
FOUND = OUTPUT.replace("timestamp", "long")


def at_hand(length: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What Spark calls where bids are read: a maximum of maxima is one, whoever has found them."""

    def find(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for bids in batches:
            if bids.num_rows:
                ends = (_numbers(bids, "date_time") // length + 1) * length
                yield pa.record_batch(highest_of(bids, ends, length))

    return find


def highest(length: int, found: Records, states: States, notificator: VectorNotificator) -> dict[str, Any]:
    """All that was found in a window is here when time passes its end; it was kept by the notificator."""
    return highest_of(found.data, found.times, length)


def highest_of(bids: pa.RecordBatch, ends: Int64s, length: int) -> dict[str, Any]:
    """The highest bid of each window; only the few that are as high are compared in full."""
    window, prices = (ends - ends.min()) // length, _numbers(bids, "price")
    high = np.full(int(window.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(high, window, prices)
    rows = np.flatnonzero(prices == high[window])
    ends, few = ends[rows], bids.take(pa.array(rows))
    columns = {name: _numbers(few, name) for name in ("auction", "bidder", "price", "date_time")}
    order = np.lexsort((columns["bidder"], columns["auction"], columns["date_time"], ends))
    order = order[changes(ends[order])]
    return {"window_end": ends[order], **{name: values[order] for name, values in columns.items()}}


def _numbers(bids: pa.RecordBatch, name: str) -> Int64s:
    """A column of numbers, or of times in microseconds."""
    values: Int64s = bids.column(name).cast(pa.int64()).to_numpy()
    return values


def whole_windows(lateness: int, length: int) -> int:
    """How late a window's end may be, of events that may be so late.

    >>> whole_windows(0, 10), whole_windows(1, 10), whole_windows(10, 10)
    (0, 10, 10)
    """
    return -(-lateness // length) * length


def build(control: "megaphone.Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Migrateable."""
    length = windows.highest
    return megaphone.unary(
        control,
        streams["bid"].mapInArrow(at_hand(length), FOUND),
        "window_end",
        megaphone.vectorised(partial(highest, length), ordered=False),
        OUTPUT,
        time="window_end",
        lateness=whole_windows(windows.lateness, length),
        name="q7",
    )


QUERY = Query("q7", {"bid": ("auction", "bidder", "price", "date_time")}, OUTPUT, SQL, DEPARTS, build)
