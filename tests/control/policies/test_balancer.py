"""Would catch a balancer that chases noise or a swing, moves state for nothing, or leaves a worker overloaded."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from megaphone.configuration import Assignment
from megaphone.control.balance import imbalance
from megaphone.control.policies.balancer import GAIN, Balancer
from megaphone.control.policies.observation import Observation
from megaphone.errors import PlanError

WORKERS, EVERY_S, COOLDOWN_S, TOLERANCE = 4, 2.0, 30.0, 0.15


def observed(owners, load, sizes=None, look=0, workers=WORKERS, **more):
    """What a policy sees at a look, every two seconds."""
    load = np.asarray(load, np.float64)
    sizes = np.ones(len(load), np.int64) if sizes is None else np.asarray(sizes)
    seen = Observation(look * EVERY_S, look, workers, False, Assignment(owners), load * 1e4, load, sizes, {})
    return replace(seen, **more)


@st.composite
def loaded(draw):
    """Owners and loads; some loads are skewed as words are."""
    bins = draw(st.integers(2, 40))
    owners = draw(st.lists(st.integers(0, WORKERS - 1), min_size=bins, max_size=bins))
    load = draw(st.lists(st.floats(0.01, 1) | st.sampled_from([0.1, 5.0]), min_size=bins, max_size=bins))
    return owners, np.array(load)


def followed(balancer, owners, loads, workers=WORKERS):
    """Every wish is granted at once: when there was one, and where the bins are in the end."""
    acted = []
    for look, load in enumerate(loads):
        seen = observed(owners, load, look=look, workers=workers)
        wish = balancer.decide(seen)
        if wish is not None:
            acted.append(seen.at_s)
            owners = wish.target.owners.tolist()
    return acted, owners


@given(loaded(), st.integers(0, 2**32))
@example(([0, 0, 1, 1, 2, 0], np.array([5, 5, 5, 5, 5, 0.2])), 0)
def test_stationary_load_with_noise_is_settled_after_a_few_migrations(drawn, seed):
    owners, load = drawn
    waves = np.random.default_rng(seed).uniform(0.985, 1.015, (100, len(load)))
    acted, owners = followed(Balancer(TOLERANCE), owners, load * waves)
    assert len(acted) <= 3
    # A gain that is barely worth a migration may be seen late; the load is even soon after.
    assert not acted or acted[-1] - acted[0] <= 50 * EVERY_S
    # Even but for the noise, or off by a bin that is too heavy.
    mean = load.sum() / WORKERS
    assert np.bincount(owners, load).max() <= 1.05 * max((1 + TOLERANCE) * mean, mean + load.max())


@settings(max_examples=40)
@given(loaded(), st.integers(0, 2**32), st.integers(1, 30))
def test_swing_is_not_chased_within_the_cooldown(drawn, seed, period):
    owners, load = drawn
    other = np.random.default_rng(seed).permutation(load)
    loads = [load if look // period % 2 else other for look in range(300)]
    acted, _ = followed(Balancer(TOLERANCE, patience=1, cooldown=COOLDOWN_S), owners, loads)
    check_pauses(acted)
    assert len(acted) <= 6


@settings(max_examples=40)
@given(st.lists(loaded().map(lambda drawn: np.resize(drawn[1], 16)), min_size=1, max_size=120))
def test_no_load_whatever_makes_it_act_within_the_cooldown(loads):
    acted, _ = followed(Balancer(TOLERANCE, patience=1, cooldown=COOLDOWN_S), [0] * 16, loads)
    check_pauses(acted)


def check_pauses(acted):
    gaps = np.diff(acted)
    assert (gaps >= COOLDOWN_S).all()
    # A need that comes back soon doubles the pause.
    assert (gaps[:-1] + gaps[1:] >= 3 * COOLDOWN_S).all()


@given(loaded())
def test_wish_evens_the_load_by_something_worth_it(drawn):
    owners, load = drawn
    before = imbalance(Assignment(owners), load, WORKERS)
    balancer = Balancer(TOLERANCE, patience=1)
    wish = balancer.decide(observed(owners, load))
    (decision,) = balancer.history
    assert decision.wish == wish
    assert (wish is None) == (decision.reason.startswith("the busiest") or "brings nothing" in decision.reason)
    if wish is not None:
        assert before > 1 + TOLERANCE
        assert imbalance(wish.target, load, WORKERS) <= before - GAIN * TOLERANCE
    elif decision.reason.startswith("the busiest"):
        assert before <= 1 + TOLERANCE


def test_need_must_be_seen_several_times_in_a_row():
    balancer = Balancer(patience=3)
    uneven, evened = [0.5, 0.5, 0, 0], [0.25] * 4
    looks = [uneven, uneven, evened, evened, evened, uneven, uneven, uneven, uneven]
    wishes = [balancer.decide(observed([0, 0, 1, 1], load, look=n, workers=2)) for n, load in enumerate(looks)]
    assert [wish is not None for wish in wishes].index(True) == 7
    assert balancer.history[0].reason == "worker 0 has 2.00 times the mean load; seen 2 of 3 times"


def test_same_epoch_is_no_second_sign():
    balancer = Balancer(patience=2)
    for _ in range(5):
        assert balancer.decide(observed([0, 0], [1, 1], look=1)) is None
    assert balancer.history[-1].times == 5
    assert balancer.decide(observed([0, 0], [1, 1], look=2)) is not None


def test_nothing_is_wished_while_bins_move():
    balancer = Balancer(patience=1)
    assert balancer.decide(observed([0, 0], [1, 1], moving=True)) is None
    assert balancer.history[-1].reason == "a migration is under way"


def test_hot_bin_that_cannot_be_split_is_named():
    balancer = Balancer(patience=1)
    assert balancer.decide(observed([0, 1, 1, 1], [0.9, 0.1, 0.1, 0.1], workers=2)) is None
    assert balancer.history[-1].reason.endswith("the heaviest, 0, has 1.50 times the mean")


def test_of_two_ways_the_one_with_less_state_is_taken():
    seen = observed([0, 0, 0, 1], [0.4] * 4, sizes=[900, 30, 500, 1], workers=2)
    assert Balancer(patience=1).decide(seen).target == Assignment([0, 1, 0, 1])


def test_time_counts_where_it_is_known_else_records():
    # Bin 0 has few records, but they take long.
    owners, records, work = [0, 0, 1], np.array([1.0, 1, 2]), np.array([0.5, 0.3, 0.2])
    seen = observed(owners, work, workers=2, records=records)
    by_time = Balancer(patience=1).decide(seen)
    assert by_time.target == Assignment([0, 1, 1])
    assert Balancer(patience=1, by="records").decide(seen) is None
    untimed = replace(observed([0, 0, 1], [0, 0, 0], workers=2), records=np.array([5.0, 5, 0]))
    assert Balancer(patience=1).decide(untimed).target.owners.tolist() in ([0, 1, 1], [1, 0, 1])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tolerance": 0}, "a tolerance of 0; choose more than 0"),
        ({"patience": 0}, "a patience of 0 times; choose 1 to 1000000"),
        ({"patience": 2.0}, "a patience of 2.0 times; choose a whole number"),
        ({"tolerance": True}, "a tolerance of True; choose a number"),
        ({"cooldown": -1}, "a cooldown of -1 s; choose 0 or more"),
        ({"by": "luck"}, "balance by 'luck'; choose time or records"),
    ],
)
def test_nonsense_is_refused(options, reason):
    with pytest.raises(PlanError, match=reason):
        Balancer(**options)
