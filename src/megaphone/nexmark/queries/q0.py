"""Q0, pass-through: what does it cost to send every event through the exchange and do nothing with it?"""

from typing import TYPE_CHECKING

import pyarrow as pa

import megaphone
from megaphone.dataflow.folds import States, VectorNotificator
from megaphone.dataflow.records import Records
from megaphone.nexmark.events import EVENTS
from megaphone.nexmark.queries.query import Query, Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SQL = "SELECT * FROM event"

DEPARTS = """\
Nowhere. An event's id is a person's or an auction's own, or of a bid its auction: Spark's hash of two columns passes
over the one that is null, so it is the id's. Events go on when time has passed them, as in every other query: the last
ones wait for the next epoch."""

COLUMNS = tuple(EVENTS.names)
OUTPUT = (
    "kind tinyint, date_time timestamp, id long, name string, email_address string, credit_card string, city string, "
    "state string, item_name string, description string, initial_bid long, reserve long, expires timestamp, "
    "seller long, category long, auction long, bidder long, price long"
)


@megaphone.vectorised(ordered=False)
def pass_on(events: Records, states: States, notificator: VectorNotificator) -> pa.RecordBatch:
    """The events as they are."""
    return events.data


def build(control: "megaphone.Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Migrateable."""
    return megaphone.unary(
        control,
        streams["event"],
        ["id", "auction"],
        pass_on,
        OUTPUT,
        time="date_time",
        lateness=windows.lateness,
        name="q0",
    )


QUERY = Query("q0", {"event": COLUMNS}, OUTPUT, SQL, DEPARTS, build, stateful=False)
