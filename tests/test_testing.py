"""Would catch a check that checks nothing: each is given something wrong, and must say so."""

import pyarrow as pa
import pytest

from megaphone.configuration import Assignment, Move
from megaphone.control.plan import Step
from megaphone.control.strategies import all_at_once, fluid
from megaphone.dataflow.operators import Input, bin_operator
from megaphone.testing import check_operator, check_steps, check_strategy, recompute, recompute_machine

SCHEMA = pa.schema([("key", pa.string())])


def forgets_the_last(current, target):
    return iter(list(fluid(current, target))[:-1])


def moves_twice(current, target):
    yield from fluid(current, target)
    yield from list(fluid(current, target))[:1]


def moves_all_bins(current, target):
    yield from (Step((Move(b, current[b], target[b]),)) for b in range(len(current)))


def goes_elsewhere(current, target):
    yield from (Step(tuple(Move(m.bin, m.source, m.target + 1) for m in s.moves)) for s in fluid(current, target))


def moves_nothing(current, target):
    yield from all_at_once(current, target)
    yield Step(())


def new_each_time():
    turns = iter(range(100))

    def strategy(current, target):
        return fluid(current, target) if next(turns) % 2 else all_at_once(current, target)

    return strategy


WRONG = {
    "never happened": forgets_the_last,
    "is wrong, or there twice": moves_twice,
    "0:0>0 is wrong": moves_all_bins,
    "0:0>2 is wrong": goes_elsewhere,
    "moves nothing": moves_nothing,
    "other steps when asked again": new_each_time(),
}


@pytest.mark.parametrize(("complaint", "strategy"), WRONG.items(), ids=WRONG)
def test_wrong_strategy_is_caught(complaint, strategy):
    with pytest.raises(AssertionError, match=complaint):
        check_strategy(strategy)


def test_steps_may_group_moves_as_they_like():
    current, target = Assignment([0, 0, 0]), Assignment([1, 1, 1])
    first, second, third = (step.moves[0] for step in fluid(current, target))
    check_steps(current, target, [Step((third, first)), Step((second,))])


def test_operator_whose_state_does_not_move_is_caught():
    """A fold that keeps state outside of what it is given."""
    aside = {}

    def count(time, data, state, notificator):
        for (key,) in data:
            aside[key] = aside.get(key, 0) + 1
            yield key, aside[key]

    output = pa.schema([("key", pa.string()), ("n", pa.int64())])
    spec = bin_operator("count", (Input(SCHEMA, ("key",)),), count, output, dict)
    with pytest.raises(AssertionError, match="lost by moving"):
        check_operator(spec, [[[("a",)]], [[("a",)]]])


def test_oracle_applies_in_time_order_not_in_order_of_arrival():
    seen = []
    recompute(lambda time, data, state, _: seen.append((time, data)), [[(2, "b"), (1, "a"), (2, "c")]], [lambda _: 0])
    assert seen == [(1, ["a"]), (2, ["b", "c"])]


def test_oracle_gives_a_binary_fold_both_inputs_of_a_time():
    seen = []

    def fold(time, left, right, state, left_later, right_later):
        seen.append((time, left, right))
        for word in left:
            right_later.notify_at(time + 5, word.upper())

    recompute(fold, [[(1, "a"), (6, "b")], [(6, "c")]], [lambda _: 0] * 2)
    assert seen == [(1, ["a"], []), (6, ["b"], ["c", "A"]), (11, [], ["B"])]


def test_oracle_keeps_the_states_of_bins_apart():
    def count(time, data, state, notificator):
        state["n"] = state.get("n", 0) + len(data)
        return [state["n"]]

    assert sorted(recompute(count, [[(1, "a"), (2, "b"), (3, "a")]], [str])) == [(1, 1), (2, 1), (3, 2)]


def test_oracle_forgets_a_key_whose_state_is_none():
    def toggle(key, value, state):
        return (None, ["off"]) if state else (1, ["on"])

    assert recompute_machine(toggle, [(t, "a", None) for t in (3, 1, 2)]) == [(1, "on"), (2, "off"), (3, "on")]
