"""Would catch a timeline that counts records twice, hides an epoch, mixes up whose time it tells, or grows for ever."""

import pyarrow as pa
import pytest

from megaphone import LocalEngine
from megaphone.configuration import Assignment
from megaphone.control.strategies import make_plan
from megaphone.dataflow.operators import Input, bin_operator, key_operator
from megaphone.service import timeline as module
from megaphone.service.timeline import Timeline, Trigger

WORD = pa.schema([("word", pa.string())])
EVENT = pa.schema([("at", pa.int64())])


def count(word, _, n):
    return (n or 0) + 1, []


def nothing(time, rows, state, notificator):
    return []


@pytest.fixture
def engine():
    return LocalEngine(key_operator("count", Input(WORD, ("word",)), count, WORD), workers=2, bins=4)


@pytest.fixture
def by_event_time():
    input = Input(EVENT, ("at",), time="at", lateness=5)
    return LocalEngine(bin_operator("late", [input], nothing, EVENT, dict), workers=2, bins=4)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands until it is set."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "time", lambda: now[0])
    return now


def run(engine, timeline, *epochs, trigger=lambda epoch: None):
    """Note each epoch as the Spark engine does: when it is opened, before anything of it is reported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.epochs, "open", noted(engine.epochs, timeline, trigger))
        for rows in epochs:
            engine.epoch([(row,) for row in rows])


def noted(epochs, timeline, trigger):
    plain = epochs.open

    def open(epoch, closing=False):
        plan = plain(epoch, closing)
        point = timeline.opened(epochs, plan)
        if point is not None:
            timeline.add(point, trigger(point.epoch))
        return plan

    return open


def test_epoch_is_told_when_the_next_one_begins(engine, clock):
    timeline = Timeline()
    run(engine, timeline, "ab", "abc", "")
    assert timeline.since(-1) == {
        "now_s": 1000.0,
        "epoch": [0, 1],
        "began_s": [1000.0, 1000.0],
        "seconds": [None, None],
        "records": [2, 3],
        "lag": [None, None],
        "bins_moved": [0, 0],
    }
    assert timeline.since(0)["records"] == [3]


def test_how_long_an_epoch_took_is_what_spark_says(engine, clock):
    timeline = Timeline()
    run(engine, timeline, "a", "b", "c", trigger=lambda epoch: Trigger(990.0 + epoch, 0.25 + epoch))
    told = timeline.since(-1)
    assert (told["began_s"], told["seconds"]) == ([990.0, 991.0], [0.25, 1.25])


def test_moves_are_those_of_the_epoch_in_which_they_happened(engine):
    timeline = Timeline()
    run(engine, timeline, "a")
    engine.migrate(make_plan(Assignment.round_robin(4, 2), Assignment([0] * 4), "all_at_once"))
    run(engine, timeline, "a", "a", "a")
    assert timeline.since(-1)["bins_moved"] == [0, 2, 0]


def test_lag_is_behind_the_newest_time_seen(by_event_time):
    timeline = Timeline()
    run(by_event_time, timeline, [100], [107, 103], [90], [])
    assert timeline.since(-1)["lag"] == [5, 5, 5]


def test_lag_is_not_told_before_the_first_record(by_event_time):
    timeline = Timeline()
    run(by_event_time, timeline, [], [100], [])
    assert timeline.since(-1)["lag"] == [None, 5]


def test_what_is_older_than_ten_minutes_is_forgotten(engine, clock):
    timeline = Timeline()
    for _ in range(30):
        clock[0] += 60
        run(engine, timeline, "a")
    assert len(timeline.since(-1)["epoch"]) == 10
    clock[0] += 10_000
    run(engine, timeline, "a")
    assert timeline.since(-1)["epoch"] == []


def test_many_short_epochs_do_not_grow_it(engine, monkeypatch):
    monkeypatch.setattr(module, "MOST", 3)
    timeline = Timeline()
    run(engine, timeline, *"abcdefgh")
    assert timeline.since(-1)["epoch"] == [4, 5, 6]
