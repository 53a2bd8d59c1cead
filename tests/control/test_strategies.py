"""Would catch a plan that leaves a bin behind (as the authors' own generator did), moves one twice, or wastes steps."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megaphone.configuration import Assignment
from megaphone.control.strategies import adaptive, all_at_once, batched, fluid, make_plan, optimized
from megaphone.control.targets import balanced, skewed
from megaphone.errors import PlanError
from megaphone.progress import Time
from megaphone.testing import check_steps, check_strategy

STRATEGIES = {
    "adaptive": adaptive,
    "all_at_once": all_at_once,
    "fluid": fluid,
    "batched": batched(3),
    "optimized": optimized,
}


def migrations(workers, bins):
    owners = st.lists(st.integers(0, workers - 1), min_size=bins, max_size=bins).map(Assignment)
    return st.tuples(owners, owners)


migration = st.builds(migrations, st.integers(1, 7), st.integers(1, 40)).flatmap(lambda pairs: pairs)


def busiest(current, target):
    """The most moves that one worker sends, or receives."""
    moves = list(current.moves_to(target))
    degrees = Counter(("sends", move.source) for move in moves) + Counter(("receives", move.target) for move in moves)
    return max(degrees.values(), default=0)


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_strategy_keeps_its_contract(strategy):
    check_strategy(strategy)


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@given(migration)
def test_strategy_moves_each_bin_once_to_its_target(strategy, migration):
    check_steps(*migration, strategy(*migration))


@given(migration)
def test_all_at_once_is_one_step(migration):
    assert len(list(all_at_once(*migration))) == (migration[0] != migration[1])


@given(migration)
def test_fluid_is_one_bin_a_step_in_bin_order(migration):
    bins = [[move.bin for move in step.moves] for step in fluid(*migration)]
    assert bins == [[move.bin] for move in migration[0].moves_to(migration[1])]


@given(migration, st.integers(1, 50))
def test_batches_are_full_but_for_the_last(migration, k):
    sizes = [len(step.moves) for step in batched(k)(*migration)]
    moves = len(list(migration[0].moves_to(migration[1])))
    assert sizes == [k] * (moves // k) + ([moves % k] if moves % k else [])


@given(migration)
def test_optimized_lets_no_worker_send_or_receive_twice_in_a_step(migration):
    for step in optimized(*migration):
        assert len({move.source for move in step.moves}) == len(step.moves)
        assert len({move.target for move in step.moves}) == len(step.moves)


@given(migration)
def test_optimized_takes_as_many_steps_as_its_busiest_worker_needs(migration):
    assert len(list(optimized(*migration))) == busiest(*migration)


@pytest.mark.parametrize(
    ("workers", "bins", "steps"), [(16, 4096, 128), (4, 4096, 512), (16, 256, 8), (16, 16384, 512)]
)
def test_optimized_needs_as_few_steps_as_the_paper_for_its_own_migration(workers, bins, steps):
    current = Assignment.round_robin(bins, workers)
    assert len(list(optimized(current, skewed(current)))) == steps


def test_optimized_copes_with_many_bins():
    """Colouring move by move would visit each of a million idle pairs; matchings repeat instead."""
    current = Assignment.round_robin(2**14, 16)
    target = Assignment((current.owners * 7 + 3 + current.owners.cumsum() // 1000) % 16)
    check_steps(current, target, optimized(current, target))
    check_steps(current, balanced(current, 3), optimized(current, balanced(current, 3)))


@pytest.mark.parametrize("k", [0, -1])
def test_batches_of_none_are_refused(k):
    with pytest.raises(PlanError, match=f"batches of {k} bins; choose 1 or more"):
        batched(k)
    with pytest.raises(PlanError, match=f"batches of {k} bins; choose 1 or more"):
        make_plan(Assignment([0]), Assignment([1]), "batched", batch=k)


def test_unknown_strategy_is_refused_with_the_known_ones():
    with pytest.raises(PlanError) as caught:
        make_plan(Assignment([0]), Assignment([1]), "fluent")
    assert str(caught.value) == "no strategy named 'fluent'; choose adaptive, all_at_once, batched, fluid or optimized"


def test_target_of_another_size_is_refused():
    with pytest.raises(PlanError, match="target is for 2 bins, the operators have 4"):
        make_plan(Assignment([0] * 4), Assignment([1] * 2))


@pytest.mark.parametrize("name", STRATEGIES)
def test_plan_bears_the_name_of_its_strategy_and_leads_to_the_target(name):
    current, target = Assignment.round_robin(16, 2), Assignment.round_robin(16, 4)
    plan = make_plan(current, target, name, gap=2, **({"batch": 3} if name == "batched" else {}))
    assert (plan.strategy, plan.gap, plan.bins) == (name, 2, 16)
    assert plan.steps == tuple(STRATEGIES[name](current, target))
    assert plan.check(current, workers=4) == target


def test_own_strategy_makes_a_plan_too():
    def backwards(current, target):
        return reversed(list(fluid(current, target)))

    plan = make_plan(Assignment([0, 0]), Assignment([1, 1]), backwards)
    assert plan.strategy == "backwards"
    assert [step.moves[0].bin for step in plan.steps] == [1, 0]


def test_time_is_that_of_the_first_step():
    plan = make_plan(Assignment([0, 0]), Assignment([1, 1]), "fluid", at=Time(40))
    assert [step.time for step in plan.steps] == [40, None]


def test_nothing_to_move_is_a_plan_without_steps():
    assert make_plan(Assignment([0, 1]), Assignment([0, 1]), at=Time(4)).steps == ()
