"""Q8, monitor new users: who joined in a window of twelve hours, and opened an auction in the same one?

A Spark user joins people with auctions by id and window, and keeps a person once, however much they sell: a left semi
join. The window is part of the key and has the watermark, so Spark drops both sides when it has ended. People are told
as soon as both sides are known.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from megaphone.nexmark.plain.watermark import micros, watermarked
from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build(streams: Streams, windows: Windows) -> "DataFrame":
    """One join."""
    window = sf.window("date_time", micros(windows.newcomers)).alias("window")
    persons = watermarked(streams["person"], windows).select("id", "name", window)
    sellers = watermarked(streams["auction"], windows).select(sf.col("seller").alias("id"), window)
    return persons.join(sellers, ["id", "window"], "left_semi").selectExpr("id", "name", "window.start AS window_start")
