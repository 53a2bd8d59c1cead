"""Would catch a number that is taken for another one, a limit that does not hold, and a refusal that cannot be read."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from megaphone import checks
from megaphone.errors import PlanError


class Index:
    """Not a number of Python's, but as good as one."""

    def __index__(self):
        return 3


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3), np.array(3), Index()])
def test_whole_number_of_any_make_becomes_pythons_own(value):
    found = checks.whole(value, "{} workers", 1)
    assert (found, type(found)) == (3, int)


NO_WHOLE_NUMBERS = [
    *(True, False, np.True_, 3.0, 7.5, np.float64(3), float("nan"), Decimal(3), Fraction(3)),
    *("3", b"3", None, [3], {3}, (3,), object(), 3j, np.array([3])),
]


@pytest.mark.parametrize("value", NO_WHOLE_NUMBERS, ids=lambda value: type(value).__name__)
def test_what_is_no_whole_number_is_refused(value):
    for check in (checks.gap, checks.batch, checks.slots, checks.time):
        with pytest.raises(PlanError, match="; choose a whole number, "):
            check(value)
    with pytest.raises(PlanError, match=r"^.* workers asked for; choose a whole number, 1 or more$"):
        checks.worker_count(value, bins=16)


HUGE = 99999999999999999999
BEYOND = {
    checks.gap: (-1, 2**31, 2**70, 10**5000),
    checks.batch: (0, -1, 2**63),
    checks.slots: (0, -1, 2**16 + 1, HUGE),
    checks.time: (-(2**63) - 1, 2**63 - 1, HUGE),
    checks.latency_target: (0, -1, -0.5, 1e10, 10**400, float("inf"), float("nan"), True, "1", None, 1j),
    checks.part: (-0.1, 1.1, float("nan"), True, "0.5"),
    checks.not_negative: (-0.1, 1e10, float("inf"), float("nan"), "1"),
}


@pytest.mark.parametrize("check", BEYOND)
def test_what_is_out_of_range_is_refused_in_a_short_sentence(check):
    about = ["a value of {}"] if check in (checks.part, checks.not_negative) else []
    for value in BEYOND[check]:
        with pytest.raises(PlanError) as refused:
            check(value, *about)
        sentence = str(refused.value)
        assert "; choose " in sentence
        assert len(sentence) < 200
        assert sentence.isprintable()


@pytest.mark.parametrize(
    ("workers", "sentence"),
    [
        (0, "0 workers asked for; choose 1 or more"),
        (-1, "-1 workers asked for; choose 1 or more"),
        (17, "17 workers asked for, but there are 16 bins, one at least for each; choose 1 to 16"),
        (HUGE, f"{HUGE} workers asked for, but there are 16 bins, one at least for each; choose 1 to 16"),
        (10**4000, "about 10**4000 workers asked for, but there are 16 bins, one at least for each; choose 1 to 16"),
    ],
)
def test_there_are_at_most_as_many_workers_as_bins(workers, sentence):
    with pytest.raises(PlanError) as refused:
        checks.worker_count(workers, bins=16)
    assert str(refused.value) == sentence
    assert checks.worker_count(16, bins=16) == 16


@pytest.mark.parametrize("name", ["", "a b", "a__b", "_a", "../a", "a\n", "\ud800", "é", 7, None, b"a", "a" * 101])
def test_name_that_cannot_be_part_of_a_file_name_is_refused(name):
    with pytest.raises(PlanError, match=r"^control name "):
        checks.name(name, "control")
    assert checks.name("c1_Words", "control") == "c1_Words"


TARGETS = {
    "a target of 'abc'; give a worker for every bin, or some bins and their workers": "abc",
    "a target of <set>; give a worker for every bin, or some bins and their workers": {0, 1, 2, 3},
    "a target of 7; give a worker for every bin, or some bins and their workers": 7,
    "a map of 3 owners for 4 bins; give one owner for each bin": [0, 0, 0],
    "a map of more than 4 owners for 4 bins; give one owner for each bin": iter(lambda: 0, 1),
    "bin 1 on worker 1.7; choose a whole number, 0 or more": [0, 1.7, 0, 0],
    "bin 1 on worker -1; choose 0 or more": [0, -1, 0, 0],
    "bin 3 on worker True; choose a whole number, 0 or more": {3: True},
    "bin 1.7 of 4; choose a whole number, 0 to 3": {1.7: 1},
    "bin True of 4; choose a whole number, 0 to 3": {True: 1},
    "bin '1' of 4; choose a whole number, 0 to 3": {"1": 1},
    "bin 4 of 4; choose 0 to 3": {4: 1},
}


@pytest.mark.parametrize(("sentence", "target"), TARGETS.items(), ids=TARGETS)
def test_target_that_is_none_is_refused(sentence, target):
    with pytest.raises(PlanError) as refused:
        checks.owner_pairs(target, bins=4)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("text", ["", "1.0", "1e3", " 1", "1_0", "+1", "--1", "\u0663", "one", "9" * 5000, "1\n"])
def test_text_that_is_no_number_is_refused(text):
    with pytest.raises(PlanError, match=r"^since=.*; choose a whole number$"):
        checks.numeral(text, "since={}")
    assert (checks.numeral("-7", "{}"), checks.numeral(str(HUGE), "{}")) == (-7, HUGE)


def test_what_would_be_dropped_is_refused_by_name():
    checks.unused("a plan", {"gap": None, "strategy": None})
    with pytest.raises(PlanError, match=r"^a plan has no use for gap and at; leave them out$"):
        checks.unused("a plan", {"gap": 0, "strategy": None, "at": 3})


@pytest.mark.parametrize("value", ["luck", True, None, ["load"], b"load"])
def test_choice_that_is_none_is_refused(value):
    with pytest.raises(PlanError, match=r"^balance by .*; choose load or bins$"):
        checks.choice(value, "balance by {}", ("load", "bins"))


def test_target_of_numpy_is_one():
    assert checks.owner_pairs(np.array([1, 0]), bins=2) == [(0, 1), (1, 0)]
    assert checks.owner_pairs({np.int64(1): np.int8(0)}, bins=2) == [(1, 0)]
