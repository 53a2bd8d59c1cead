"""Several operators in one query.

Would catch a frontier that does not travel with the data (records that wait an epoch too long, or count as late), a lag
that is none, and operators that move together when they should not, or apart when they should not.
"""

import os
from collections import Counter

import pytest

import megaphone

BINS, KEYS = 8, 24


def count(time, data, state, notificator):
    """A running count of each key; with its time, so that the next operator can use it."""
    for row in data:
        state[row.k] = state.get(row.k, 0) + 1
        yield row.k, time, state[row.k], os.getpid()


def largest(time, data, state, notificator):
    """The largest count of a time among a bin's keys so far."""
    for row in data:
        state["n"] = max(state.get("n", 0), row.n)
    yield from ((row.k, time, row.n, state["n"], row.pid, os.getpid()) for row in data)


COUNTS, LARGEST = "k long, t long, n long, pid int", "k long, t long, n long, most long, first int, second int"


def chain(source, first, second, clock):
    """Two operators, the second on the counts of the first."""
    time = {} if clock == "epoch" else {"time": "t"}
    counts = megaphone.unary(first, source.frame, "k", count, COUNTS, **time)
    return megaphone.unary(second, counts.where("n > 0"), "n", largest, LARGEST, **time)


def pids(control) -> dict[int, int]:
    """The worker of each process."""
    (status,) = control.status()
    return {worker.pid: worker.worker for worker in status.workers}


def owners(control) -> list[int]:
    """Who has which bin."""
    (status,) = control.status()
    return status.assignment.owners.tolist()


@pytest.mark.parametrize("clock", ["epoch", "column"])
def test_chain_adds_no_epoch_of_delay(spark, feed, start, clock):
    control = megaphone.Control(spark, workers=2, bins=BINS)
    source = feed("k long, t long")
    running = start(chain(source, control, control, clock))
    for number in range(4):
        source.send([(key, 10 * number + at) for at in (0, 5) for key in range(KEYS)])
    running.settle()
    migration = control.migrate([1] * BINS, "all_at_once").wait(120)
    for number in range(4, 7):
        source.send([(key, 10 * number + at) for at in (0, 5) for key in range(KEYS)])
    running.settle()
    assert migration.bins_moved == BINS // 2
    last = -1
    for epoch, read in sorted(running.read(source).items()):
        # By epoch, all of it; by column, what is before the largest time so far, and that at once.
        due = [(k, epoch) for k, _ in read]
        if clock == "column":
            frontier = max([last, *(t for _, t in read)])
            due = [(k, t) for k, t in ((k, t) for k, t in read if t < frontier)]
            due += [(k, last) for k in range(KEYS)] if 0 <= last < frontier else []
            last = frontier
        assert Counter((row.k, row.t) for row in running.by_epoch[epoch]) == Counter(due)
    (status,) = control.status()
    assert sum(status.late.values()) == 0


def test_operators_on_one_control_move_together(spark, feed, start):
    control = megaphone.Control(spark, workers=2, bins=BINS, assignment=[0] * BINS)
    source = feed("k long, t long")
    running = start(chain(source, control, control, "epoch"))
    source.send([(key, 0) for key in range(KEYS)])
    running.settle()
    control.migrate([1] * BINS, "all_at_once").wait(120)
    source.send([(key, 1) for key in range(KEYS)])
    running.settle()
    worker = pids(control)
    where = Counter((row.n, worker[row.first], worker[row.second]) for row in running.outputs)
    assert where == {(1, 0, 0): KEYS, (2, 1, 1): KEYS}
    # The second operator's state came along.
    assert {row.most for row in running.outputs if row.n == 2} == {2}


def test_operators_with_their_own_controls_move_apart(spark, feed, start):
    first, second = (megaphone.Control(spark, workers=2, bins=BINS, assignment=[0] * BINS) for _ in range(2))
    source = feed("k long, t long")
    running = start(chain(source, first, second, "column"))
    source.send([(key, 0) for key in range(KEYS)], [(0, 10)])
    running.settle()
    second.migrate([1] * BINS, "all_at_once").wait(120)
    assert (owners(first), owners(second)) == ([0] * BINS, [1] * BINS)
    source.send([(key, 20) for key in range(KEYS)], [(0, 30)])
    running.settle()
    first.migrate([1] * BINS, "fluid").wait(120)
    source.send([(key, 40) for key in range(KEYS)], [(0, 50)])
    running.settle()
    workers = [pids(first), pids(second)]
    assert not workers[0].keys() & workers[1].keys()
    where = {(row.t, workers[0][row.first], workers[1][row.second]) for row in running.outputs if row.k != 0}
    assert where == {(0, 0, 0), (20, 0, 1), (40, 1, 1)}
    assert sorted(row.n for row in running.outputs if row.k == 1) == [1, 2, 3]


def test_operator_that_was_built_and_never_started_holds_nothing_up(spark, feed, start):
    control = megaphone.Control(spark, workers=2, bins=BINS)
    source = feed("k long, t long")
    megaphone.unary(control, source.frame, "k", count, COUNTS, time="t")
    running = start(megaphone.unary(control, source.frame, "k", count, COUNTS, time="t", name="second"))
    source.send([(key, 0) for key in range(KEYS)], [(0, 10)])
    running.settle()
    assert control.migrate([1] * BINS, "all_at_once").wait(120).phase == "done"
    (status,) = control.status()
    assert status.applied == {"second": KEYS}


def test_operators_that_share_a_control_share_a_clock(spark, feed):
    control = megaphone.Control(spark, workers=2, bins=BINS)
    source = feed("k long, t long")
    counts = megaphone.unary(control, source.frame, "k", count, COUNTS)
    with pytest.raises(megaphone.PlanError, match=r"tell time differently: .* give each clock its own control"):
        megaphone.unary(control, counts, "n", largest, LARGEST, time="t")


def test_operator_by_column_behind_one_by_epoch_keeps_its_own_time(spark, feed, start):
    first, second = (megaphone.Control(spark, workers=2, bins=BINS) for _ in range(2))
    source = feed("k long, t long")

    def stamp(key, t, n):
        return None, [(key, t, 1, 0)]

    stamped = megaphone.state_machine(first, source.frame, "k", stamp, COUNTS)
    running = start(megaphone.unary(second, stamped, "n", largest, LARGEST, time="t", lateness=100))
    source.send([(key, 1000 + key) for key in range(KEYS)], [(0, 1110)], [(5, 1008), (0, 2000)])
    running.settle()
    (status,) = second.status()
    assert Counter(row.t for row in running.outputs) == Counter([*range(1000, 1024), 1110])
    assert sum(status.late.values()) == 1


def test_lag_does_not_count_what_is_postdated(spark, feed, start):
    control = megaphone.Control(spark, workers=2, bins=BINS)
    source = feed("k long, t long")

    def ahead(time, data, state, notificator):
        return [(row.k, time + 1000, 1, 0) for row in data]

    postdated = megaphone.unary(control, source.frame, "k", ahead, COUNTS, time="t", lateness=5, name="first")
    running = start(megaphone.unary(control, postdated, "n", largest, LARGEST, time="t", name="second"))
    source.send([(key, 100 + key) for key in range(KEYS)])
    running.settle()
    (status,) = control.status()
    assert status.lags == {"first": 5, "second": 0}


def test_slower_input_of_two_holds_the_frontier(spark, feed, start):
    first, second = (megaphone.Control(spark, workers=2, bins=BINS) for _ in range(2))
    fast, slow = feed("k long, t long", "fast"), feed("k long, t long", "slow")

    def meet(time, left, right, state, later_left, later_right):
        yield from ((row.k, time, side) for side, rows in enumerate((left, right)) for row in rows)

    counts = megaphone.unary(first, fast.frame, "k", count, COUNTS, time="t")
    both = megaphone.binary(second, counts, slow.frame, "k", "k", meet, "k long, t long, side int", time="t")
    running = start(both)
    slow.send([(1, 10)])
    fast.send([(1, 5), (1, 200), (1, 300)])
    running.settle()
    assert sorted(map(tuple, running.outputs)) == [(1, 5, 0)]
    slow.send([(1, 50), (1, 250)])
    running.settle()
    assert sorted(map(tuple, running.outputs)) == [(1, 5, 0), (1, 10, 1), (1, 50, 1), (1, 200, 0)]
    (status,) = second.status()
    assert sum(status.late.values()) == 0


def test_both_inputs_of_a_binary_operator_move_together(spark, feed, start):
    control = megaphone.Control(spark, workers=2, bins=BINS, assignment=[0] * BINS)
    source = feed("k long, price long")

    def bids(time, offers, asks, state, later_offers, later_asks):
        for row in offers:
            state[row.k] = row.price
        for row in asks:
            later_asks.notify_at(time + 1, row) if row.k not in state else None
        yield from ((row.k, state[row.k], os.getpid()) for row in asks if row.k in state)

    offers, asks = source.frame.where("price > 0"), source.frame.where("price = 0")
    running = start(megaphone.binary(control, offers, asks, "k", "k", bids, "k long, price long, pid int"))
    # Half of the keys have a price already, the other half a question that waits.
    source.send([(key, key + 1 if key % 2 else 0) for key in range(KEYS)])
    running.settle()
    control.migrate([1] * BINS, "fluid").wait(120)
    source.send([(key, 0 if key % 2 else key + 1) for key in range(KEYS)], [], [])
    running.settle()
    (new,) = (pid for pid, worker in pids(control).items() if worker == 1)
    assert sorted(map(tuple, running.outputs)) == [(key, key + 1, new) for key in range(KEYS)]
