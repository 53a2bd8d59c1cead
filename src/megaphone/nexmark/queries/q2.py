"""Q2, selection: what was bid on some auctions, every 123rd?"""

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import megaphone
from megaphone.dataflow.folds import States, VectorNotificator
from megaphone.dataflow.records import Records
from megaphone.nexmark.queries.query import Query, Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SQL = "SELECT auction, price FROM bid WHERE auction % 123 = 0"

DEPARTS = """\
Nowhere. As there, all bids cross the exchange and are chosen behind it: the query is there to show what that costs. (A
user would choose before.)"""

OUTPUT = "auction long, price long"


@megaphone.vectorised(ordered=False)
def select(bids: Records, states: States, notificator: VectorNotificator) -> dict[str, Any]:
    """The bids that are asked for."""
    chosen = pa.array(np.flatnonzero(bids.column("auction") % 123 == 0))
    return {name: bids.data.column(name).take(chosen) for name in ("auction", "price")}


def build(control: "megaphone.Control", streams: Streams, windows: Windows) -> "DataFrame":
    """Migrateable."""
    return megaphone.unary(
        control,
        streams["bid"],
        "auction",
        select,
        OUTPUT,
        time="date_time",
        lateness=windows.lateness,
        name="q2",
    )


QUERY = Query("q2", {"bid": ("auction", "price", "date_time")}, OUTPUT, SQL, DEPARTS, build, stateful=False)
