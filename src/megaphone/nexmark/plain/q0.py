"""Q0, pass-through: what does it cost to read every event and do nothing with it?

A Spark user selects. There is no shuffle, since Spark needs none; ours has one, because it is what Q0 is to measure.
Events go on at once, without waiting for time to pass them.
"""

from typing import TYPE_CHECKING

from megaphone.nexmark.queries.q0 import COLUMNS
from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(streams: Streams, windows: Windows) -> "DataFrame":
    """Stateless."""
    return streams["event"].select(*COLUMNS)
