"""What can be set of NEXMark, with the standard's defaults, and checked.

Of the authors' parameters these are missing, on purpose: `threads`, since a rate is the whole stream's here however
many tasks make it; the shapes of a rate that varies, which their generator refuses as well; the unit of time.
Neighbours: generator.py.  Paper: the evaluation, NEXMark.
"""

from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property

from megaphone.errors import PlanError

SECOND_US = 1_000_000

END_OF_TIME = 2**62
"""In microseconds: no event is later, so that what a query adds to a time still fits 64 bits."""

SHUFFLE = 953
"""The prime that the standard shuffles a group of events with."""

AT_LEAST = {
    "active_people": 1,
    "hot_seller_ratio": 1,
    "hot_auction_ratio": 1,
    "hot_bidder_ratio": 1,
    "hot_seller_ratio_2": 1,
    "hot_auction_ratio_2": 1,
    "hot_bidder_ratio_2": 1,
    "out_of_order_group_size": 1,
    "num_categories": 1,
    "person_proportion": 1,
    "auction_proportion": 1,
    "bid_proportion": 1,
}
"""The least a whole number may be, where that is not 0."""

AT_MOST = 2**40
"""Of a whole number, and more than anyone needs: what is computed from it must fit 53 bits."""


@dataclass(frozen=True)
class Parameters:
    """What a stream of events depends on; two that are equal give the same events.

    Event n of the stream, counted from 0, carries the time base_time + n * dilation / rate.

    >>> Parameters(rate=2, dilation=60).interval
    Fraction(30000000, 1)
    """

    seed: int = 1
    strings: bool = False
    """Names, e-mail addresses, cards, items and descriptions; without, they are empty."""

    rate: float = 1000
    """Events of all kinds in a second of the wall clock."""
    dilation: float = 1
    """Seconds of event time in a second of the wall clock."""
    base_time: int = 0
    """Of event 0, in microseconds since 1970."""

    first_event_number: int = 0
    """Where the stream begins."""
    first_event_id: int = 0
    """What an event's id has over its number."""
    out_of_order_group_size: int = 1
    """Within each so many events the order is shuffled; by the standard's rule, not where the size divides 952."""

    person_proportion: int = 1
    auction_proportion: int = 3
    bid_proportion: int = 46

    active_people: int = 1000
    """How many of the last people are up to something."""
    in_flight_auctions: int = 100
    """How many of the last auctions are bid on; an auction is open for as long, on average, as so many take to come."""
    person_id_lead: int = 10
    """How far ahead of the last person an id may run: some of these come later."""
    auction_id_lead: int = 10

    hot_seller_ratio: int = 4
    """All but one auction in so many are a hot seller's."""
    hot_auction_ratio: int = 2
    """All but one bid in so many are on the hot auction."""
    hot_bidder_ratio: int = 4
    """All but one bid in so many are a hot bidder's."""
    hot_seller_ratio_2: int = 100
    """One person in so many is a hot seller."""
    hot_auction_ratio_2: int = 100
    hot_bidder_ratio_2: int = 100

    first_person_id: int = 1000
    first_auction_id: int = 1000
    first_category_id: int = 10
    num_categories: int = 5

    us_states: tuple[str, ...] = ("AZ", "CA", "ID", "OR", "WA", "WY")
    us_cities: tuple[str, ...] = (
        "phoenix",
        "los angeles",
        "san francisco",
        "boise",
        "portland",
        "bend",
        "redmond",
        "seattle",
        "kent",
        "cheyenne",
    )
    first_names: tuple[str, ...] = (
        "peter",
        "paul",
        "luke",
        "john",
        "saul",
        "vicky",
        "kate",
        "julie",
        "sarah",
        "deiter",
        "walter",
    )
    last_names: tuple[str, ...] = (
        "shultz",
        "abrams",
        "spencer",
        "white",
        "bartels",
        "walton",
        "smith",
        "jones",
        "noris",
    )

    def __post_init__(self) -> None:
        """Refuse what no stream could follow."""
        for field in fields(self):
            self._check(field.name, getattr(self, field.name))
        if self.out_of_order_group_size % SHUFFLE == 0:
            # Every event of a group would be the same one.
            raise PlanError(
                f"an out_of_order_group_size of {self.out_of_order_group_size} is a multiple of {SHUFFLE}, "
                "by which groups are shuffled; choose another"
            )
        if self.interval.numerator * self.interval.denominator >= 2**62:
            raise PlanError(f"a rate of {self.rate} with a dilation of {self.dilation}; choose fewer decimals")
        if 2 * self.events_in_flight * self.interval >= 2**53:
            raise PlanError(
                f"{self.in_flight_auctions} in_flight_auctions at {self.interval} us an event are open for more than a "
                "century; choose fewer"
            )

    def _check(self, name: str, value: object) -> None:
        if name == "seed" or isinstance(value, bool):
            return
        if isinstance(value, tuple):
            if not value:
                raise PlanError(f"{name} is empty; choose at least one")
        elif name in ("rate", "dilation"):
            if not 0 < value < float("inf"):  # type: ignore[operator]
                raise PlanError(f"{name} is {value}; choose more than 0")
        elif not AT_LEAST.get(name, 0) <= value <= self._limit(name):  # type: ignore[operator]
            raise PlanError(f"{name} is {value}; choose {AT_LEAST.get(name, 0)} to {self._limit(name)}")

    @staticmethod
    def _limit(name: str) -> int:
        return END_OF_TIME // 2 if name == "base_time" else AT_MOST

    @cached_property
    def interval(self) -> Fraction:
        """Microseconds of event time from an event to the next: exact, so that windows begin where they should."""
        return SECOND_US * Fraction(str(self.dilation)) / Fraction(str(self.rate))

    @cached_property
    def end(self) -> int:
        """No event has this number or a later one: its time would not fit."""
        return min(END_OF_TIME, int((END_OF_TIME - self.base_time) / self.interval)) - self.first_event_id

    @property
    def turn(self) -> int:
        """Kinds alternate: so many events, people first, bids last, and again."""
        return self.person_proportion + self.auction_proportion + self.bid_proportion

    def share(self, kind: str) -> float:
        """How many of all events are of a kind, by its name."""
        return 1.0 if kind == "event" else float(getattr(self, f"{kind}_proportion") / self.turn)

    @property
    def events_in_flight(self) -> int:
        """How many events it takes for as many auctions to come as are in flight."""
        return self.in_flight_auctions * self.turn // self.auction_proportion
