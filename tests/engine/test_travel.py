"""Would catch a bin that is taken for able to travel by what it was, and word of it that is repeated every epoch."""

import numpy as np

from megaphone.control.travel import Stuck
from megaphone.engine.spark.travel import LATELY, TOLD, Travel


def unknown(travel, touched):
    return travel.unknown(np.arange(len(touched)), np.array(touched)).tolist()


def test_bin_that_nothing_has_changed_since_is_known():
    travel = Travel(4)
    assert unknown(travel, [-1, 0, 5, 6]) == [1, 2, 3]
    travel.could([1, 2, 3], 5)
    assert unknown(travel, [-1, 0, 5, 6]) == [3]
    travel.could_not(2, "why")
    travel.forget(1)
    assert unknown(travel, [-1, 0, 5, 6]) == [1, 2, 3]


def test_bins_that_cannot_travel_are_told_of_when_they_are_others():
    travel = Travel(4)
    assert travel.news() == ()
    assert travel.news() is None
    travel.could_not(2, "why")
    travel.could_not(1, "why not")
    assert travel.news() == (Stuck(1, "why not"), Stuck(2, "why"))
    assert travel.news() is None
    travel.could([2], 7)
    travel.forget(1)
    assert travel.news() == ()


def test_no_more_bins_are_told_of_than_say_something():
    travel = Travel(2 * TOLD)
    for bin in range(2 * TOLD):
        travel.could_not(bin, "why")
    assert len(travel.news()) == TOLD


def test_what_a_bin_could_stands_for_a_while():
    travel = Travel(2)
    assert not travel.could_lately(0, 0)
    travel.could([0], 3)
    assert travel.could_lately(0, 3)
    assert travel.could_lately(0, 2 + LATELY)
    assert not travel.could_lately(0, 3 + LATELY)
    assert not travel.could_lately(1, 3)
