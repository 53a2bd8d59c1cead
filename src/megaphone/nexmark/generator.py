"""The standard NEXMark generator: any event from its number alone.

An event's number is its place in the stream. Its id, by which all else goes, is the same, or with shuffled groups that
of another event of its group: so shuffling changes the order and no event. Shares of a stream can be made anywhere, in
any order, and a replay gives the same rows.
Where the authors' code slips, we do as the standard does: a rate is the whole stream's, not a worker's; auctions are
open for as long as `in_flight_auctions` says, not for 12 hours; no two events share their draws; the kind goes by
the id, as the counting of people and auctions does, also where ids do not begin at 0.
Neighbours: parameters.py, kinds.py, wide.py.  To: source.py.  Paper: the evaluation, NEXMark.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from megaphone.errors import PlanError
from megaphone.nexmark.draws import Int64s
from megaphone.nexmark.events import SCHEMAS, schema_of
from megaphone.nexmark.kinds import KINDS, divide, kinds_of
from megaphone.nexmark.parameters import SHUFFLE, Parameters
from megaphone.nexmark.wide import Wide


@dataclass(frozen=True, slots=True)
class Counts:
    """How many events there are of each kind."""

    persons: int
    auctions: int
    bids: int


@dataclass(frozen=True)
class Nexmark(Parameters):
    """A stream of events.

    Event numbers are whole numbers of any order and any distance; `columns` names those that are wanted, and no other
    is computed.

    >>> nexmark = Nexmark(seed=7)
    >>> nexmark.events(3, 5, columns=["kind", "id", "auction"]).to_pylist()
    [{'kind': 1, 'id': 1002, 'auction': None}, {'kind': 2, 'id': None, 'auction': 1000}]
    >>> nexmark.bids([4, 1_000_000_049], columns=["price"]).to_pydict()
    {'price': [1586, 96832318]}
    >>> nexmark.counts(0, 100)
    Counts(persons=2, auctions=6, bids=92)
    """

    def persons(self, numbers: npt.ArrayLike, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The people among some event numbers."""
        return self._of_kind("person", numbers, columns)

    def auctions(self, numbers: npt.ArrayLike, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The auctions among some event numbers."""
        return self._of_kind("auction", numbers, columns)

    def bids(self, numbers: npt.ArrayLike, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The bids among some event numbers."""
        return self._of_kind("bid", numbers, columns)

    def events(self, first: int, last: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """All events from a number on and before another, in the wide schema."""
        schema = schema_of("event", columns)
        wide = Wide(self, self._ids(np.arange(first, last)))
        return pa.RecordBatch.from_arrays([wide.column(field) for field in schema], schema=schema)

    def records(self, kind: str, first: int, last: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The same as a stream of a kind has it: "person", "auction", "bid", or "event" for all."""
        if kind == "event":
            return self.events(first, last, columns)
        return self._of_kind(kind, np.arange(first, last), columns)

    def counts(self, first: int, last: int) -> Counts:
        """How many events from a number on and before another are of each kind, without generating them."""
        return Counts(*(self._counts_below(last) - self._counts_below(first)).tolist())

    def due_ns(self, time: int) -> int:
        """How long after its start an open-loop stream reaches an event time, in nanoseconds of the wall clock.

        >>> Nexmark(dilation=60).due_ns(60_000_000)
        1000000000
        """
        return int((time - self.base_time) * 1000 / self.dilation)

    def _of_kind(self, name: str, numbers: npt.ArrayLike, columns: Sequence[str] | None) -> pa.RecordBatch:
        schema, kind = schema_of(name, columns), list(SCHEMAS).index(name)
        ids = self._ids(np.asarray(numbers, np.int64))
        found = KINDS[kind](self, ids[kinds_of(self, ids) == kind])
        arrays = [_arrow(getattr(found, field.name), field.type) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _ids(self, numbers: Int64s) -> Int64s:
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= self.end):
            raise PlanError(f"events {numbers.min()} to {numbers.max()}; choose numbers from 0 on and below {self.end}")
        size = self.out_of_order_group_size
        if size > 1:
            groups, offsets = divide(numbers, size)
            numbers = groups * size + offsets * SHUFFLE % size
        return numbers + self.first_event_id

    def _counts_below(self, number: int) -> Int64s:
        """Whole groups in closed form, and of the last group those that come before the number."""
        whole = number - number % self.out_of_order_group_size
        rest = kinds_of(self, self._ids(np.arange(whole, number)))
        ids = self._ids_below(self.first_event_id + whole) - self._ids_below(self.first_event_id)
        return ids + np.bincount(rest, minlength=len(KINDS))

    def _ids_below(self, id: int) -> Int64s:
        turns, offset = divmod(id, self.turn)
        people, auctions = self.person_proportion, self.auction_proportion
        persons_below = turns * people + min(offset, people)
        auctions_below = turns * auctions + min(max(offset - people, 0), auctions)
        return np.array([persons_below, auctions_below, id - persons_below - auctions_below])


def _arrow(values: Int64s | pa.StringArray, type: pa.DataType) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values).view(type)
