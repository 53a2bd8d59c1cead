"""Would catch a bin that is not asked for, or asked for where it is not, and an inquiry that goes on for ever."""

from megaphone.bins import BinId, WorkerId
from megaphone.configuration import Assignment, Move
from megaphone.control.travel import Inquiry, Question, Stuck

HERE = Assignment([0, 0, 1, 1])
NO = Stuck(0, "no")


def inquiry(*moves, operators=("a", "b")):
    return Inquiry((Move(BinId(bin), WorkerId(0), WorkerId(2)) for bin in moves), HERE, operators)


def test_each_bin_is_asked_for_once_where_it_is_and_for_each_operator():
    asked = inquiry(3, 0, 1, 3)
    expected = [Question(0, "a", [0, 1]), Question(0, "b", [0, 1]), Question(1, "a", [3]), Question(1, "b", [3])]
    assert (asked.questions, asked.unknown) == (expected, 6)


def test_worker_is_asked_again_for_what_it_does_not_know():
    asked = inquiry(0, 1, operators=["a"])
    (question,) = asked.questions
    again = asked.hear(question, [], [1])
    assert (again, asked.unknown, asked.obstacle) == (Question(0, "a", [1]), 1, None)
    assert asked.hear(again, [], [1]) == again
    assert asked.hear(again, [], []) is None
    assert (asked.unknown, asked.obstacle) == (0, None)


def test_nothing_more_is_asked_when_a_bin_cannot_travel():
    asked = inquiry(0, 1, 2, operators=["a"])
    first, other = asked.questions
    assert asked.hear(first, [NO], [1]) is None
    assert asked.hear(other, [], [2]) is None
    assert asked.obstacle == "state of operator a in bin 0 on worker 0 cannot travel: no; keep only what can be pickled"


def test_plan_without_moves_asks_nothing():
    assert inquiry().questions == []
