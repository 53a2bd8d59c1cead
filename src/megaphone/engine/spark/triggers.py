"""What Spark says of an epoch: when its trigger fired, and how long until the epoch was committed.

Neighbours: run.py asks when an epoch is over, service/timeline.py remembers it.
"""

from datetime import datetime
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from megaphone.service.timeline import Trigger


def trigger_of(query: StreamingQuery, epoch: int) -> Trigger | None:
    """The trigger of one of the last epochs; none if Spark has nothing to say of it."""
    # Not `query.lastProgress`: it reads every field of every source, a call to the JVM for each.
    last = query._jsq.lastProgress()
    if last is None or last.batchId() == epoch:
        return _trigger(last)
    # Triggers without an epoch have come since, or we are late.
    return next((_trigger(one) for one in reversed(query._jsq.recentProgress()) if one.batchId() == epoch), None)


def _trigger(progress: Any) -> Trigger | None:
    took_ms = None if progress is None else progress.durationMs().get("triggerExecution")
    if took_ms is None:
        return None
    return Trigger(datetime.fromisoformat(progress.timestamp()).timestamp(), took_ms / 1000)
