"""People, auctions and bids: each column of each kind, from the events' ids.

Ids of people and auctions count up with the events' ids; the rest is drawn, in the standard's order, and the draw's
number is part of what a column means: never change it. A column costs nothing until it is asked for.
Neighbours: draws.py, strings.py.  To: generator.py, wide.py.  Paper: the evaluation, NEXMark.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from megaphone.nexmark import strings
from megaphone.nexmark.draws import Draws, Int64s
from megaphone.nexmark.parameters import Parameters

Mask = npt.NDArray[np.bool_]


class Kind:
    """Events of one kind; an attribute for every column."""

    def __init__(self, parameters: Parameters, ids: Int64s) -> None:
        """Say which events; all must be of the kind."""
        self._parameters = parameters
        self._ids = ids
        self._draws = Draws(parameters.seed, ids)

    @cached_property
    def date_time(self) -> Int64s:
        """When it happens."""
        return times(self._parameters, self._ids)

    @cached_property
    def _turns(self) -> tuple[Int64s, Int64s]:
        return divide(self._ids, self._parameters.turn)

    @cached_property
    def _last_person(self) -> Int64s:
        """The last person so far, counted from 0."""
        people = self._parameters.person_proportion
        turns, offsets = self._turns
        return turns * people + np.minimum(offsets, people - 1)

    @cached_property
    def _last_auction(self) -> Int64s:
        """The last auction so far, counted from 0; not to be asked of a person, who may come before all auctions."""
        people, auctions = self._parameters.person_proportion, self._parameters.auction_proportion
        turns, offsets = self._turns
        return turns * auctions + np.minimum(offsets - people, auctions - 1)

    def _some_person(self, draw: int) -> Int64s:
        """One of the active people, or of the next few."""
        people = self._last_person + 1
        active = np.minimum(people, self._parameters.active_people)
        return people - active + self._draws.uniform(draw, active + self._parameters.person_id_lead)

    def _some_auction(self, draw: int) -> Int64s:
        """One of the auctions in flight, or of the next few."""
        last = self._last_auction
        oldest = np.maximum(last - self._parameters.in_flight_auctions, 0)
        return oldest + self._draws.uniform(draw, last - oldest + 1 + self._parameters.auction_id_lead)

    def _all_but_one_in(self, ratio: int, draw: int) -> Mask:
        return self._draws.uniform(draw, ratio) > 0

    def _string(self, make: Callable[..., pa.StringArray], draw: int, *arguments: Any) -> pa.StringArray:
        if not self._parameters.strings:
            return strings.empty_strings(len(self._ids))
        return make(self._draws, draw, *arguments)


class Persons(Kind):
    """Draws: 0 city, 1 state, 2 to 3 name, 4 to 5 e-mail address, 6 to 9 credit card."""

    @cached_property
    def id(self) -> Int64s:
        """Counts up."""
        return self._last_person + self._parameters.first_person_id

    @cached_property
    def name(self) -> pa.StringArray:
        """First and last."""
        return self._string(strings.full_names, 2, self._parameters.first_names, self._parameters.last_names)

    @cached_property
    def email_address(self) -> pa.StringArray:
        """Random letters."""
        return self._string(strings.email_addresses, 4)

    @cached_property
    def credit_card(self) -> pa.StringArray:
        """Random digits."""
        return self._string(strings.credit_cards, 6)

    @cached_property
    def city(self) -> pa.StringArray:
        """One of a few, also without strings: queries ask for it."""
        return strings.picks(self._parameters.us_cities, self._draws, 0)

    @cached_property
    def state(self) -> pa.StringArray:
        """One of a few, not always the city's."""
        return strings.picks(self._parameters.us_states, self._draws, 1)


class Auctions(Kind):
    """Draws: 0 initial bid, 1 hot, 2 seller, 3 reserve, 4 length, 5 category, 6 to 9 item, 10 to 23 description."""

    @cached_property
    def id(self) -> Int64s:
        """Counts up."""
        return self._last_auction + self._parameters.first_auction_id

    @cached_property
    def item_name(self) -> pa.StringArray:
        """Random letters and spaces."""
        return self._string(strings.texts, 6, 20)

    @cached_property
    def description(self) -> pa.StringArray:
        """Random letters and spaces."""
        return self._string(strings.texts, 10, 100)

    @cached_property
    def initial_bid(self) -> Int64s:
        """A price."""
        return self._draws.prices(0)

    @cached_property
    def reserve(self) -> Int64s:
        """The initial bid and another price."""
        return self.initial_bid + self._draws.prices(3)

    @cached_property
    def expires(self) -> Int64s:
        """On average when as many auctions have come after this one as are in flight."""
        horizon = times(self._parameters, self._ids + self._parameters.events_in_flight) - self.date_time
        return self.date_time + 1 + self._draws.uniform(4, np.maximum(2 * horizon, 1))

    @cached_property
    def seller(self) -> Int64s:
        """The hot one, or any active person."""
        hot = _floor(self._last_person, self._parameters.hot_seller_ratio_2)
        seller = np.where(self._all_but_one_in(self._parameters.hot_seller_ratio, 1), hot, self._some_person(2))
        return seller + self._parameters.first_person_id

    @cached_property
    def category(self) -> Int64s:
        """One of a few."""
        return self._draws.uniform(5, self._parameters.num_categories) + self._parameters.first_category_id


class Bids(Kind):
    """Draws: 0 hot auction, 1 auction, 2 hot bidder, 3 bidder, 4 price."""

    @cached_property
    def auction(self) -> Int64s:
        """The hot one, or any in flight."""
        hot = _floor(self._last_auction, self._parameters.hot_auction_ratio_2)
        auction = np.where(self._all_but_one_in(self._parameters.hot_auction_ratio, 0), hot, self._some_auction(1))
        return auction + self._parameters.first_auction_id

    @cached_property
    def bidder(self) -> Int64s:
        """The hot one, next to the hot seller, or any active person."""
        hot = _floor(self._last_person, self._parameters.hot_bidder_ratio_2) + 1
        bidder = np.where(self._all_but_one_in(self._parameters.hot_bidder_ratio, 2), hot, self._some_person(3))
        return bidder + self._parameters.first_person_id

    @cached_property
    def price(self) -> Int64s:
        """Log-uniform."""
        return self._draws.prices(4)


KINDS = (Persons, Auctions, Bids)
"""By kind."""


def kinds_of(parameters: Parameters, ids: Int64s) -> npt.NDArray[np.int8]:
    """Of which kind each event is: in every turn people first, then auctions, then bids."""
    _, offsets = divide(ids, parameters.turn)
    auctions = offsets >= parameters.person_proportion
    bids = offsets >= parameters.person_proportion + parameters.auction_proportion
    return auctions.view(np.int8) + bids.view(np.int8)


def times(parameters: Parameters, ids: Int64s) -> Int64s:
    """When events happen, in microseconds: exact, and rounded down."""
    numbers = ids - parameters.first_event_id
    numerator, denominator = parameters.interval.as_integer_ratio()
    # In two parts: the product of a large number with the numerator might not fit.
    whole, rest = divide(numbers, denominator) if denominator > 1 else (numbers, np.int64(0))
    return parameters.base_time + whole * numerator + rest * numerator // denominator


def divide(numbers: Int64s, divisor: int) -> tuple[Int64s, Int64s]:
    """Quotient and rest; NumPy's own `divmod` takes several times as long."""
    quotients = numbers // divisor
    return quotients, numbers - quotients * divisor


def _floor(numbers: Int64s, step: int) -> Int64s:
    """The last multiple of a step."""
    return numbers // step * step
