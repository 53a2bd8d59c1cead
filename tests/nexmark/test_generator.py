"""Would catch an event that depends on more than its number, and any departure from the standard's rules.

The oracle computes one event at a time in plain Python integers, rule by rule, from the same draws.
"""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megaphone.errors import PlanError
from megaphone.nexmark.events import AUCTION, BID, EVENTS, NARROW, PERSON
from megaphone.nexmark.generator import Counts, Nexmark

WORD = 2**64
GOLDEN = 0x9E3779B97F4A7C15
MANY = 200_000


class Oracle:
    """One event, by the book."""

    def __init__(self, p, number):
        self.p = p
        size = p.out_of_order_group_size
        self.number = number // size * size + number * 953 % size
        self.id = p.first_event_id + self.number
        self.start = mix(self.id * GOLDEN + mix(p.seed))

    def row(self):
        offset = self.id % self.p.turn
        if offset < self.p.person_proportion:
            return {"kind": PERSON} | self.person()
        if offset < self.p.person_proportion + self.p.auction_proportion:
            return {"kind": AUCTION} | self.auction()
        return {"kind": BID} | self.bid()

    def person(self):
        p = self.p
        return {
            "id": self.last_person() + p.first_person_id,
            "city": p.us_cities[self.uniform(0, len(p.us_cities))],
            "state": p.us_states[self.uniform(1, len(p.us_states))],
            "name": p.first_names[self.uniform(2, len(p.first_names))]
            + " "
            + p.last_names[self.uniform(3, len(p.last_names))],
            "email_address": self.letters(4, 12)[:7] + "@" + self.letters(4, 12)[7:] + ".com",
            "credit_card": " ".join(f"{self.uniform(6 + group, 10_000):04}" for group in range(4)),
            "date_time": self.time(self.number),
        }

    def auction(self):
        p = self.p
        time = self.time(self.number)
        initial = self.price(0)
        if self.uniform(1, p.hot_seller_ratio) > 0:
            seller = self.last_person() // p.hot_seller_ratio_2 * p.hot_seller_ratio_2
        else:
            seller = self.next_person(2)
        horizon = self.time(self.number + p.in_flight_auctions * p.turn // p.auction_proportion) - time
        return {
            "id": self.last_auction() + p.first_auction_id,
            "item_name": self.text(6, 20),
            "description": self.text(10, 100),
            "initial_bid": initial,
            "reserve": initial + self.price(3),
            "date_time": time,
            "expires": time + 1 + self.uniform(4, max(2 * horizon, 1)),
            "seller": seller + p.first_person_id,
            "category": p.first_category_id + self.uniform(5, p.num_categories),
        }

    def bid(self):
        p = self.p
        if self.uniform(0, p.hot_auction_ratio) > 0:
            auction = self.last_auction() // p.hot_auction_ratio_2 * p.hot_auction_ratio_2
        else:
            auction = self.next_auction(1)
        if self.uniform(2, p.hot_bidder_ratio) > 0:
            bidder = self.last_person() // p.hot_bidder_ratio_2 * p.hot_bidder_ratio_2 + 1
        else:
            bidder = self.next_person(3)
        return {
            "auction": auction + p.first_auction_id,
            "bidder": bidder + p.first_person_id,
            "price": self.price(4),
            "date_time": self.time(self.number),
        }

    def last_person(self):
        turn, offset = divmod(self.id, self.p.turn)
        return turn * self.p.person_proportion + min(offset, self.p.person_proportion - 1)

    def last_auction(self):
        p = self.p
        turn, offset = divmod(self.id, p.turn)
        if offset < p.person_proportion:
            turn, offset = turn - 1, p.auction_proportion - 1
        elif offset >= p.person_proportion + p.auction_proportion:
            offset = p.auction_proportion - 1
        else:
            offset -= p.person_proportion
        return turn * p.auction_proportion + offset

    def next_person(self, draw):
        people = self.last_person() + 1
        active = min(people, self.p.active_people)
        return people - active + self.uniform(draw, active + self.p.person_id_lead)

    def next_auction(self, draw):
        last = self.last_auction()
        oldest = max(0, last - self.p.in_flight_auctions)
        return oldest + self.uniform(draw, last - oldest + 1 + self.p.auction_id_lead)

    def time(self, number):
        return self.p.base_time + math.floor(
            number * Fraction(str(self.p.dilation)) * 1_000_000 / Fraction(str(self.p.rate))
        )

    def word(self, draw):
        return mix(self.start + (draw + 1) * GOLDEN)

    def uniform(self, draw, bound):
        return int((self.word(draw) >> 11) * (bound * 2.0**-53))

    def price(self, draw):
        return round(100 * 10 ** (6 * (self.word(draw) >> 40) / 2**24))

    def letters(self, draw, many):
        return "".join(chr(ord("a") + byte % 26) for byte in self.some_bytes(draw, many))

    def text(self, draw, longest):
        drawn = self.some_bytes(draw + 1, 3 + self.uniform(draw, longest - 2))
        return "".join(" " if byte < 20 else chr(ord("a") + (byte - 20) % 26) for byte in drawn)

    def some_bytes(self, draw, many):
        words = [self.word(draw + further) for further in range(-(-many // 8))]
        return b"".join(word.to_bytes(8, "little") for word in words)[:many]


def mix(word):
    word %= WORD
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB % WORD
    return word ^ word >> 31


def integers(batch):
    """Times as whole numbers, for a comparison that no time zone can hide anything from."""
    arrays = [array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array for array in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def columns(batch):
    return {name: batch[name].to_numpy(zero_copy_only=False) for name in batch.schema.names}


def small(least=1, most=60):
    return st.integers(least, most)


streams = st.builds(
    Nexmark,
    seed=st.integers(-(2**63), 2**64),
    strings=st.just(True),
    rate=st.one_of(st.integers(1, 10**7), st.sampled_from([0.5, 0.1, 1000.25])),
    dilation=st.sampled_from([1, 60, 79, 0.5, 1.1]),
    base_time=st.integers(0, 2**50),
    first_event_id=st.integers(0, 10**9),
    out_of_order_group_size=small(),
    person_proportion=small(most=4),
    auction_proportion=small(most=5),
    bid_proportion=small(),
    active_people=small(most=2000),
    in_flight_auctions=small(0, 10**4),
    person_id_lead=small(0),
    auction_id_lead=small(0),
    hot_seller_ratio=small(),
    hot_auction_ratio=small(),
    hot_bidder_ratio=small(),
    hot_seller_ratio_2=small(most=200),
    hot_auction_ratio_2=small(most=200),
    hot_bidder_ratio_2=small(most=200),
    first_person_id=small(0),
    first_auction_id=small(0),
    first_category_id=small(0),
    num_categories=small(),
)
starts = st.integers(0, 10**9)


@given(streams, starts, st.integers(0, 150))
@settings(max_examples=50)
def test_every_event_is_what_the_rules_say(nexmark, first, many):
    rows = integers(nexmark.events(first, first + many)).to_pylist()
    empty = dict.fromkeys(EVENTS.names)
    assert rows == [empty | Oracle(nexmark, number).row() for number in range(first, first + many)]


@given(streams, st.lists(starts, max_size=60))
@settings(max_examples=50)
def test_every_kind_is_what_the_rules_say_at_scattered_numbers(nexmark, numbers):
    expected = [Oracle(nexmark, number).row() for number in numbers]
    for kind, some in enumerate((nexmark.persons, nexmark.auctions, nexmark.bids)):
        rows = integers(some(numbers)).to_pylist()
        assert rows == [{name: row[name] for name in NARROW[kind].names} for row in expected if row["kind"] == kind]


@given(streams, starts, st.lists(st.integers(0, 400), min_size=2))
@settings(max_examples=50)
def test_any_split_gives_the_same_rows(nexmark, first, cuts):
    cuts = sorted(cuts)
    whole = nexmark.events(first + cuts[0], first + cuts[-1])
    parts = [nexmark.events(first + start, first + stop) for start, stop in pairwise(cuts)]
    assert pa.concat_batches(parts).equals(whole)
    whole.validate(full=True)


@given(streams, starts, st.integers(0, 500))
@settings(max_examples=50)
def test_counts_are_those_of_the_events(nexmark, first, many):
    kinds = nexmark.events(first, first + many, ["kind"])["kind"].to_pylist()
    assert nexmark.counts(first, first + many) == Counts(*(kinds.count(kind) for kind in (PERSON, AUCTION, BID)))


@given(streams, st.integers(0, 10**7))
@settings(max_examples=50)
def test_shuffled_groups_have_the_same_events_in_another_order(nexmark, group):
    size = nexmark.out_of_order_group_size
    shuffled = integers(nexmark.events(group * size, (group + 1) * size)).to_pylist()
    ordered = integers(replace(nexmark, out_of_order_group_size=1).events(group * size, (group + 1) * size)).to_pylist()
    assert sorted(map(str, shuffled)) == sorted(map(str, ordered))
    assert 952 % size == 0 or shuffled != ordered


def test_times_count_up_unless_groups_are_shuffled():
    times = columns(integers(Nexmark(rate=3).events(0, 1000, ["date_time"])))["date_time"]
    assert (np.diff(times) > 0).all()
    assert times[999] == 333_000_000
    shuffled = columns(integers(Nexmark(out_of_order_group_size=10).events(0, 1000, ["date_time"])))["date_time"]
    assert (np.diff(shuffled) < 0).any()


def test_dilation_stretches_event_time_alone():
    plain, dilated = Nexmark(rate=1000), Nexmark(rate=1000, dilation=60)
    names = [name for name in EVENTS.names if name not in ("date_time", "expires")]
    assert plain.events(0, 1000, names).equals(dilated.events(0, 1000, names))
    times, stretched = (columns(integers(n.events(0, 1000, ["date_time"])))["date_time"] for n in (plain, dilated))
    assert (times * 60 == stretched).all()
    assert dilated.due_ns(int(stretched[-1])) == 999_000_000


def test_seeds_give_different_events_with_the_same_ids():
    one, other = (columns(Nexmark(seed=seed).bids(np.arange(MANY))) for seed in (1, 2))
    assert (one["price"] == other["price"]).mean() < 0.001
    assert (one["date_time"] == other["date_time"]).all()


def test_ids_count_up_without_a_gap():
    nexmark = Nexmark()
    assert columns(nexmark.persons(np.arange(MANY)))["id"].tolist() == list(range(1000, 1000 + MANY // 50))
    assert columns(nexmark.auctions(np.arange(MANY)))["id"].tolist() == list(range(1000, 1000 + MANY * 3 // 50))


def test_ids_count_up_without_a_gap_where_they_do_not_begin_with_a_turn():
    ids = columns(Nexmark(first_event_id=7).auctions(np.arange(500)))["id"]
    assert (np.diff(ids) == 1).all()


def test_bids_are_on_auctions_that_are_there_or_soon_will_be():
    nexmark = Nexmark()
    numbers = np.arange(MANY)[np.arange(MANY) % 50 >= 4]
    bids = columns(nexmark.bids(numbers))
    last_auction, last_person = numbers // 50 * 3 + 2 + 1000, numbers // 50 + 1000
    assert (bids["auction"] <= last_auction + 10).all()
    assert (bids["auction"] > last_auction).any()
    assert (bids["auction"] >= np.maximum(last_auction - 100, 1000)).all()
    assert (bids["bidder"] <= last_person + 10).all()
    assert (bids["bidder"] >= np.maximum(last_person - 1000, 1000)).all()


def test_hot_ones_are_as_hot_as_they_should_be():
    nexmark = Nexmark()
    numbers = np.arange(10**6, 10**6 + MANY)
    bids = columns(nexmark.bids(numbers))
    bid_numbers = numbers[numbers % 50 >= 4]
    hot_auction = (bid_numbers // 50 * 3 + 2) // 100 * 100 + 1000
    hot_bidder = bid_numbers // 50 // 100 * 100 + 1001
    # The rest is spread over 111 auctions and 1010 people, and hits the hot one now and then.
    assert (bids["auction"] == hot_auction).mean() == pytest.approx(1 / 2 + 1 / 2 / 111, abs=0.01)
    assert (bids["bidder"] == hot_bidder).mean() == pytest.approx(3 / 4 + 1 / 4 / 1010, abs=0.01)
    auctions = columns(nexmark.auctions(numbers))
    auction_numbers = numbers[(numbers % 50 >= 1) & (numbers % 50 < 4)]
    assert (auctions["seller"] == auction_numbers // 50 // 100 * 100 + 1000).mean() == pytest.approx(3 / 4, abs=0.02)


def test_prices_are_log_uniform():
    prices = columns(Nexmark().bids(np.arange(MANY)))["price"]
    assert 100 <= prices.min() < 101
    assert 9.9e7 < prices.max() <= 1e8
    decades = np.bincount(np.log10(prices).astype(int), minlength=8)[2:8] / len(prices)
    assert decades == pytest.approx([1 / 6] * 6, abs=0.01)


def test_auctions_are_open_for_as_long_as_auctions_in_flight_take_to_come():
    auctions = columns(integers(Nexmark(rate=1000).auctions(np.arange(MANY))))
    open_us = auctions["expires"] - auctions["date_time"]
    assert open_us.min() > 0
    # 100 auctions are 1666 events, at a thousand a second.
    assert open_us.mean() == pytest.approx(1_666_000, rel=0.02)
    assert open_us.max() <= 2 * 1_666_000
    assert (auctions["reserve"] > auctions["initial_bid"]).all()
    assert set(auctions["category"]) == {10, 11, 12, 13, 14}


def test_strings_are_empty_unless_asked_for_and_change_nothing_else():
    without, with_strings = Nexmark().events(0, 1000), Nexmark(strings=True).events(0, 1000)
    optional = {"name", "email_address", "credit_card", "item_name", "description"}
    for name in EVENTS.names:
        if name in optional:
            assert set(without[name].to_pylist()) == {"", None}
            assert "" not in with_strings[name].to_pylist()
        else:
            assert without[name].equals(with_strings[name])


def test_only_the_columns_named_come_and_in_that_order():
    batch = Nexmark().events(0, 100, ["price", "kind"])
    assert batch.schema.names == ["price", "kind"]
    assert batch["price"].equals(Nexmark().events(0, 100)["price"])
    with pytest.raises(PlanError, match="no column named 'prise'; choose from auction, bidder, price, date_time"):
        Nexmark().bids([1], ["prise"])


def test_numbers_whose_times_do_not_fit_are_refused():
    nexmark = Nexmark(rate=1, dilation=79, base_time=2**40)
    last = columns(integers(nexmark.events(nexmark.end - 50, nexmark.end, ["date_time", "expires"])))
    assert 2**61 < np.nanmax(last["expires"]) < 2**63
    assert 2**61 < last["date_time"].max() <= 2**62
    for first, last in ((-1, 5), (nexmark.end - 5, nexmark.end + 1)):
        with pytest.raises(PlanError, match=f"choose numbers from 0 on and below {nexmark.end}"):
            nexmark.events(first, last)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"rate": 0}, "rate is 0; choose more than 0"),
        ({"rate": float("nan")}, "rate is nan; choose more than 0"),
        ({"dilation": -1}, "dilation is -1; choose more than 0"),
        ({"rate": 1 / 3, "dilation": 1 / 7}, "choose fewer decimals"),
        ({"auction_proportion": 0}, "auction_proportion is 0; choose 1 to 1099511627776"),
        ({"hot_bidder_ratio": 0}, "hot_bidder_ratio is 0; choose 1 to"),
        ({"person_id_lead": -1}, "person_id_lead is -1; choose 0 to"),
        ({"out_of_order_group_size": 1906}, "is a multiple of 953, by which groups are shuffled; choose another"),
        ({"in_flight_auctions": 2**40}, "are open for more than a century; choose fewer"),
        ({"us_cities": ()}, "us_cities is empty; choose at least one"),
    ],
)
def test_parameters_nobody_could_follow_are_refused(wrong, sentence):
    with pytest.raises(PlanError, match=sentence):
        Nexmark(**wrong)
