"""Would catch a frontier off by one: a time applied while it can still arrive, or held for ever."""

from hypothesis import given
from hypothesis import strategies as st

from megaphone.progress import BEGIN, CLOSED, END, OPEN, Frontier, Time

times = st.integers(BEGIN, END - 1).map(Time)
frontiers = st.integers(BEGIN, END).map(Time).map(Frontier)


def test_six_is_in_advance_of_five():
    assert Frontier(Time(5)).less_equal(Time(6))
    assert Frontier(Time(5)).less_equal(Time(5))
    assert not Frontier(Time(5)).less_equal(Time(4))


def test_frontier_is_not_less_than_its_own_bound():
    assert not Frontier(Time(5)).less_than(Time(5))
    assert Frontier(Time(5)).less_than(Time(6))


@given(times)
def test_everything_can_arrive_at_an_open_frontier_and_nothing_at_a_closed_one(time):
    assert OPEN.less_equal(time)
    assert not CLOSED.less_equal(time)
    assert not CLOSED.less_than(time)


def test_nothing_arrives_past_the_end():
    assert not CLOSED.less_equal(END)


@given(frontiers, times)
def test_less_than_implies_less_equal(frontier, time):
    assert frontier.less_equal(time) or not frontier.less_than(time)


def test_frontier_prints_what_it_means():
    assert [str(OPEN), str(Frontier(Time(42))), str(CLOSED)] == ["open", "42", "closed"]
