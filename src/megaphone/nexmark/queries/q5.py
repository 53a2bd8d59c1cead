"""Q5, hot items: which auction had the most bids in the last minute? Told every second."""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import megaphone
from megaphone.bins import BinArray, BinId
from megaphone.dataflow.folds import States, VectorNotificator
from megaphone.dataflow.records import Records, argsort
from megaphone.nexmark.queries import shelf
from megaphone.nexmark.queries.bulk import Array, Int64s, bins_of, changes, cuts, table, tally
from megaphone.nexmark.queries.query import Query, Streams, Windows
from megaphone.nexmark.queries.shelf import Columns, Shelf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SQL = """
WITH counted AS (
    SELECT auction, epoch_us(date_time) // $slice AS slice, count(*) AS bids FROM bid GROUP BY ALL
), ahead AS (
    SELECT auction, slice + unnest(range(1, $slices + 1)) AS last, bids FROM counted
), windowed AS (
    SELECT make_timestamptz(last * $slice) AS window_end, auction, CAST(sum(bids) AS BIGINT) AS bids
    FROM ahead GROUP BY ALL
)
SELECT * FROM windowed
QUALIFY row_number() OVER (PARTITION BY window_end ORDER BY bids DESC, auction) = 1
"""

DEPARTS = """\
The hottest auction is that of all; the authors tell one for each bin, or worker. Of auctions with equally many bids it
is the one with the smallest id, the oldest. As there, the standard's hour by minutes is a minute by seconds.
The authors wake every bin at every slice to count anew. Here a bin that gets bids says at once what that makes of the
windows to come. A count only grows until its window ends: what was said early is too little, what was said last is
right, and the largest wins. So no bin is woken to say that nothing changed, and what is said of a window waits for its
end in the second operator. A bin forgets old slices when it is next bid in."""

OUTPUT = "window_end timestamp, auction long, bids long"


def count_ahead(windows: Windows, bids: Records, states: States, notificator: VectorNotificator) -> dict[str, Any]:
    """Count bids by auction and slice, and say who leads, as far as these bins know, in the windows they change."""
    bins = bins_of(bids)
    shelves: list[Shelf] = [states[BinId(bin)] for bin in bins.tolist()]
    new, owners = _counts(bids, windows)
    auctions, slices, _ = new
    firsts = changes(auctions)
    which, old = shelf.find(shelves, auctions[firsts], cuts(owners[firsts], bins))
    # What is older shares no window with a bid that may still come.
    past = notificator.bounds[bins].min() // windows.slice - windows.slices
    shelf.put(shelves, new, cuts(owners, bins), lambda counts: counts[1] > past)
    # The windows that change are those that end after an auction's first new slice.
    since = slices[firsts]
    since = np.concatenate((since[which], since.repeat(np.diff(firsts, append=len(auctions)))))
    counts = shelf.join(old, new) if old else new
    return _leaders(_steps(counts, since, windows.slices), windows.slice)


def _counts(bids: Records, windows: Windows) -> tuple[Columns, BinArray]:
    """Auction, slice, and how many of these bids it got in it, in this order, by bin; and the bins."""
    auctions, slices = bids.column("auction"), bids.times // windows.slice
    first, width = slices.min(), int(slices.max() - slices.min()) + 1
    # In one number: auctions that are bid on at a time have like ids, so it stays small.
    pairs, many, where = tally(auctions * width + (slices - first))
    owners = bids.bins[where]
    order = argsort(owners)
    pairs, many = pairs[order], many[order]
    return (pairs // width, pairs % width + first, many), owners[order]


def _steps(counts: Columns, since: Int64s, slices: int) -> Array:
    """From which slice's end to which an auction has how many bids behind it; of ends after `since`."""
    auctions, ends, more = counts[0], counts[1] + 1, counts[2]
    ends, more = np.concatenate((ends, ends + slices)), np.concatenate((more, -more))
    auctions, since = np.tile(auctions, 2), np.tile(since, 2)
    order = np.lexsort((ends, auctions))
    ends, auctions, since, bids = ends[order], auctions[order], since[order], more[order].cumsum()
    # Each auction's sum ends at nothing, so the next one's begins there.
    lasts = np.append(changes(auctions, ends)[1:], len(ends)) - 1
    steps = table(
        start=np.maximum(ends[lasts], since[lasts] + 1),
        stop=np.append(ends[lasts][1:], 0),
        auction=auctions[lasts],
        bids=bids[lasts],
    )
    return steps[(steps["bids"] > 0) & (steps["start"] < steps["stop"])]


def _leaders(steps: Array, slice: int) -> dict[str, Any]:
    """At the end of each slice the auction with the most bids."""
    steps = steps[np.lexsort((steps["auction"], -steps["bids"], steps["stop"], steps["start"]))]
    steps = steps[changes(steps["start"], steps["stop"])]
    long = steps["stop"] - steps["start"]
    every = steps.repeat(long)
    ends = every["start"] + np.arange(len(every)) - (long.cumsum() - long).repeat(long)
    return most(ends * slice, every["auction"], every["bids"])


def most(ends: Int64s, auctions: Int64s, bids: Int64s) -> dict[str, Any]:
    order = np.lexsort((auctions, -bids, ends))
    firsts = order[changes(ends[order])]
    return {"window_end": ends[firsts], "auction": auctions[firsts], "bids": bids[firsts]}


@megaphone.vectorised
def hottest(said: Records, states: States, notificator: VectorNotificator) -> dict[str, Any]:
    """All that was said of a window is here when time passes its end; it was kept by the notificator."""
    return most(said.times, said.column("auction"), said.column("bids"))


def build(control: "megaphone.Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Migrateable."""
    said = megaphone.unary(
        control,
        streams["bid"],
        "auction",
        megaphone.vectorised(partial(count_ahead, windows)),
        OUTPUT,
        state=Shelf,
        time="date_time",
        lateness=windows.lateness,
        name="q5_counts",
    )
    return megaphone.unary(control, said, "window_end", hottest, OUTPUT, time="window_end", name="q5")


QUERY = Query("q5", {"bid": ("auction", "date_time")}, OUTPUT, SQL, DEPARTS, build)
