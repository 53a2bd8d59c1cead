"""Q5, hot items: which auction had the most bids in the last minute? Told every second."""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import megaphone
from megaphone.dataflow.folds import States, VectorNotificator
from megaphone.dataflow.records import Records
from megaphone.nexmark.queries.bulk import Int64s, changes, highest, lowest
from megaphone.nexmark.queries.counts import AUCTIONS, Chunk, Counts, Rows
from megaphone.nexmark.queries.query import Query, Streams, Windows

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


def count_ahead(windows: Windows, bids: Records, states: Counts, notificator: VectorNotificator) -> dict[str, Any]:
    """Count bids by auction and slice, and say who leads, as far as these bins know, in the windows they change."""
    new = Chunk.tallied(bids.column("auction"), bids.times // windows.slice, bids.bins)
    ends, scores = _leaders(_steps(*_known(new, _hot(new, states, windows.slices), states), windows.slices))
    # What is older shares no window with a bid that may still come.
    states.put(new, windows.slices, int(notificator.bounds.min() // windows.slice - windows.slices))
    return {"window_end": ends * windows.slice, **_told(scores)}


def _hot(new: Chunk, states: Counts, slices: int) -> Int64s:
    """Which of the auctions may lead at all; there are few, and only they are looked at closely.

    Those that got the most bids in some slice do. What they have at the end of one of the windows that an auction is
    bid on in, it must at least have in all to be as hot.
    """
    leads = _first_in_slices(new)
    ends, scores = _leaders(_steps(*_known(new, leads, states), slices))
    first, totals = new.totals
    needed = np.full(len(totals), np.iinfo(np.int64).max)
    there, begins, lasts = new.lives(first, len(totals))
    since, until = ends.searchsorted(begins, "right"), ends.searchsorted(lasts + slices, "right")
    needed[there] = lowest(scores // AUCTIONS, since, until)
    hot = totals + states.totals(first, len(totals)) >= needed
    hot[leads - first] = True
    return np.flatnonzero(hot) + first


def _first_in_slices(new: Chunk) -> Int64s:
    """Which auctions got the most bids in some slice."""
    return np.unique(np.maximum.reduceat(new.bids * AUCTIONS + new.auctions, new.starts) % AUCTIONS)


def _known(new: Chunk, auctions: Int64s, states: Counts) -> tuple[Rows, Int64s]:
    """All counts of some of the new auctions, and of each the auction's first new slice.

    The windows that change are those that end after it.
    """
    parts = [*states.find(auctions), new.find(auctions)]
    which = np.concatenate([which for which, _ in parts])
    known, slices, bids = map(np.concatenate, zip(*(rows for _, rows in parts), strict=True))
    since = np.empty_like(auctions)
    ours, (_, fresh, _) = parts[-1]
    since[ours[::-1]] = fresh[::-1]
    return (known, slices, bids), since[which]


def _steps(counts: Rows, since: Int64s, slices: int) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """From which slice's end to which an auction has how many bids behind it; of ends after `since`."""
    auctions, ends, more = counts[0], counts[1] + 1, counts[2]
    ends, more = np.concatenate((ends, ends + slices)), np.concatenate((more, -more))
    auctions, since = np.tile(auctions, 2), np.tile(since, 2)
    order = (auctions * (int(ends.max() - ends.min()) + 1) + ends).argsort()
    ends, auctions, since, bids = ends[order], auctions[order], since[order], more[order].cumsum()
    # Each auction's sum ends at nothing, so the next one's begins there.
    lasts = np.append(changes(auctions, ends)[1:], len(ends)) - 1
    ends, auctions, since, bids = ends[lasts], auctions[lasts], since[lasts], bids[lasts]
    starts, stops = np.maximum(ends, since + 1), np.append(ends[1:], 0)
    some = (bids > 0) & (starts < stops)
    return starts[some], stops[some], auctions[some], bids[some]


def _leaders(steps: tuple[Int64s, Int64s, Int64s, Int64s]) -> tuple[Int64s, Int64s]:
    """At the end of each slice the hottest score: first of those that last as long, then of all."""
    starts, stops, auctions, bids = steps
    first = starts.min()
    starts, stops = starts - first, stops - first
    width = int(stops.max()) + 1
    found, scores = highest(starts * width + stops, _scores(auctions, bids), width * width)
    starts, long = found // width, found % width - found // width
    ends = starts.repeat(long) + np.arange(long.sum()) - (long.cumsum() - long).repeat(long)
    ends, scores = highest(ends, scores.repeat(long), width)
    return ends + first, scores


def _scores(auctions: Int64s, bids: Int64s) -> Int64s:
    """Bids and an auction as one number, larger if it is hotter."""
    return bids * AUCTIONS + (AUCTIONS - 1 - auctions)


def _told(scores: Int64s) -> dict[str, Any]:
    return {"auction": AUCTIONS - 1 - scores % AUCTIONS, "bids": scores // AUCTIONS}


def most(ends: Int64s, auctions: Int64s, bids: Int64s) -> dict[str, Any]:
    """Of each window the auction with the most bids, and of these the oldest."""
    windows, which = np.unique(ends, return_inverse=True)
    return {"window_end": windows, **_told(highest(which, _scores(auctions, bids), len(windows))[1])}


@megaphone.vectorised(ordered=False)
def hottest(said: Records, states: States, notificator: VectorNotificator) -> dict[str, Any]:
    """All that was said of a window is here when time passes its end; it was kept by the notificator."""
    return most(said.times, said.column("auction"), said.column("bids"))


def build(control: "megaphone.Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Migrateable."""
    said = megaphone.unary(
        control,
        streams["bid"],
        "auction",
        megaphone.vectorised(partial(count_ahead, windows), ordered=False),
        OUTPUT,
        state=Counts,
        time="date_time",
        lateness=windows.lateness,
        name="q5_counts",
    )
    return megaphone.unary(control, said, "window_end", hottest, OUTPUT, time="window_end", name="q5")


QUERY = Query("q5", {"bid": ("auction", "date_time")}, OUTPUT, SQL, DEPARTS, build)
