"""Would catch a plan that cannot be followed and is accepted, or is read back as another than was saved."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megaphone.bins import BinId, WorkerId
from megaphone.configuration import Assignment, Move
from megaphone.control.plan import Plan, Step, step_to
from megaphone.errors import PlanError
from megaphone.progress import END, Time

HOME = Assignment([0, 0, 0, 0])


def move(bin, source, target):
    return Move(BinId(bin), WorkerId(source), WorkerId(target))


def step(*moves, time=None):
    return Step(tuple(move(*parts) for parts in moves), None if time is None else Time(time))


moves = st.tuples(st.integers(0, 99), st.integers(0, 9), st.integers(0, 9)).map(lambda parts: move(*parts))
steps = st.builds(Step, st.lists(moves).map(tuple), st.none() | st.integers(-(2**63), 2**63 - 2))
plans = st.builds(Plan, st.integers(1, 100), st.lists(steps).map(tuple), st.integers(0, 9), st.text())


@given(plans)
def test_plan_reads_back_as_it_was_saved(plan):
    assert Plan.from_json(plan.to_json()) == plan


def test_plan_survives_a_file(tmp_path):
    plan = Plan(4, (step((1, 0, 1), time=7), step((2, 0, 1), (3, 0, 1))), gap=2, strategy="batched")
    plan.save(tmp_path / "plan.json")
    assert Plan.read(tmp_path / "plan.json") == plan


def test_plan_prints_its_steps():
    plan = Plan(4, (step((1, 0, 1), time=7), step((2, 0, 1), (3, 0, 1))), gap=2, strategy="batched")
    assert str(plan).splitlines() == [
        "batched: 3 bins in 2 steps, 2 epochs apart",
        "  step 0: at 7: 1:0>1",
        "  step 1: 2:0>1 3:0>1",
    ]
    assert str(Plan(4, ())) == "by hand: 0 bins in 0 steps"


def test_check_says_where_the_plan_ends():
    plan = Plan(4, (step((1, 0, 1)), step((1, 1, 2), (2, 0, 1))))
    assert plan.check(HOME, workers=3) == Assignment([0, 2, 1, 0])
    assert Assignment([0, 0, 0, 0]) == HOME


REFUSED = {
    "a gap of -1 epochs; choose 0 or more": Plan(4, (), gap=-1),
    "a gap of 0.5 epochs; choose a whole number, 0 or more": Plan(4, (), gap=0.5),
    "a gap of 1180591620717411303424 epochs; choose 0 to 2147483647": Plan(4, (), gap=2**70),
    "a gap of True epochs; choose a whole number, 0 or more": Plan(4, (), gap=True),
    "a latency target of -1 s; choose more than 0": Plan(4, (), latency_target=-1),
    "a strategy called '\\x1b[2J'; choose at most 200 printable characters": Plan(4, (), strategy="\x1b[2J"),
    "a plan whose steps are <dict>; give a tuple of steps": Plan(4, {}),
    "step 0 is <tuple>; give Step(a tuple of moves)": Plan(4, ((move(1, 0, 1),),)),
    "step 0 moves <tuple>; give Move(bin, source, target)": Plan(4, (Step(((1, 0, 1),)),)),
    "step 0 moves 1.7; choose a whole number, -9223372036854775808 to 9223372036854775807": Plan(
        4, (step((1.7, 0, 1)),)
    ),
    "step 0 moves '1'; choose a whole number, -9223372036854775808 to 9223372036854775807": Plan(
        4, (step((1, 0, "1")),)
    ),
    "step 0 moves True; choose a whole number, -9223372036854775808 to 9223372036854775807": Plan(
        4, (step((1, 0, True)),)
    ),
    "bin about 10**60 of 4; choose 0 to 3": Plan(4, (step((10**60, 0, 1)),)),
    "plan is for 8 bins, the operators have 4": Plan(8, ()),
    "bin 4 of 4; choose 0 to 3": Plan(4, (step((4, 0, 1)),)),
    "bin -1 of 4; choose 0 to 3": Plan(4, (step((-1, 0, 1)),)),
    "bin 1 would go to worker 2, but there are 2 workers; choose 0 to 1": Plan(4, (step((1, 0, 2)),)),
    "bin 1 would go to worker -1, but there are 2 workers; choose 0 to 1": Plan(4, (step((1, 0, -1)),)),
    "bin 1 is on worker 0 by then, not on worker 1": Plan(4, (step((1, 1, 0)),)),
    "bin 1 is on worker 1 by then, not on worker 0": Plan(4, (step((1, 0, 1)), step((1, 0, 1)))),
    "bin 1 is on worker 0 already; leave the move out": Plan(4, (step((1, 0, 0)),)),
    "bin 1 would go to workers 1 and 0 in one step; choose one, or two steps": Plan(4, (step((1, 0, 1), (1, 0, 0)),)),
    "step 2 is at time 6, behind the step before it, at 7": Plan(4, (step(time=7), step(), step(time=6))),
    f"step 0 is at time {END}; choose -9223372036854775808 to 9223372036854775806": Plan(4, (step(time=END),)),
    "step 0 is at time 7.5; choose a whole number, -9223372036854775808 to 9223372036854775806": Plan(
        4, (Step((), 7.5),)
    ),
}


@pytest.mark.parametrize(("reason", "plan"), REFUSED.items(), ids=REFUSED)
def test_plan_that_cannot_be_followed_is_refused(reason, plan):
    with pytest.raises(PlanError) as caught:
        plan.check(HOME, workers=2)
    assert str(caught.value) == reason


def test_long_plans_are_checked_in_one_pass():
    """A copy of the table for every step would be 64 GB here."""
    bins = 2**17
    plan = Plan(bins, tuple(step((bin, 0, 1)) for bin in range(bins)))
    assert plan.check(Assignment([0] * bins), workers=2) == Assignment([1] * bins)


GOOD = {"megaphone_plan": 1, "bins": 4, "steps": [{"time": None, "moves": [[0, 0, 1]]}]}


def with_moves(*moves):
    return json.dumps({**GOOD, "steps": [{"moves": moves}]})


MALFORMED = {
    "{": "not a plan: Expecting",
    "[]": 'not a plan of format 1: no "megaphone_plan": 1 in it',
    "{}": "not a plan of format 1",
    "[" * 100_000: "not a plan: nested too deep",
    json.dumps({**GOOD, "megaphone_plan": 2}): "not a plan of format 1",
    json.dumps({**GOOD, "megaphone_plan": True}): "malformed plan: Expected `int`, got `bool` - at `$.megaphone_plan`",
    json.dumps({"megaphone_plan": 1, "bins": 4}): "malformed plan: Object missing required field `steps`",
    json.dumps({"megaphone_plan": 1, "steps": []}): "malformed plan: Object missing required field `bins`",
    json.dumps({**GOOD, "bins": "4"}): "malformed plan: Expected `int`, got `str` - at `$.bins`",
    json.dumps({**GOOD, "bins": 4.5}): "malformed plan: Expected `int`, got `float` - at `$.bins`",
    json.dumps({**GOOD, "bins": float("inf")}): "not a plan: Infinity is no number",
    json.dumps({**GOOD, "gap": 2**70}): "malformed plan: Expected `int` <= 9223372036854775807 - at `$.gap`",
    json.dumps({**GOOD, "gap": True}): "malformed plan: Expected `int`, got `bool` - at `$.gap`",
    json.dumps({**GOOD, "latency_target": "1"}): "malformed plan: Expected `float | null`, got `str`",
    '{"megaphone_plan": 1, "bins": 4, "steps": [], "latency_target": 1e999}': "not a plan: 1e999 is no number",
    json.dumps({**GOOD, "steps": 3}): "malformed plan: Expected `array`, got `int` - at `$.steps`",
    json.dumps({**GOOD, "steps": [[[0, 0, 1]]]}): "malformed plan: Expected `object`, got `array` - at `$.steps[0]`",
    json.dumps({**GOOD, "steps": [{"time": 1}]}): "malformed plan: Object missing required field `moves`",
    json.dumps({**GOOD, "steps": [{"moves": [], "time": "soon"}]}): "malformed plan: Expected `int | null`, got `str`",
    json.dumps({**GOOD, "steps": [{"moves": [], "tmie": 7}]}): "malformed plan: Object contains unknown field `tmie`",
    '{"megaphone_plan": 1, "bins": 4, "bins": 8, "steps": []}': "not a plan: Object contains field `bins` twice",
    json.dumps({**GOOD, "gaps": 1}): "malformed plan: Object contains unknown field `gaps`",
    with_moves([0, 0]): "malformed plan: Expected `array` of length 3, got 2",
    with_moves([0, 0, None]): "malformed plan: Expected `int`, got `null` - at `$.steps[0].moves[0][2]`",
    with_moves([1.7, 0, 1]): "malformed plan: Expected `int`, got `float` - at `$.steps[0].moves[0][0]`",
    with_moves(["1", 0, 1]): "malformed plan: Expected `int`, got `str` - at `$.steps[0].moves[0][0]`",
    with_moves([1, 0, True]): "malformed plan: Expected `int`, got `bool` - at `$.steps[0].moves[0][2]`",
}


@pytest.mark.parametrize(("text", "reason"), MALFORMED.items(), ids=[text[:99] for text in MALFORMED])
def test_text_that_is_no_plan_is_refused_with_the_reason(text, reason):
    with pytest.raises(PlanError) as caught:
        Plan.from_json(text)
    assert str(caught.value).startswith(reason)


def test_numbers_of_numpy_are_numbers_and_are_saved_as_such():
    numpy = Step((Move(np.int64(1), np.int32(0), np.uint8(1)),), np.int16(7))
    plan = Plan(np.int64(4), (numpy,), np.int8(2), latency_target=np.float32(0.5))
    assert plan.check(HOME, workers=2) == Assignment([0, 1, 0, 0])
    assert Plan.from_json(plan.to_json()) == Plan(4, (step((1, 0, 1), time=7),), 2, latency_target=0.5)


@pytest.mark.parametrize("path", ["nowhere.json", "zero\0.json", "."])
def test_file_that_cannot_be_read_is_refused(tmp_path, path):
    with pytest.raises(PlanError, match=r"^cannot read "):
        Plan.read(f"{tmp_path}/{path}")


def test_step_to_leaves_out_what_is_there_already():
    made = step_to(Assignment([0, 1, 0, 1]), [(0, 1), (1, 1), (2, 2)], Time(9))
    assert made == step((0, 0, 1), (2, 0, 2), time=9)
    with pytest.raises(PlanError, match="bin 4 of 4; choose 0 to 3"):
        step_to(HOME, [(4, 0)])
