"""Would catch steps that overlap, a gap not kept, and a migration that goes on after it was paused or cancelled."""

import pytest

from megaphone.configuration import Assignment
from megaphone.control.controller import HISTORY, Controller
from megaphone.control.plan import Plan, Step
from megaphone.control.strategies import make_plan
from megaphone.errors import PlanError
from megaphone.progress import Time

HERE, THERE = Assignment([0, 0, 0]), Assignment([1, 1, 1])
BACK = Assignment([1, 0, 1])


def fluid(current=HERE, target=THERE, **options):
    return make_plan(current, target, "fluid", **options)


def controlled(*plans, now=0):
    controller = Controller(HERE)
    return controller, [controller.submit(plan, 2, Time(now), number=number) for number, plan in enumerate(plans)]


def issue(controller, epoch, now=None):
    step = controller.next_step(Time(epoch), Time(epoch if now is None else now))
    return None if step is None else [move.bin for move in step.moves]


def test_step_is_issued_only_when_the_last_has_completed():
    controller, (migration,) = controlled(fluid())
    assert issue(controller, 0) == [0]
    assert [issue(controller, epoch) for epoch in (1, 2, 3)] == [None] * 3
    assert controller.in_flight
    controller.step_completed(Time(4))
    assert issue(controller, 4) == [1]
    assert (migration.issued, migration.completed, migration.bins_moved) == (2, 1, 1)


def test_migration_is_done_when_its_last_step_has_completed():
    controller, (migration,) = controlled(fluid())
    for epoch in range(3):
        assert migration.phase == ("running" if epoch else "waiting")
        assert issue(controller, epoch) == [epoch]
        controller.step_completed(Time(epoch + 1), bytes_moved=10)
    assert (migration.phase, migration.bins_moved, migration.bytes_moved) == ("done", 3, 30)
    assert migration.wait(0) is migration
    assert controller.current is None
    assert issue(controller, 9) is None


def test_gap_is_kept_between_steps():
    controller, _ = controlled(fluid(gap=2))
    assert issue(controller, 0) == [0]
    controller.step_completed(Time(1))
    assert [issue(controller, epoch) for epoch in (1, 2, 3)] == [None, None, [1]]


def test_gap_is_kept_between_migrations_too():
    controller, _ = controlled(fluid(target=Assignment([1, 0, 0]), gap=2), fluid(current=Assignment([1, 0, 0])))
    issue(controller, 0)
    controller.step_completed(Time(1))
    assert [issue(controller, epoch) for epoch in (1, 2, 3)] == [None, None, [1]]


def test_paused_migration_issues_nothing_until_resumed():
    controller, (migration,) = controlled(fluid())
    assert issue(controller, 0) == [0]
    assert controller.pause() is migration
    controller.step_completed(Time(1))
    assert migration.phase == "paused"
    assert issue(controller, 1) is None
    assert not controller.ready(Time(1))
    assert controller.resume() is migration
    assert (migration.phase, issue(controller, 2)) == ("running", [1])


def test_migration_paused_before_it_began_still_waits_when_resumed():
    controller, (migration,) = controlled(fluid())
    controller.pause()
    assert issue(controller, 0) is None
    controller.resume()
    assert migration.phase == "waiting"


def test_migration_paused_in_its_last_step_is_done_with_it():
    controller, (migration,) = controlled(fluid(target=Assignment([1, 0, 0])))
    issue(controller, 0)
    controller.pause()
    controller.step_completed(Time(1))
    assert migration.phase == "done"


def test_cancelled_migration_ends_at_once_if_nothing_is_in_flight():
    controller, (migration,) = controlled(fluid())
    controller.cancel(HERE)
    assert (migration.phase, controller.current) == ("cancelled", None)
    assert controller.expected == HERE
    migration.wait(0)


def test_cancelled_migration_ends_with_the_step_in_flight():
    controller, (migration,) = controlled(fluid())
    issue(controller, 0)
    moved = Assignment([1, 0, 0])
    controller.cancel(moved)
    assert (controller.current, issue(controller, 1)) == (migration, None)
    next = controller.submit(fluid(current=moved), 2, Time(1))
    assert issue(controller, 1) is None
    controller.step_completed(Time(2))
    assert (migration.phase, migration.bins_moved) == ("cancelled", 1)
    assert issue(controller, 2) == [1]
    assert next.phase == "running"


@pytest.mark.parametrize("call", [Controller.pause, Controller.resume])
def test_cancelled_migration_cannot_be_brought_back(call):
    """Paused in its last step, it used to go on from where it was cancelled, against what was accepted since."""
    controller, (migration,) = controlled(fluid())
    issue(controller, 0)
    controller.cancel(Assignment([1, 0, 0]))
    with pytest.raises(PlanError, match="cancelled already"):
        call(controller)
    assert migration.phase == "cancelled"


def test_cancel_takes_those_queued_behind_with_it():
    controller, migrations = controlled(fluid(), fluid(THERE, HERE))
    controller.cancel(HERE)
    assert [migration.phase for migration in migrations] == ["cancelled"] * 2
    assert controller.submit(fluid(), 2, Time(0)).phase == "waiting"


def test_two_migrations_follow_each_other():
    controller, (first, second) = controlled(fluid(), fluid(THERE, BACK))
    assert controller.expected == BACK
    issued = []
    for epoch in range(4):
        issued.append(issue(controller, epoch))
        assert second.phase == ("running" if epoch == 3 else "waiting")
        controller.step_completed(Time(epoch + 1))
    assert issued == [[0], [1], [2], [1]]
    assert (first.phase, second.phase) == ("done", "done")
    assert controller.history == [first.summary, second.summary]


def test_of_many_migrations_the_last_are_remembered_without_plans_and_all_are_counted():
    controller, held = Controller(HERE), None
    for number in range(1000):
        target = BACK if number % 2 == 0 else HERE
        migration = controller.submit(make_plan(controller.expected, target, "fluid"), 2, Time(0), number=number)
        held = held or migration
        for _ in range(2):
            assert controller.next_step(Time(0), Time(0))
            controller.step_completed(Time(0))
    assert controller.ended == {"done": 1000}
    assert [past.number for past in controller.history] == list(range(1000 - HISTORY, 1000))
    assert not any(hasattr(past, "plan") for past in controller.history)
    last = controller.history[-1].wait(0)
    assert (last.phase, last.strategy, last.steps, last.bins, last.bins_moved) == ("done", "fluid", 2, 2, 2)
    # Who holds one has it whole.
    assert len(held.plan.steps) == 2


def test_history_is_in_the_order_of_the_questions_and_what_ended_is_told_once():
    controller = Controller(HERE)
    plans = (fluid(), make_plan(THERE, BACK), make_plan(BACK, BACK))
    migrations = [controller.submit(plan, 2, Time(0), number=number) for number, plan in enumerate(plans)]
    assert [migration.number for migration in controller.history] == [0, 1, 2]
    assert controller.ended_since(0) == [migrations[2].summary]
    controller.cancel(HERE)
    assert [past.number for past in controller.ended_since(1)] == [1, 0]
    assert [migration.phase for migration in controller.history] == ["cancelled", "cancelled", "done"]
    assert controller.ended_since(3) == []


def test_plan_must_start_where_the_last_one_ends():
    controller, _ = controlled(fluid())
    with pytest.raises(PlanError, match="bin 0 is on worker 1 by then, not on worker 0"):
        controller.submit(fluid(), 2, Time(0))
    assert controller.expected == THERE
    assert len(controller.history) == 1


def test_timed_step_is_issued_early_and_keeps_its_time():
    controller, _ = controlled(fluid(at=Time(40)))
    assert not controller.ready(Time(39))
    assert controller.ready(Time(40))
    assert controller.next_step(Time(0), Time(0)) == Step(fluid().steps[0].moves, Time(40))


def test_timed_step_whose_time_went_by_happens_now():
    plan = fluid()
    timed = Plan(3, tuple(Step(step.moves, Time(40)) for step in plan.steps))
    controller, _ = controlled(timed)
    assert controller.next_step(Time(0), Time(0)).time == 40
    controller.step_completed(Time(41))
    assert controller.next_step(Time(41), Time(41)) == plan.steps[1]


def test_time_behind_the_frontier_is_refused():
    with pytest.raises(PlanError) as caught:
        controlled(fluid(at=Time(30)), now=42)
    assert str(caught.value) == "reconfiguration at time 30 is behind the frontier 42; choose 42 or later"


def test_plan_without_steps_is_done_at_once():
    controller, (migration,) = controlled(make_plan(HERE, HERE))
    assert (migration.phase, controller.current) == ("done", None)
    migration.wait(0)


@pytest.mark.parametrize("call", [Controller.pause, Controller.resume, lambda c: c.cancel(HERE)])
def test_without_a_migration_there_is_nothing_to_stop(call):
    with pytest.raises(PlanError, match="no migration is under way"):
        call(Controller(HERE))


def test_waiting_in_vain_says_how_far_it_got():
    controller, (migration,) = controlled(fluid())
    issue(controller, 0)
    controller.step_completed(Time(1))
    with pytest.raises(TimeoutError, match="fluid running: 1 of 3 steps, 1 of 3 bins"):
        migration.wait(0)
    assert migration.duration_s >= 0


def test_failed_migration_says_why_and_takes_those_behind_it_along():
    controller, (first, second) = controlled(fluid(), make_plan(THERE, BACK))
    issue(controller, 0)
    controller.step_completed(Time(1))
    after_one_step = Assignment([1, *HERE.owners.tolist()[1:]])
    assert controller.fail(0, after_one_step, "bin 1 cannot travel") is first
    assert (first.phase, first.reason) == ("failed", "bin 1 cannot travel")
    assert str(first) == "fluid failed: 1 of 3 steps, 1 of 3 bins; bin 1 cannot travel"
    assert (second.phase, second.reason) == ("failed", "migration 0, which comes before it, has failed")
    assert (controller.current, controller.expected) == (None, after_one_step)
    first.wait(0)
    second.wait(0)


def test_migration_whose_bins_are_not_known_yet_issues_nothing():
    controller, (migration,) = controlled(fluid())
    migration.cleared = False
    assert (issue(controller, 0), controller.ready(Time(0)), controller.uncleared) == (None, False, migration)
    controller.pause()
    assert controller.uncleared is migration
    controller.resume()
    migration.cleared = True
    assert (issue(controller, 1), controller.uncleared) == ([0], None)


def test_migration_that_fails_with_a_step_in_flight_ends_with_that_step():
    controller, (first, second) = controlled(fluid(), make_plan(THERE, BACK))
    issue(controller, 0)
    controller.fail(0, Assignment([1, 0, 0]), "why")
    assert (first.phase, second.phase, controller.current, issue(controller, 1)) == ("failed", "failed", first, None)
    with pytest.raises(PlanError, match="failed already"):
        controller.resume()
    controller.cancel(Assignment([1, 0, 0]))
    controller.step_completed(Time(2))
    assert (str(first), controller.current) == ("fluid failed: 1 of 3 steps, 1 of 3 bins; why", None)


def test_migration_that_fails_while_it_waits_leaves_the_one_before_it_alone():
    controller, (first, second, third) = controlled(fluid(), make_plan(THERE, BACK), make_plan(BACK, THERE))
    issue(controller, 0)
    assert controller.fail(1, Assignment([1, 0, 0]), "why") is second
    assert [migration.phase for migration in (first, second, third)] == ["running", "failed", "failed"]
    assert controller.expected == THERE
    assert controller.fail(1, THERE, "why") is None
