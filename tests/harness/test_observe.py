"""Would catch records that are lost from the latency: those of a restart, those skipped, those not done at the end."""

import json
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace

from megaphone.harness.observe import Observer

START_NS = 1_000_000_000_000_000_000
RATE, PRELOAD = 1000, 50


def query(*epochs):
    """A query that tells of epochs: number, first and last record, when it began, how many milliseconds it took."""
    told = [SimpleNamespace(json=partial(json.dumps, progress(*epoch))) for epoch in epochs]
    return SimpleNamespace(_jsq=SimpleNamespace(recentProgress=lambda: told))


def progress(batch, start, end, began_s, took_ms):
    begun = datetime.fromtimestamp(START_NS / 1e9 + began_s, UTC).isoformat(timespec="milliseconds")
    return {
        "batchId": batch,
        "timestamp": begun.replace("+00:00", "Z"),
        "durationMs": {"triggerExecution": took_ms, "addBatch": took_ms, "commitOffsets": 0},
        "sources": [
            {"startOffset": None, "endOffset": None},
            {
                "startOffset": {"record": start, "start_ns": START_NS},
                "endOffset": {"record": end, "start_ns": START_NS if end > PRELOAD else 0},
            },
        ],
    }


def test_preload_is_left_out_and_every_record_after_it_counts():
    observer = Observer(query((0, 0, 50, 0, 100), (1, 50, 1050, 1, 200), (2, 1050, 2050, 2, 200)), RATE, PRELOAD)
    observer.look()
    observer.look()
    assert sum(map(len, observer.timeline.intervals.values())) == 2000
    assert (observer.done, observer.skipped) == (2000, 0)
    assert observer.timeline.between(0, 2 * START_NS).max == 1_200_000_000


def test_restart_goes_on_with_the_same_schedule():
    observer = Observer(query((1, 50, 1050, 1, 200)), RATE, PRELOAD)
    observer.look()
    observer.follow(query((3, 1050, 21_050, 21, 1000)))
    observer.look()
    assert sum(map(len, observer.timeline.intervals.values())) == 21_000
    # The first record that was due in the outage waited for all of it.
    assert observer.timeline.between(0, 2 * START_NS).max == 21_000_000_000


def test_records_that_no_epoch_had_are_counted():
    observer = Observer(query((1, 50, 1050, 1, 200), (3, 1250, 2050, 2, 200)), RATE, PRELOAD)
    observer.look()
    assert observer.skipped == 200


def test_records_not_done_at_the_end_are_as_late_as_they_are():
    observer = Observer(query((1, 50, 1050, 1, 200)), RATE, PRELOAD)
    observer.look()
    assert observer.close(START_NS / 1e9 + 1.0) == 0
    assert observer.close(START_NS / 1e9 + 3.0) == 2000
    assert sum(map(len, observer.timeline.intervals.values())) == 3000
    # The schedule began long ago, and now is when they are counted.
    assert observer.timeline.between(0, 2 * START_NS).max > 10**15
