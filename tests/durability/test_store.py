"""Would catch a name that is read back otherwise than written, an old attempt that wins over a new one, and a cutting
of the log that takes away what a plan still refers to."""

import os
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megaphone.bins import BinId, WorkerId
from megaphone.configuration import Assignment, Configuration, Move, Update
from megaphone.control.epochs import OperatorPlan
from megaphone.control.saved import Saved, SavedMigration, SavedOperator
from megaphone.control.stream import Reconfiguration
from megaphone.durability.store import REACH, BinFile, Command, LogFile, Store, StoredPlan
from megaphone.errors import CheckpointError
from megaphone.progress import BEGIN, END, Time

MOVE = Move(BinId(3), WorkerId(0), WorkerId(1))


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path), "control")


def plan_of(epoch, attempt=1, version=0, commands=0, migrations=()):
    """A plan with something in every place."""
    before = Saved(
        epoch - 1,
        2,
        version,
        False,
        7,
        ("op",),
        True,
        Time(4),
        {"op": SavedOperator(Time(5), BEGIN, (END,), {0: Time(5)}, 1, 2, (Reconfiguration(Time(9), (MOVE,)),))},
        tuple(SavedMigration(number, None, "running", 1, 0, 5, 1.5, 2.5) for number in migrations),
        {"done": 3},
        (4,),
    )
    told = OperatorPlan(Time(5), (BEGIN,), (MOVE,), ((BinId(3), Time(9)),))
    return StoredPlan(epoch, attempt, version, (0, 1), {"op": told}, False, before, attempt, commands)


def names(store):
    return {name: store.folder.names(name) for name in ("plans", "log", "configurations", "operators", "commands")}


@given(st.integers(0, 2**20), st.sets(st.integers(1, REACH - 1)), st.integers(0, 10**12))
def test_names_of_snapshots_are_read_back(bin, others, epoch):
    file = BinFile(epoch, (bin, *(bin + other for other in sorted(others))))
    assert BinFile.of(str(file)) == file


@given(
    st.integers(0, 10**12), st.integers(0, 10**5), st.from_regex(r"\A\w+\Z"), st.integers(0, 500), st.integers(0, 10**5)
)
def test_names_of_log_entries_are_read_back(epoch, attempt, operator, worker, incarnation):
    file = LogFile(epoch, attempt, operator, worker, incarnation)
    assert LogFile.of(str(file)) == file


def test_plan_comes_back_as_it_was_written(store):
    plan = plan_of(4, migrations=(2, 5))
    store.write_plan(plan)
    assert store.read_plan(4, 1) == plan


def test_configuration_comes_back_as_it_was_written(store):
    configuration = Configuration(Assignment([0, 1, 2, 0]))
    configuration.insert(Update(Time(-5), ((BinId(1), WorkerId(2)),)))
    store.keep_configuration(3, 8, configuration)
    assert store.read_configuration(3, 8).entries == configuration.entries


def test_plan_of_the_last_attempt_is_the_one_that_counts(store):
    for attempt in (2, 10_000, 9_999, 1):
        store.write_plan(plan_of(4, attempt))
    store.write_plan(plan_of(3, 1))
    assert store.plans() == {3: 1, 4: 10_000}


def test_attempts_count_on_for_ever(store):
    assert [store.begin_attempt() for _ in range(3)] == [1, 2, 3]
    store.put("attempts/9999", "attempt", 9999)
    assert [store.begin_attempt() for _ in range(3)] == [10_000, 10_001, 10_002]


def test_commands_come_back_in_their_order(store):
    commands = [Command("submit", "plan", 3), Command("pause"), Command("resume"), Command("cancel")]
    for number, command in enumerate(commands):
        store.write_command(number, command)
    assert [store.read_command(number) for number in (2, 3)] == [Command("resume"), Command("cancel")]
    assert store.read_command(0) == commands[0]
    assert store.numbers("commands")[-1] == 3


def test_operator_comes_back_by_its_attempt(store):
    store.write_spec(1, "op", b"old")
    store.write_spec(2, "op", b"new")
    assert (store.read_spec(1, "op"), store.read_spec(2, "op")) == (b"old", b"new")


def test_snapshots_are_found_with_their_bytes(store):
    size = store.write_snapshot("op", 5, {3: [b"state", np.arange(4)]})
    store.write_snapshot("other", 5, {4: []})
    assert list(store.snapshots("op")) == [(BinFile(5, (3,)), size + 8)]
    (parts,) = store.read_snapshot("op", BinFile(5, (3,))).values()
    assert [bytes(part) for part in parts] == [b"state", np.arange(4).tobytes()]


def test_bins_that_share_a_file_are_read_apart(store):
    kept = {3: [b"state", np.arange(4).tobytes()], 7: [], 66: [b"", b"x"]}
    store.write_snapshot("op", 5, kept)
    ((file, _),) = store.snapshots("op")
    found = store.read_snapshot("op", file)
    assert {bin: [bytes(part) for part in parts] for bin, parts in found.items()} == kept


@pytest.mark.parametrize(("folder", "find"), [("log", Store.log), ("plans", Store.plans)])
def test_file_that_is_not_ours_is_refused_by_its_name(store, folder, find):
    store.folder.write(f"{folder}/notes.txt", "plan", [])
    with pytest.raises(CheckpointError, match=f"{folder}/notes.txt is not one of Megaphone's files; move it elsewhere"):
        find(store)


def test_message_of_another_time_is_refused_by_its_name(store):
    store.put("plans/x", "plan", {"strange": 1})
    with pytest.raises(CheckpointError, match="plans/x is not a plan this Megaphone knows"):
        store.get("plans/x", "plan", StoredPlan)


def test_folders_are_private_to_their_user(tmp_path):
    Store(str(tmp_path), "control").create()
    for path in (tmp_path / "megaphone", tmp_path / "megaphone/control"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert path.stat().st_uid == os.geteuid()


# -- cutting ----------------------------------------------------------------------------------------------------------


def filled(store, plans, operators=("op",)):
    """A store in which everything is there that plans refer to, and a log entry for each of their workers."""
    for plan in plans:
        store.write_plan(plan)
        for version in {plan.version, plan.before.version}:
            store.keep_configuration(plan.attempt, version, Configuration(Assignment([0, 1])))
        for operator in operators:
            store.write_spec(plan.attempt, operator, b"fold")
            for worker in plan.workers:
                store.folder.write(f"log/{LogFile(plan.epoch, plan.attempt, operator, worker, 1)}", "log", [b"x"])
    for number in range(max(plan.commands for plan in plans) + 1):
        store.write_command(number, Command("pause"))


def check_referred(store):
    """Everything a plan refers to is there."""
    for epoch, attempt in store.plans().items():
        plan = store.read_plan(epoch, attempt)
        store.read_configuration(plan.before_attempt, plan.before.version)
        store.read_configuration(plan.attempt, plan.version)
        store.read_spec(attempt, "op")
        workers = {file.worker for file, _ in store.log() if (file.epoch, file.attempt) == (epoch, attempt)}
        assert workers == set(plan.workers)
        for migration in plan.before.migrations:
            store.read_command(migration.number)
        later = [number for number in store.numbers("commands") if number >= plan.commands]
        assert later == list(range(plan.commands, 1 + max(later, default=plan.commands - 1)))


steps = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 2), st.sets(st.integers(0, 8))),
    min_size=1,
    max_size=8,
)


@given(steps, st.integers(0, 10), st.sampled_from([0, 9_998]))
def test_cutting_never_removes_what_a_plan_that_stays_refers_to(tmp_path_factory, drawn, needed_from, before):
    store = Store(str(tmp_path_factory.mktemp("store")), "control")
    attempt, version, commands, told, plans = 1 + before, 0, 0, set(), []
    for epoch, (restarts, versions, more, forgotten) in enumerate(drawn):
        attempt, version, commands = attempt + restarts, version + versions, commands + more
        told = (told | set(range(commands - more, commands))) - forgotten
        plans.append(plan_of(epoch, attempt, version, commands, sorted(told)))
    filled(store, plans)
    store.cut(needed_from, [])
    check_referred(store)
    stays = [plan.epoch for plan in plans if plan.epoch >= needed_from]
    assert list(store.plans()) == (stays or [plan.epoch for plan in plans])


def test_cutting_removes_everything_else(store):
    filled(store, [plan_of(epoch, 1 + epoch // 4, epoch, epoch, [epoch - 1] if epoch else []) for epoch in range(9)])
    for epoch in range(9):
        store.begin_attempt()
        store.write_snapshot("op", epoch, {epoch % 2: [b"bin"]})
    store.cut(6, [6])
    assert list(store.plans()) == [6, 7, 8]
    assert {file.epoch for file, _ in store.log()} == {6, 7, 8}
    assert names(store)["configurations"] == [f"0002-{6:012}", f"0002-{7:012}", f"0003-{8:012}"]
    assert names(store)["operators"] == ["0002-op", "0003-op"]
    assert store.numbers("commands") == [5, 6, 7, 8]
    assert store.numbers("attempts")[0] == 2
    assert [file for file, _ in store.snapshots("op")] == [BinFile(8, (0,)), BinFile(7, (1,))]


def test_commands_of_migrations_that_are_remembered_stay(store):
    filled(store, [plan_of(epoch, commands=8) for epoch in range(4)])
    store.cut(3, [2, 5])
    assert store.numbers("commands") == [2, 3, 4, 5, 6, 7, 8]


def test_nothing_is_cut_before_there_is_a_plan_to_go_on_from(store):
    filled(store, [plan_of(epoch) for epoch in range(3)])
    before = names(store)
    store.cut(3, [])
    assert names(store) == before


def test_what_a_dead_worker_was_writing_is_swept_away_with_its_epoch(store, tmp_path):
    filled(store, [plan_of(epoch) for epoch in range(4)])
    for epoch in (1, 3):
        store.folder.draft(f"log/{LogFile(epoch, 1, 'op', 0, 1)}", "log")._stream.close()
    store.cut(2, [])
    (left,) = [path.name for path in tmp_path.rglob("*.writing")]
    assert left.startswith(f"{3:012}")


def test_snapshot_with_a_later_one_is_swept_away_and_the_last_one_never(store):
    filled(store, [plan_of(3)])
    alone = [(1, 0), (2, 0), (1, 1), (2, 10), (2, 2)]
    shared = [(1, 20, 30), (2, 20), (1, 40, 50), (2, 35, 40), (2, 50)]
    for epoch, *bins in alone + shared:
        store.write_snapshot("op", epoch, {bin: [] for bin in bins})
    store.cut(3, [])
    store.cut(3, [])
    left = [(file.epoch, *file.bins) for file, _ in store.snapshots("op")]
    assert left == [(2, 0), (1, 1), (2, 2), (2, 10), (1, 20, 30), (2, 20), (2, 35, 40), (2, 50)]
