"""Watermarks: how late events may be, as Spark has it.

Spark counts watermarks in whole milliseconds, rounded down, and drops what is at one as well as what is before it. Ours
is in microseconds and keeps what is at it. So Spark is told one millisecond more than the lateness: nothing is dropped
that ours would take, and answers come up to two milliseconds of event time later.
Of two streams, the watermark is the one that is behind: Spark's own rule, and ours.
"""

from typing import TYPE_CHECKING

from megaphone.nexmark.queries.query import Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MILLISECOND_US = 1000


def delay_ms(lateness: int) -> int:
    """The least delay with which no event is late that is at most so many microseconds behind the latest.

    >>> delay_ms(0), delay_ms(999), delay_ms(1000)
    (1, 1, 2)
    """
    return lateness // MILLISECOND_US + 1


def watermarked(frame: "DataFrame", windows: Windows) -> "DataFrame":
    """Events that may be as late as the windows say."""
    return frame.withWatermark("date_time", f"{delay_ms(windows.lateness)} milliseconds")


def micros(length: int) -> str:
    """A length of time as Spark reads it.

    >>> micros(16666)
    '16666 microseconds'
    """
    return f"{length} microseconds"
