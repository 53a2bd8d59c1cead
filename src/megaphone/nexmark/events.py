"""The kinds of events, as Arrow schemas.

A stream of one kind has that kind's columns. A stream of all has the wide schema: a `kind`, and every column once,
null where the kind lacks it; it is flat, so that a query that names its columns is given those and no others.
Times are microseconds, as in Spark: nanoseconds would buy nothing (no window is finer than a second) and cost a
conversion in every query; in 64 bits both outlast any dilation.
Neighbours: generator.py fills them.  Paper: the evaluation, NEXMark.
"""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from megaphone.errors import PlanError

PERSON, AUCTION, BID = range(3)
"""What the column `kind` of the wide schema says."""

TIME = pa.timestamp("us", tz="UTC")

PERSONS = pa.schema(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "email_address": pa.string(),
        "credit_card": pa.string(),
        "city": pa.string(),
        "state": pa.string(),
        "date_time": TIME,
    }
)
AUCTIONS = pa.schema(
    {
        "id": pa.int64(),
        "item_name": pa.string(),
        "description": pa.string(),
        "initial_bid": pa.int64(),
        "reserve": pa.int64(),
        "date_time": TIME,
        "expires": TIME,
        "seller": pa.int64(),
        "category": pa.int64(),
    }
)
BIDS = pa.schema({"auction": pa.int64(), "bidder": pa.int64(), "price": pa.int64(), "date_time": TIME})

NARROW = (PERSONS, AUCTIONS, BIDS)
"""By kind."""

EVENTS = pa.schema(
    {
        "kind": pa.int8(),
        "date_time": TIME,
        **{field.name: field.type for schema in NARROW for field in schema if field.name != "date_time"},
    }
)
"""All kinds together; `id` is a person's or an auction's."""

SCHEMAS = {"person": PERSONS, "auction": AUCTIONS, "bid": BIDS, "event": EVENTS}
"""By what a stream carries; the first three in the order of their kinds."""


def schema_of(name: str, columns: Sequence[str] | None = None) -> pa.Schema:
    """What a stream carries, or those columns of it that are wanted, in the order in which they are named.

    >>> schema_of("bid", ["price", "auction"]).names
    ['price', 'auction']
    """
    if name not in SCHEMAS:
        raise PlanError(f"no kind named '{name}'; choose {_or(SCHEMAS)}")
    whole = SCHEMAS[name]
    if columns is None:
        return whole
    for column in columns:
        if column not in whole.names:
            raise PlanError(f"no column named '{column}'; choose from {', '.join(whole.names)}")
    if len(set(columns)) < max(1, len(columns)):
        raise PlanError(f"columns are '{', '.join(columns)}'; choose at least one, and none twice")
    return pa.schema([whole.field(column) for column in columns])


def _or(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}"
