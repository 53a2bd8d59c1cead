"""NEXMark's queries in Spark's own operators, as a good Spark user writes them: what ours are measured against.

Each file has the question, how a Spark user says it, where it must depart from ours, the code. All run in append mode,
as streams and as batches, and give the rows that the SQL in `queries` gives.

    q0, q1, q2    projections and filters
    q3, q8        stream-stream joins
    q4, q6        averages over closed auctions, which closing makes for both
    q5, q7        window aggregations
    watermark     how late events may be, as Spark has it
    settings      the session that a tuned job would run in

Neighbours: queries/ has the same, migrateable.  Paper: the evaluation, NEXMark, native.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from megaphone.nexmark.plain import q0, q1, q2, q3, q4, q5, q6, q7, q8
from megaphone.nexmark.plain.settings import CONF, IN_MEMORY
from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["CONF", "IN_MEMORY", "PLAIN"]

PLAIN: "dict[str, Callable[[Streams, Windows], DataFrame]]" = {
    "q0": q0.build,
    "q1": q1.build,
    "q2": q2.build,
    "q3": q3.build,
    "q4": q4.build,
    "q5": q5.build,
    "q6": q6.build,
    "q7": q7.build,
    "q8": q8.build,
}
"""By name, as in `QUERIES`; each takes the streams that `Query.read` gives, and has the columns of `Query.output`."""
