"""Q1, currency conversion: what is each bid in euros?"""

from typing import TYPE_CHECKING, Any

import megaphone
from megaphone.dataflow.folds import States, VectorNotificator
from megaphone.dataflow.records import Records
from megaphone.nexmark.queries.query import Query, Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SQL = "SELECT auction, bidder, price * 89 // 100 AS price, date_time FROM bid"

DEPARTS = """\
Nowhere: a dollar is 0.89 euros, in whole numbers, rounded down."""

OUTPUT = "auction long, bidder long, price long, date_time timestamp"


@megaphone.vectorised(ordered=False)
def convert(bids: Records, states: States, notificator: VectorNotificator) -> dict[str, Any]:
    """Every bid with another price."""
    data = bids.data
    same = {name: data.column(name) for name in ("auction", "bidder", "date_time")}
    return {**same, "price": bids.column("price") * 89 // 100}


def build(control: "megaphone.Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Migrateable."""
    return megaphone.unary(
        control,
        streams["bid"],
        "auction",
        convert,
        OUTPUT,
        time="date_time",
        lateness=windows.lateness,
        name="q1",
    )


QUERY = Query("q1", {"bid": ("auction", "bidder", "price", "date_time")}, OUTPUT, SQL, DEPARTS, build, stateful=False)
