"""Q5, hot items: which auction had the most bids in the last minute? Told every second."""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import megaphone
from megaphone.bins import BinArray
from megaphone.dataflow.folds import States, VectorNotificator
from megaphone.dataflow.records import Records, argsort, runs
from megaphone.nexmark.queries.bulk import Int64s, Places, changes, highest, locate, tally
from megaphone.nexmark.queries.query import Query, Streams, Windows
from megaphone.nexmark.queries.shelves import Columns, Relations, concatenated, places

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


class Counts(Relations):
    """Auction, slice, and how many bids it got in it."""


def count_ahead(windows: Windows, bids: Records, states: Counts, notificator: VectorNotificator) -> dict[str, Any]:
    """Count bids by auction and slice, and say who leads, as far as these bins know, in the windows they change."""
    (known,) = states.shelves
    new, owners = _counts(bids, windows)
    auctions, slices, _ = new
    at, firsts = places(owners, auctions), changes(auctions)
    which, old = known.find(at[firsts])
    # What is older shares no window with a bid that may still come.
    past = notificator.bounds.min() // windows.slice - windows.slices
    known.put((at, *new[1:]), lambda counts: counts[1] > past)
    # The windows that change are those that end after an auction's first new slice.
    which = np.concatenate((which, np.arange(len(firsts)).repeat(np.diff(firsts, append=len(auctions)))))
    counts = concatenated(old, new) if old else new
    hot = _hot(counts, which, slices, slices[firsts], windows.slices)[which]
    counts, since = tuple([column[hot] for column in counts]), slices[firsts][which[hot]]
    ends, scores = _leaders(_steps(counts, since, windows.slices))
    return {"window_end": ends * windows.slice, **_told(scores)}


def _counts(bids: Records, windows: Windows) -> tuple[Columns, BinArray]:
    """Auction, slice, and how many of these bids it got in it, in this order, by bin; and the bins."""
    auctions, slices = bids.column("auction"), bids.times // windows.slice
    first = slices.min()
    # Slice by slice: there are few, and the auctions of one are counted without sorting them.
    by_slice = argsort(slices - first)
    auctions_by_slice, slices_by_slice = auctions[by_slice], slices[by_slice]
    counted = [
        (*tally(auctions_by_slice[start:stop]), int(slices_by_slice[start])) for start, stop in runs(slices_by_slice)
    ]
    found = np.concatenate([auctions for auctions, _, _ in counted])
    many = np.concatenate([many for _, many, _ in counted])
    when = np.repeat([slice for _, _, slice in counted], [len(auctions) for auctions, _, _ in counted])
    order = argsort(found - found.min())
    owners = bids.bins[locate(auctions, found[order])]
    by_bin = argsort(owners)
    order = order[by_bin]
    return (found[order], when[order], many[order]), owners[by_bin]


def _hot(counts: Columns, which: Places, new: Int64s, since: Int64s, slices: int) -> npt.NDArray[np.bool_]:
    """Which auctions may lead at all; there are few, and only they are looked at closely.

    Those that got the most bids in some slice do. What they have at each window's end, the others must at least have
    in all to be as hot.
    """
    first, last = new.min(), new.max()
    fresh = slice(len(which) - len(new), None)
    _, best = highest(new - first, counts[2][fresh] * len(which) + which[fresh], int(last - first) + 1)
    leads = np.zeros(len(since), np.bool_)
    leads[best % len(which)] = True
    rows = leads[which]
    ends, scores = _leaders(_steps(tuple([column[rows] for column in counts]), since[which[rows]], slices))
    # At the ends after these nothing was bid on, so nobody has less.
    least = np.minimum.accumulate(scores // AUCTIONS)
    total = np.bincount(which, counts[2])
    until = np.zeros(len(since), np.int64)
    until[which[fresh]] = new
    place = np.minimum(ends.searchsorted(until + slices, "right"), len(ends)) - 1
    hot: npt.NDArray[np.bool_] = leads | (total >= least[place])
    return hot


def _steps(counts: Columns, since: Int64s, slices: int) -> tuple[Int64s, Int64s, Int64s, Int64s]:
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


AUCTIONS = 1 << 40
"""More than there are: so that a number of bids and an auction make one number, larger if it is hotter."""


def _scores(auctions: Int64s, bids: Int64s) -> Int64s:
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
