"""Would catch a map of bins that shows one where it is not yet, or a size that nobody has measured."""

import pyarrow as pa
import pytest

from megaphone import LocalEngine
from megaphone.bins import WorkerId
from megaphone.configuration import Assignment
from megaphone.control.load import NOTHING, Tally
from megaphone.control.strategies import make_plan
from megaphone.dataflow.operators import Input, key_operator
from megaphone.progress import Time
from megaphone.service import views
from megaphone.service.status import BinsStatus

WORD = pa.schema([("word", pa.string())])
HERE, THERE = Assignment([0, 1, 0, 1]), Assignment([1, 1, 1, 1])


def count(word, _, n):
    return (n or 0) + 1, []


def of_bins(epochs):
    return views.of_bins(BinsStatus.of(epochs))


@pytest.fixture
def engine():
    return LocalEngine(key_operator("count", Input(WORD, ("word",)), count, WORD), workers=2, bins=4)


def test_bin_is_where_the_open_epoch_has_it(engine):
    engine.epoch([])
    engine.migrate(make_plan(HERE, THERE, "fluid"))
    shown = []
    for _ in range(3):
        view = of_bins(engine.epochs)
        shown.append((view["owners"], view["expected"]))
        engine.epoch([])
    assert shown == [([0, 1, 0, 1], [1] * 4), ([1, 1, 0, 1], [1] * 4), ([1] * 4, [1] * 4)]


def test_bin_that_is_to_move_later_is_still_where_it_was(engine):
    engine.epoch([])
    engine.migrate(make_plan(HERE, THERE, "all_at_once", at=Time(5)))
    engine.epoch([])
    assert engine.epochs.configuration.last == THERE
    assert of_bins(engine.epochs)["owners"] == [0, 1, 0, 1]
    for _ in range(4):
        engine.epoch([])
    assert of_bins(engine.epochs)["owners"] == [1] * 4


def test_size_is_told_if_it_was_measured(engine):
    engine.epochs.meter.hear("count", WorkerId(0), NOTHING, Tally.of([0, 2], [10, 0]), 0, 0, 0)
    assert of_bins(engine.epochs)["bytes"] == [10, None, 0, None]


def test_every_bin_has_a_number_in_every_column(engine):
    engine.epoch([("a",), ("b",)])
    view = of_bins(engine.epochs)
    assert {name: len(column) for name, column in view.items() if name != "epoch"} == {
        "owners": 4,
        "expected": 4,
        "records_per_s": 4,
        "bytes": 4,
    }
