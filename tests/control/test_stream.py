"""Would catch a move that happens before S has applied everything earlier, or a bin that is not held until then."""

from megaphone.bins import BinId, WorkerId
from megaphone.configuration import Move
from megaphone.control.stream import Pending, Reconfiguration
from megaphone.progress import CLOSED, OPEN, Frontier, Time


def move(bin, source, target):
    return Move(BinId(bin), WorkerId(source), WorkerId(target))


def pending(*reconfigurations):
    made = Pending()
    for time, *moves in reconfigurations:
        made.add(Reconfiguration(Time(time), tuple(move(*parts) for parts in moves)))
    return made


def happened(made, time):
    return list(made.on_output_frontier(Frontier(Time(time))))


def test_moves_happen_when_the_output_frontier_has_reached_their_time():
    made = pending((5, (0, 0, 1)))
    assert happened(made, 4) == []
    assert (len(made), made.next_time) == (1, 5)
    assert happened(made, 5) == [move(0, 0, 1)]
    assert (len(made), made.next_time) == (0, None)


def test_several_reconfigurations_happen_together_once_all_are_reached():
    made = pending((5, (0, 0, 1)), (6, (1, 0, 1)), (9, (2, 0, 1)))
    assert happened(made, 8) == [move(0, 0, 1), move(1, 0, 1)]


def test_bin_moves_once_at_a_time():
    made = pending((5, (0, 0, 1)), (6, (0, 1, 2), (1, 0, 1)), (7, (2, 0, 1)))
    assert happened(made, 9) == [move(0, 0, 1)]
    assert happened(made, 9) == [move(0, 1, 2), move(1, 0, 1), move(2, 0, 1)]


def test_bins_are_held_from_the_first_time_they_are_to_leave():
    made = pending((5, (0, 0, 1), (1, 0, 1)), (6, (0, 1, 2), (2, 0, 1)))
    assert made.holds() == {0: 5, 1: 5, 2: 6}
    happened(made, 5)
    assert made.holds() == {0: 6, 2: 6}


def test_open_frontier_lets_nothing_happen_and_a_closed_one_everything():
    made = pending((-(2**62), (0, 0, 1)), (2**62, (1, 0, 1)))
    assert list(made.on_output_frontier(OPEN)) == []
    assert len(list(made.on_output_frontier(CLOSED))) == 2


def test_reconfiguration_without_moves_happens_too():
    made = pending((5,))
    assert happened(made, 5) == []
    assert len(made) == 0
