"""Would catch a migration that is forgotten because the driver died, and a command that no restart survives.

And bins that are not as they were when a step is taken back that some operators had made, and others could not.
"""

import json
import pickle

import msgspec
import pyarrow as pa
import pytest

from megaphone.configuration import Assignment
from megaphone.control.epochs import Report
from megaphone.control.strategies import make_plan
from megaphone.dataflow.operators import Input, key_operator
from megaphone.durability.manifest import Manifest, shape_of
from megaphone.durability.recovery import Request, recover
from megaphone.durability.restoration import obey
from megaphone.durability.store import Command, Store
from megaphone.engine.spark.memoir import Memoir
from megaphone.errors import CheckpointError
from megaphone.progress import CLOSED, Time

BINS = 4
SPEC = key_operator("op", Input(pa.schema([("k", pa.int64())]), ("k",)), max, pa.schema([("k", pa.int64())]))


@pytest.fixture
def attempt(tmp_path):
    """Starts the query once more."""

    def attempt(epoch):
        memoir = Memoir(
            Store(str(tmp_path), "control"),
            Manifest(BINS, 2, {"op": shape_of(SPEC, ("k",))}),
            {"op": pickle.dumps(SPEC)},
            {"op": ("epoch", 1)},
        )
        return memoir, memoir.begin(epoch, Assignment([0] * BINS))

    return attempt


def submit(memoir, epochs, target, strategy):
    plan = make_plan(epochs.controller.expected, Assignment(target), strategy)
    command = Command("submit", plan.to_json())
    return obey(epochs, command, memoir.command(command))


def test_migration_that_began_where_a_lost_step_ended_is_fitted_to_where_the_bins_are(attempt):
    memoir, epochs = attempt(0)
    memoir.open(epochs, 0, False)
    epochs.report("op", 0, [Report(0, Time(1)), Report(1, Time(1))], [Time(0)], Time(1))
    submit(memoir, epochs, [1, 1, 1, 1], "fluid")
    memoir.open(epochs, 1, False)
    # Bin 0 is on its way; the next migration counts on that, and then the driver dies.
    obey(epochs, Command("cancel"), memoir.command(Command("cancel")))
    submit(memoir, epochs, [0, 0, 1, 1], "all_at_once")
    for _ in range(2):
        memoir, epochs = attempt(1)
        assert [migration.strategy for migration in epochs.controller.history] == ["fluid", "all_at_once"]
        assert epochs.controller.expected == Assignment([0, 0, 1, 1])
    for epoch in range(1, 4):
        memoir.open(epochs, epoch, False)
        reports = [Report(worker, Time(epoch + 1)) for worker in (0, 1)]
        epochs.report("op", epoch, reports, [Time(epoch)], Time(epoch + 1))
    assert epochs.configuration.last == Assignment([0, 0, 1, 1])
    assert epochs.controller.history[-1].phase == "done"


def go_on(memoir, epochs, epoch):
    memoir.open(epochs, epoch, False)
    reports = [Report(worker, Time(epoch + 1)) for worker in (0, 1)]
    epochs.report("op", epoch, reports, [Time(epoch)], Time(epoch + 1))


def known(epochs):
    figures = [(past.number, past.phase, past.strategy, past.bins_moved) for past in epochs.controller.history]
    return figures, dict(epochs.controller.ended)


def test_migrations_that_have_ended_are_known_and_counted_whenever_the_driver_died(attempt):
    """It dies in every epoch, after its plan was written; some migrations end in that very epoch."""
    memoir, epochs = attempt(0)
    go_on(memoir, epochs, 0)
    for epoch in range(1, 13):
        if epoch % 4 == 1:
            submit(memoir, epochs, [int(epoch // 4 % 2 == 0)] * BINS, "all_at_once")
        if epoch == 6:
            obey(epochs, Command("cancel"), memoir.command(Command("cancel")))
        memoir.open(epochs, epoch, False)
        for _ in range(2):
            memoir, epochs = attempt(epoch)
            go_on(memoir, epochs, epoch)
    figures, ended = known(epochs)
    assert [(number, phase) for number, phase, _, _ in figures] == [(0, "done"), (1, "cancelled"), (3, "done")]
    assert ended == {"done": 2, "cancelled": 1}
    assert all(strategy == "all_at_once" and moved == BINS for _, _, strategy, moved in figures)


def test_damaged_history_is_forgotten_and_nothing_else(attempt, tmp_path, caplog):
    memoir, epochs = attempt(0)
    go_on(memoir, epochs, 0)
    submit(memoir, epochs, [1] * BINS, "all_at_once")
    for epoch in range(1, 5):
        go_on(memoir, epochs, epoch)
    (file,) = tmp_path.rglob("history")
    file.write_bytes(file.read_bytes()[:100])
    _, again = attempt(4)
    assert known(again) == ([], {"done": 1})
    assert again.configuration.last == Assignment([1] * BINS)
    assert "history is truncated or damaged" in caplog.text


def test_plan_of_an_epoch_does_not_grow_with_the_migrations_that_have_ended(attempt, tmp_path):
    """Each epoch's file used to repeat the last fifty; what ended is written when it ends."""
    memoir, epochs = attempt(0)
    go_on(memoir, epochs, 0)
    sizes = []
    for epoch in range(1, 121):
        if epoch % 3 == 1:
            submit(memoir, epochs, [epoch % 2] * BINS, "all_at_once")
        go_on(memoir, epochs, epoch)
        sizes.append(max(path.stat().st_size for path in tmp_path.rglob(f"plans/{epoch:012}-*")))
    assert epochs.controller.ended == {"done": 40}
    assert max(sizes[-3:]) <= max(sizes[3:6]) + 64
    assert len(memoir.store.read_history()) == 40


def raw(**changed):
    """A command as its file has it, that is right but for what is changed in its plan, or beside it."""
    beside = {name: changed.pop(name) for name in ("verb", "workers") if name in changed}
    plan = json.loads(make_plan(Assignment([0] * BINS), Assignment([1] * BINS), "all_at_once").to_json())
    return msgspec.msgpack.encode({"verb": "submit", "plan": json.dumps({**plan, **changed}), **beside})


UNFIT = {
    "no JSON": (msgspec.msgpack.encode(Command("submit", "{")), "not a plan: "),
    "no plan": (msgspec.msgpack.encode(Command("submit")), "a migration without a plan"),
    "no command": (b"\xc1", "is not a command this Megaphone knows"),
    "no such verb": (raw(verb="jump"), "no command named 'jump'"),
    "failure of nothing": (raw(verb="fail"), "a failure of no migration"),
    "gap that is no whole number": (raw(gap=0.5), "malformed plan: Expected `int`, got `float` - at `$.gap`"),
    "gap beyond all numbers": (raw(gap=2**70), "malformed plan: "),
    "gap beyond all epochs": (raw(gap=2**40), "a gap of 1099511627776 epochs"),
    "bin out of range": (raw(steps=[{"moves": [[99, 0, 1]]}]), "bin 99 of 4; choose 0 to 3"),
    "worker out of range": (raw(steps=[{"moves": [[0, 0, 7]]}]), "worker 7, but there are 2 workers"),
    "other bins": (raw(bins=8), "plan is for 8 bins, the operators have 4"),
    "workers that are no number": (raw(workers=True), "Expected `int | null`, got `bool`"),
    "more workers than bins": (raw(workers=10**9), "there are 4 bins, one at least for each"),
    "strategy that cannot be shown": (raw(strategy="\ud800"), "a strategy called "),
}


WHEN = [*((unfit, 1) for unfit in UNFIT), ("no JSON", 0), ("more workers than bins", 0)]


@pytest.mark.parametrize(("unfit", "epoch"), WHEN)
def test_command_that_cannot_be_followed_ends_as_failed_and_stays_so(attempt, caplog, unfit, epoch):
    command, reason = UNFIT[unfit]
    memoir, epochs = attempt(0)
    if epoch:
        go_on(memoir, epochs, 0)
        memoir.open(epochs, 1, False)
    assert memoir.command(command) == 0
    submit(memoir, epochs, [1] * BINS, "all_at_once")
    for _ in range(2):
        memoir, epochs = attempt(epoch)
        failed, under_way = epochs.controller.history
        assert (failed.number, failed.phase, reason in failed.reason) == (0, "failed", True)
        assert (under_way.number, under_way.phase) == (1, "waiting")
    assert f"command 0 of {memoir.store.folder.uri} ends as failed: " in caplog.text
    for number in range(epoch, epoch + 3):
        go_on(memoir, epochs, number)
    for _ in range(2):
        memoir, epochs = attempt(epoch + 2)
        assert [(past.number, past.phase) for past in epochs.controller.history] == [(0, "failed"), (1, "done")]
        assert epochs.controller.ended == {"failed": 1, "done": 1}
        assert epochs.configuration.last == Assignment([1] * BINS)
        go_on(memoir, epochs, epoch + 2)


def test_torn_command_that_no_epoch_has_followed_ends_as_failed(attempt, tmp_path):
    memoir, epochs = attempt(0)
    go_on(memoir, epochs, 0)
    memoir.open(epochs, 1, False)
    submit(memoir, epochs, [1] * BINS, "all_at_once")
    (file,) = tmp_path.rglob("commands/*")
    file.write_bytes(file.read_bytes()[:100])
    memoir, epochs = attempt(1)
    go_on(memoir, epochs, 1)
    assert "is truncated or damaged" in epochs.controller.history[0].reason
    assert epochs.configuration.last == Assignment([0] * BINS)


def test_migration_under_way_is_not_given_up_because_its_command_is_damaged(attempt, tmp_path):
    """Epochs have followed it: to go on otherwise might break the one rule."""
    memoir, epochs = attempt(0)
    go_on(memoir, epochs, 0)
    submit(memoir, epochs, [1] * BINS, "fluid")
    go_on(memoir, epochs, 1)
    go_on(memoir, epochs, 2)
    (file,) = tmp_path.rglob("commands/*")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="is truncated or damaged"):
        attempt(2)


def test_control_that_was_named_differently_is_told_where_its_state_is(attempt, tmp_path):
    memoir, epochs = attempt(0)
    memoir.open(epochs, 0, False)
    renamed = Memoir(Store(str(tmp_path), "other"), memoir._manifest, {"op": pickle.dumps(SPEC)}, {"op": ("epoch", 1)})
    with pytest.raises(CheckpointError, match="there is state of control: name the control as it was"):
        renamed.begin(1, Assignment([0] * BINS))


# -- a step that is taken back -----------------------------------------------------------------------------------------

WORDS = pa.schema([("word", pa.string()), ("at", pa.int64())])


def digest(word, at, state):
    """Tells in which order records came."""
    state = ((state or 0) * 31 + at) % 1_000_003
    return state, [(word, state)]


def operators():
    """The second one is behind the first."""
    output = pa.schema([("word", pa.string()), ("n", pa.int64())])
    return [
        key_operator(name, Input(WORDS, ("word",), "at", lateness), digest, output, None)
        for name, lateness in (("first", 0), ("second", 10))
    ]


BATCHES = [[(word, at + late) for word in "abcdefgh" for late in (-9, 0)] for at in (20, 32, 38, 43)]


def test_step_that_one_operator_had_made_is_taken_back_when_another_cannot_make_it(stored_query, tmp_path):
    specs, reference = operators(), stored_query(*operators(), checkpoint=tmp_path / "reference")
    query = stored_query(*specs)
    plan = make_plan(query.epochs.controller.expected, Assignment([1] * 8), "all_at_once", at=Time(30))
    command = Command("submit", plan.to_json())
    number = query.memoir.command(command)
    obey(query.epochs, command, number)
    query.run(*BATCHES)
    reference.run(*BATCHES)
    moves = {spec.name: query.epochs.residence(spec.name) for spec in specs}
    assert moves == {"first": Assignment([1] * 8), "second": Assignment([0, 1] * 4)}
    # Now the second one would follow.
    query.memoir.open(query.epochs, 4, False)
    assert query.epochs.residence("second") != query.epochs.configuration.last
    query.memoir.command(Command("fail", migration=number, reason="stuck", epoch=4))
    memoir = again(query)
    epochs = memoir.begin(4, Assignment([0, 1] * 4))
    assert (str(epochs.controller.past[-1]), epochs.controller.current) == (
        "all_at_once failed: 0 of 1 steps, 0 of 4 bins; stuck",
        None,
    )
    memoir.open(epochs, 4, False)
    for spec in specs:
        for worker in (0, 1):
            owned = epochs.residence(spec.name).bins_of(worker)
            assert owned.tolist() == list(range(worker, 8, 2))
            request = Request(spec.name, worker, spec, 8, owned, 3, followed=True)
            assert ended(recover(query.store, request).host) == ended(reference.hosts[spec.name, worker])


def again(query):
    shapes = {spec.name: shape_of(spec, ("word",)) for spec in query.specs}
    pickled = {spec.name: pickle.dumps(spec) for spec in query.specs}
    clocks = {spec.name: ("column", 1) for spec in query.specs}
    return Memoir(query.store, Manifest(8, 2, shapes), pickled, clocks)


def ended(host):
    """The states when everything that waits has been applied."""
    host.advance(CLOSED)
    return {bin: state for bin, state in host.states.items() if state}
