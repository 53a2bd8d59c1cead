"""Would catch an epoch planned twice, a step taken for complete too early, and a planner that spins idly."""

import pytest

from megaphone.bins import WorkerId
from megaphone.configuration import Assignment
from megaphone.control.epochs import Epochs, Report, input_frontier
from megaphone.control.plan import Plan, Step
from megaphone.control.saved import save
from megaphone.control.strategies import make_plan
from megaphone.control.travel import Stuck
from megaphone.errors import PlanError, ProtocolError
from megaphone.progress import BEGIN, CLOSED, END, OPEN, Frontier, Time

HERE, THERE = Assignment([0, 0, 1, 1]), Assignment([1, 1, 0, 0])
BY_EPOCH = {"count": ("epoch", 1)}
BY_COLUMN = {"count": ("column", 1)}


def planned(operators=BY_EPOCH):
    return Epochs(HERE, 2, operators)


def report(epochs, operator="count", input=None, outputs=(None, None)):
    """Report as an engine would: `input` frontier, and each worker's output frontier unless it is the same."""
    input = epochs.epoch + 1 if input is None else input
    reports = [Report(WorkerId(w), Time(input if t is None else t)) for w, t in enumerate(outputs)]
    epochs.report(operator, epochs.epoch, reports, [Time(input)], Time(input))


def run(epochs, **reported):
    plan = epochs.open(epochs.epoch + 1)
    report(epochs, **reported)
    return plan


def moved(plan, operator="count"):
    return [move.bin for move in plan.operators[operator].moves]


def test_epoch_is_planned_once():
    epochs = planned()
    plan = epochs.open(0)
    epochs.submit(make_plan(HERE, THERE, "all_at_once"))
    assert epochs.open(0) is plan
    assert moved(epochs.open(1)) == [0, 1, 2, 3]
    assert epochs.open(0) is plan
    assert moved(epochs.open(1)) == [0, 1, 2, 3]


def test_epochs_come_one_after_another():
    epochs = planned()
    epochs.open(0)
    with pytest.raises(ProtocolError, match="epoch 2 asked for after epoch 0; expected 1"):
        epochs.open(2)


def test_first_epoch_may_be_any():
    """After a restart Spark goes on where it was."""
    assert planned().open(7).operators["count"].frontier == 7


def test_step_without_a_time_happens_in_the_epoch_that_issues_it():
    epochs = planned()
    run(epochs)
    epochs.submit(make_plan(HERE, THERE, "fluid"))
    plan = run(epochs)
    assert moved(plan) == [0]
    assert [since for since, _ in plan.configuration] == [1]
    assert plan.operators["count"].holds == ()


def test_next_step_waits_for_the_word_that_the_last_is_committed():
    epochs = planned()
    migration = epochs.submit(make_plan(HERE, THERE, "fluid"))
    seen = []
    for _ in range(5):
        seen.append((moved(run(epochs)), migration.completed))
    assert seen == [([0], 0), ([1], 1), ([2], 2), ([3], 3), ([], 4)]
    assert migration.phase == "done"


def test_future_step_is_known_at_once_holds_its_bins_and_happens_at_its_time():
    epochs = planned()
    epochs.submit(make_plan(HERE, THERE, "all_at_once", at=Time(3)))
    plans = [run(epochs) for _ in range(4)]
    assert [moved(plan) for plan in plans] == [[], [], [], [0, 1, 2, 3]]
    assert [since for since, _ in plans[0].configuration] == [BEGIN, 3]
    assert [plan.operators["count"].holds for plan in plans] == [tuple((b, 3) for b in range(4))] * 3 + [()]


def test_move_waits_for_the_slowest_worker():
    epochs = planned(BY_COLUMN)
    run(epochs, input=10)
    epochs.submit(make_plan(HERE, THERE, "all_at_once", at=Time(20)))
    assert moved(run(epochs, input=30, outputs=(None, 15))) == []
    assert moved(run(epochs, input=30, outputs=(None, 20))) == []
    assert moved(run(epochs, input=30)) == [0, 1, 2, 3]


def test_bin_moves_before_any_data_has_come():
    epochs = planned(BY_COLUMN)
    epochs.submit(make_plan(HERE, THERE, "all_at_once"))
    plan = run(epochs, input=BEGIN)
    assert moved(plan) == [0, 1, 2, 3]
    assert plan.configuration == ((BEGIN, THERE),)


def test_report_said_twice_counts_once():
    epochs = planned(BY_COLUMN)
    epochs.open(0)
    for _ in range(2):
        epochs.report("count", 0, [Report(WorkerId(0), Time(5), applied=3, late=2)], [Time(5)], Time(5))
    assert (epochs.operators["count"].applied, epochs.operators["count"].late) == (3, 2)


def test_report_of_an_epoch_gone_by_is_ignored():
    epochs = planned(BY_COLUMN)
    run(epochs, input=5)
    epochs.open(1)
    epochs.report("count", 0, [Report(WorkerId(0), Time(99), applied=9)], [Time(99)], Time(99))
    assert (epochs.operators["count"].frontier, epochs.operators["count"].applied) == (Frontier(Time(5)), 0)


def test_bytes_are_those_of_the_step():
    epochs = planned()
    migration = epochs.submit(make_plan(HERE, THERE, "fluid"))
    epochs.open(0)
    epochs.report("count", 0, [Report(WorkerId(1), Time(1), bytes_in=70)], [Time(0)], Time(1))
    epochs.open(1)
    assert migration.bytes_moved == 70


def test_plan_names_every_worker_that_has_or_gets_a_bin():
    epochs = Epochs(Assignment([0, 0]), 3, BY_EPOCH)
    assert run(epochs).workers == (0,)
    epochs.submit(make_plan(Assignment([0, 0]), Assignment([2, 2]), "all_at_once"))
    assert [run(epochs).workers for _ in range(2)] == [(0, 2), (2,)]


def test_version_changes_with_the_configuration_and_only_then():
    epochs = planned()
    run(epochs)
    before = epochs.version
    run(epochs)
    assert epochs.version == before
    epochs.submit(make_plan(HERE, THERE, "all_at_once"))
    run(epochs)
    assert epochs.version > before


def test_step_without_moves_comes_to_an_end():
    """It used to stay in flight for ever, and every plan behind it with it."""
    epochs = planned()
    migration = epochs.submit(Plan(4, (Step(()), Step((), Time(2)))))
    for _ in range(4):
        run(epochs)
    assert migration.phase == "done"


TWO = {"slow": ("column", 1), "fast": ("column", 1)}


def test_step_is_complete_when_it_has_happened_on_every_operator():
    epochs = planned(TWO)
    epochs.open(0)
    report(epochs, "slow", 10)
    report(epochs, "fast", 50)
    migration = epochs.submit(make_plan(HERE, THERE, "all_at_once"))
    plan = epochs.open(1)
    assert (moved(plan, "slow"), moved(plan, "fast")) == ([], [0, 1, 2, 3])
    assert [since for since, _ in plan.configuration] == [BEGIN, 50]
    report(epochs, "slow", 50)
    report(epochs, "fast", 60)
    plan = epochs.open(2)
    assert migration.phase == "running"
    assert (moved(plan, "slow"), moved(plan, "fast")) == ([0, 1, 2, 3], [])
    report(epochs, "slow", 50)
    report(epochs, "fast", 60)
    epochs.open(3)
    assert migration.phase == "done"


def test_operator_that_is_behind_waits_for_data_not_for_epochs():
    """Else a query without new data would run one empty micro-batch after another."""
    epochs = planned(TWO)
    epochs.open(0)
    report(epochs, "slow", 10)
    report(epochs, "fast", 50)
    epochs.submit(make_plan(HERE, THERE, "all_at_once"))
    assert epochs.wants_epoch
    epochs.open(1)
    report(epochs, "slow", 10)
    report(epochs, "fast", 50)
    assert not epochs.wants_epoch
    epochs.open(2)
    report(epochs, "slow", 50)
    report(epochs, "fast", 50)
    assert epochs.wants_epoch


def test_operators_that_share_a_control_share_a_clock():
    """A migration at event time 1,700,000,000 would reach an operator by epoch only after as many epochs."""
    with pytest.raises(PlanError, match="tell time differently: a by column, b by epoch; give each clock"):
        Epochs(HERE, 2, {"b": ("epoch", 1), "a": ("column", 1)})


def test_idle_planner_wants_no_epoch():
    epochs = planned()
    run(epochs)
    assert not epochs.wants_epoch
    migration = epochs.submit(make_plan(HERE, THERE, "batched", batch=2, gap=1))
    ran = 0
    while epochs.wants_epoch:
        run(epochs)
        ran += 1
    assert (migration.phase, ran) == ("done", 4)


def test_future_step_wants_no_epoch_before_its_time():
    epochs = planned()
    epochs.submit(make_plan(HERE, THERE, "all_at_once", at=Time(3)))
    wanted = []
    for _ in range(6):
        wanted.append(epochs.wants_epoch)
        run(epochs)
    assert wanted == [False, False, False, True, True, False]


def test_closed_inputs_stay_closed():
    """The frontier of an operator by epoch used to fall back to the next epoch after the last."""
    epochs = planned()
    epochs.submit(make_plan(HERE, THERE, "all_at_once", at=Time(100)))
    plan = epochs.open(0, closing=True)
    assert plan.closing
    report(epochs, input=END, outputs=(100, 100))
    assert epochs.wants_epoch
    plan = epochs.open(1)
    assert (plan.closing, plan.operators["count"].frontier) == (True, END)
    assert moved(plan) == [0, 1, 2, 3]


def test_retained_configurations_stay_few():
    epochs = Epochs(Assignment([0] * 1024), 2, BY_EPOCH)
    migration = epochs.submit(make_plan(Assignment([0] * 1024), Assignment([1] * 1024), "fluid"))
    most = max(len(run(epochs).configuration) for _ in range(1025))
    assert (migration.phase, most) == ("done", 1)


def test_input_frontier_is_what_the_sources_promise():
    def frontier(clock="column", closing=False, seen=(50,), lateness=(0,), before=BEGIN):
        return input_frontier(clock, 6, closing, [Time(t) for t in seen], lateness, Time(before))

    assert frontier("epoch") == Frontier(Time(7))
    assert frontier() == Frontier(Time(50))
    assert frontier(lateness=(8,)) == Frontier(Time(42))
    assert frontier(before=60) == Frontier(Time(60))
    assert frontier(seen=(50, 30), lateness=(0, 5)) == Frontier(Time(25))
    assert frontier(seen=(50, BEGIN), lateness=(0, 5)) == OPEN
    assert frontier(closing=True) == frontier("epoch", closing=True) == CLOSED


# -- workers that are wanted -------------------------------------------------------------------------------------------


def done(epochs, owners, workers):
    """A rescale that is accepted and done."""
    target = Assignment(owners)
    migration = epochs.submit(make_plan(epochs.controller.expected, target, "all_at_once"), workers)
    while migration.phase != "done":
        epochs.open(epochs.epoch + 1)
        report(epochs, outputs=[None] * (max(owners) + 2))
    epochs.let_go()


def test_rescale_that_is_done_leaves_the_workers_of_one_that_waits():
    """They were let go of, none of them was started again, and the rescale gave up after two minutes."""
    epochs = planned()
    with epochs.reservations.of(3):
        done(epochs, [0, 0, 0, 0], 1)
        assert (epochs.workers, epochs.wanted) == (1, 3)
        assert epochs.surplus(map(WorkerId, range(5))) == [3, 4]
    assert epochs.wanted == 1


@pytest.mark.parametrize("error", [None, PlanError, TimeoutError, KeyboardInterrupt])
def test_rescale_that_is_given_up_gives_back_its_workers_and_no_others(error):
    epochs = planned()
    run(epochs)
    with epochs.reservations.of(4):
        try:
            with epochs.reservations.of(6):
                assert epochs.wanted == 6
                if error is not None:
                    raise error
        except (PlanError, TimeoutError, KeyboardInterrupt):
            pass
        assert epochs.wanted == 4
    assert (epochs.workers, epochs.wanted) == (2, 2)
    assert epochs.surplus(map(WorkerId, range(6))) == [2, 3, 4, 5]


def test_reserved_workers_are_forgotten_in_a_crash():
    """The rescale that waits for them has not been accepted, and ends with its driver."""
    epochs = planned()
    with epochs.reservations.of(9):
        assert save(epochs).workers == 2


def test_workers_in_the_plan_of_the_open_epoch_are_no_surplus():
    epochs = planned()
    epochs.submit(make_plan(HERE, Assignment([0, 0, 0, 0]), "all_at_once"), 1)
    run(epochs)
    assert epochs.surplus(map(WorkerId, range(2))) == []
    run(epochs)
    epochs.let_go()
    assert epochs.wanted == 1
    run(epochs)
    assert epochs.surplus(map(WorkerId, range(2))) == [1]


@pytest.mark.parametrize("workers", [0, -1, 5, 10**9, 99999999999999999999])
def test_rescale_to_more_workers_than_bins_changes_nothing(workers):
    epochs = planned()
    plan = make_plan(HERE, Assignment([0, 0, 0, 0]), "all_at_once")
    for refused in (epochs.check, epochs.submit):
        with pytest.raises(PlanError, match=f"{workers} workers asked for.*; choose 1 (or more|to 4)$"):
            refused(plan, workers)
    assert (epochs.workers, epochs.controller.history) == (2, [])


def test_emptied_workers_of_a_migration_behind_which_another_waits_bring_no_epochs():
    """Until it is resumed there is nothing to let go of, and the query used to start one epoch after another."""
    epochs = planned()
    epochs.submit(make_plan(HERE, Assignment([0, 0, 0, 0]), "all_at_once"), 1)
    epochs.submit(make_plan(Assignment([0, 0, 0, 0]), THERE, "all_at_once"))
    run(epochs)
    run(epochs)
    assert epochs.controller.pause().number == epochs.controller.current.number
    assert epochs.controller.emptied == [1]
    assert not epochs.lets_go_of(map(WorkerId, range(2)))


# -- bins that cannot travel -------------------------------------------------------------------------------------------


def asking(*plans, operators=BY_EPOCH):
    """Epochs that issue nothing before it is known which bins can travel, and the migrations by these plans."""
    epochs = planned(operators)
    epochs.ask_first()
    return epochs, [epochs.submit(plan, number=number) for number, plan in enumerate(plans)]


def hear_of(epochs, *bins):
    """Run an epoch in which worker 0 tells of bins that cannot travel."""
    epochs.open(epochs.epoch + 1)
    now = Time(epochs.epoch + 1)
    reports = [Report(WorkerId(0), now, stuck=tuple(Stuck(bin, "why") for bin in bins)), Report(WorkerId(1), now)]
    epochs.report("count", epochs.epoch, reports, [now], now)


def test_nothing_moves_before_it_is_known_which_bins_can_travel():
    epochs, (first, second) = asking(make_plan(HERE, THERE, "all_at_once"), make_plan(THERE, HERE, "all_at_once"))
    assert epochs.in_doubt is None
    every, seen = [0, 1, 2, 3], []
    for cleared in (None, None, 0, None, 1, None):
        if cleared is not None:
            epochs.clear(cleared)
        wanted = epochs.wants_epoch, epochs.waits_for_answers
        seen.append((*wanted, moved(run(epochs)), epochs.in_doubt))
    asked = [(False, True, [], first)] * 2
    assert seen[:3] == [*asked, (True, False, every, None)]
    # Only then is the other one's turn.
    assert seen[3:] == [(True, False, [], second), (True, False, every, None), (True, False, [], None)]


def test_paused_migration_that_waits_for_answers_wants_no_epoch():
    epochs, _ = asking(make_plan(HERE, THERE))
    run(epochs)
    epochs.controller.pause()
    assert not epochs.waits_for_answers
    assert epochs.in_doubt is not None


def test_bin_that_is_told_of_while_its_migration_is_under_way_is_asked_for_again():
    epochs, (migration,) = asking(make_plan(HERE, THERE, "fluid"))
    run(epochs)
    epochs.clear(0)
    # Bin 0 is on its way; what follows are 1, 2 and 3.
    for bins, cleared in [((0,), True), ((), True), ((0, 3), False)]:
        hear_of(epochs, *bins)
        assert migration.cleared is cleared
    # The step in flight completes, and no other is issued.
    assert moved(run(epochs)) == []
    assert epochs.in_doubt is migration


def test_failed_rescale_gives_back_the_workers_that_were_started_for_it():
    epochs, _ = asking()
    run(epochs)
    there = Assignment([0, 1, 2, 3])
    first = epochs.submit(make_plan(HERE, Assignment([0, 2, 1, 1]), "all_at_once"), 3, number=0)
    second = epochs.submit(make_plan(epochs.controller.expected, there, "all_at_once"), 4, number=1)
    assert epochs.wanted == 4
    epochs.fail(0, "why")
    assert (first.phase, second.phase, epochs.lets_go_of([])) == ("failed", "failed", True)
    epochs.let_go()
    assert (epochs.wanted, epochs.configuration.last, moved(run(epochs))) == (2, HERE, [])


def test_step_that_failed_in_an_epoch_is_taken_back_from_every_operator():
    epochs = planned(TWO)
    migration = epochs.submit(make_plan(HERE, THERE, "all_at_once", at=Time(20)))
    for fast, slow in [(10, 10), (30, 15), (40, 20)]:
        epochs.open(epochs.epoch + 1)
        report(epochs, "fast", fast)
        report(epochs, "slow", slow)
    assert (epochs.residence("fast"), epochs.residence("slow")) == (HERE, HERE)
    assert epochs.fail(0, "why", epoch=3) is migration
    plan = epochs.open(3)
    assert [plan.operators[name].freed for name in TWO] == [(0, 1, 2, 3), ()]
    assert [plan.operators[name].holds + plan.operators[name].moves for name in TWO] == [(), ()]
    assert [since for since, _ in plan.configuration] == [BEGIN]
    assert (epochs.configuration.last, epochs.residence("fast"), epochs.residence("slow")) == (HERE, HERE, HERE)
    assert (migration.phase, migration.bins_moved, epochs.controller.expected) == ("failed", 0, HERE)
    # What comes next may be for an earlier time than the step that was taken back.
    epochs.submit(make_plan(HERE, THERE, "all_at_once"))
    report(epochs, "fast", 40)
    report(epochs, "slow", 40)
    plan = epochs.open(4)
    assert [(moved(plan, name), plan.operators[name].freed) for name in TWO] == [([0, 1, 2, 3], ())] * 2


def test_step_that_is_complete_is_not_taken_back_but_the_one_behind_it_is_not_issued():
    epochs, (migration,) = asking(make_plan(HERE, THERE, "fluid"))
    epochs.clear(0)
    run(epochs)
    epochs.fail(0, "why", epoch=1)
    assert (moved(run(epochs)), migration.phase, migration.bins_moved) == ([], "failed", 1)
    assert epochs.configuration.last == epochs.controller.expected == Assignment([1, 0, 1, 1])


def test_epoch_that_was_applied_has_not_failed():
    epochs, (migration,) = asking(make_plan(HERE, THERE, "all_at_once"))
    epochs.clear(0)
    run(epochs)
    assert epochs.fail(0, "why", epoch=0) is None
    assert migration.phase == "running"
