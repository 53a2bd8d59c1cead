"""Open auctions: right whatever expires, leaves with its bin, comes back, or takes the place of another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megaphone.nexmark.queries import auctions as table
from megaphone.nexmark.queries.auctions import NO_BID, OPEN, Auctions
from megaphone.progress import END

BINS = 6
EPOCH = 10

OPENED = st.lists(st.tuples(st.integers(0, BINS - 1), st.integers(1, 40), st.integers(0, 3)), max_size=12)
"""Bin, how long it is open, and reserve."""
BIDS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9), st.integers(0, 9)), max_size=20)
"""Auction, price, and when in the epoch."""
WHAT = st.sampled_from(["stay", "leave", "return", "forget", "hold"])


@pytest.fixture(autouse=True, scope="module")
def few():
    """Let there be few places, so that they are soon taken again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "FEW", 2)
        yield


@given(st.lists(st.tuples(OPENED, BIDS, WHAT, st.integers(0, BINS - 1)), max_size=15))
def test_auctions_close_in_time_with_their_highest_bid(steps):
    auctions, right, away, ids = Auctions(BINS), {}, {}, 0
    for epoch, (opened, bids, what, bin) in enumerate(steps):
        now, bounds = EPOCH * epoch, np.full(BINS, EPOCH * (epoch + 1))
        if what == "leave" and bin not in away:
            away[bin] = auctions.pop(bin)
            assert auctions.get(bin) is None
            assert auctions.due[bin] == END
        elif what in ("return", "forget") and bin in away:
            back = away.pop(bin)
            if what == "return" and back is not None:
                auctions[bin] = back
            else:
                right = {id: row for id, row in right.items() if row["bin"] != bin}
        elif what == "hold":
            bounds[bin] -= EPOCH // 2
        came = [(owner, now, now + long, reserve) for owner, long, reserve in opened if owner not in away]
        auctions.open(rows_of(came, ids), np.array([owner for owner, *_ in came], np.uint32))
        for owner, begins, expires, reserve in came:
            right[ids] = {"bin": owner, "opened": begins, "expires": expires, "reserve": reserve, "price": NO_BID}
            ids += 1
        bids = [(id, price, now + at) for id, price, at in bids if id not in right or right[id]["bin"] not in away]
        auctions.bid(*np.array(bids, np.int64).reshape(-1, 3).T)
        judge(right, bids)
        closed = auctions.close(bounds)
        assert sorted(closed[["id", "price"]].tolist()) == taken_out(right, bounds, away)
        check(auctions, right, bounds, away)


def test_auction_that_left_and_came_back_to_its_place_closes_once():
    auctions = Auctions(BINS)
    auctions.open(rows_of([(0, 0, 5, 0)], first=7), np.array([3], np.uint32))
    auctions[3] = auctions.pop(3)
    assert auctions.close(np.full(BINS, EPOCH))["id"].tolist() == [7]
    assert auctions.get(3) is None


def rows_of(came, first):
    rows = [(first + n, opened, expires, reserve, 0, NO_BID) for n, (_, opened, expires, reserve) in enumerate(came)]
    return np.array(rows, OPEN)


def judge(right, bids):
    for id, price, time in bids:
        row = right.get(id)
        if row and price >= row["reserve"] and row["opened"] <= time < row["expires"]:
            row["price"] = max(row["price"], price)


def taken_out(right, bounds, away):
    closed = [id for id, row in right.items() if row["bin"] not in away and row["expires"] < bounds[row["bin"]]]
    return [(id, right.pop(id)["price"]) for id in closed]


def check(auctions, right, bounds, away):
    """Each bin has what is open, and is woken before the next of it expires, but not for what has."""
    for bin in set(range(BINS)) - away.keys():
        own = {id: row for id, row in right.items() if row["bin"] == bin}
        found = auctions.get(bin)
        assert sorted([] if found is None else found[["id", "price"]].tolist()) == sorted(
            (id, row["price"]) for id, row in own.items()
        )
        assert auctions.due[bin] <= min((row["expires"] for row in own.values()), default=END)
        assert auctions.due[bin] >= (bounds[bin] if own else END)
