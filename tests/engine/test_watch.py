"""A watched folder to which others can write as well, before a query in this process.

Would catch a file that ends or blocks the watch, is followed though it is not the user's, has the watch write somewhere
else, gets no answer, or is followed twice.
"""

import logging
import os
import socket
import time
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from megaphone import Assignment, LocalEngine, PlanError
from megaphone.control.policies.observation import Observation
from megaphone.control.strategies import make_plan
from megaphone.dataflow.operators import Input, key_operator
from megaphone.engine.spark import watch as module
from megaphone.engine.spark.shared_folder import MAX_BYTES
from megaphone.engine.spark.watch import Watch

WORD = pa.schema([("word", pa.string())])
HERE, THERE = Assignment([0, 1, 0, 1]), Assignment([1, 0, 1, 0])
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


class Query:
    """A query that follows plans, and counts how often it was asked to."""

    def __init__(self):
        spec = key_operator("count", Input(WORD, ("word",)), lambda word, _, n: ((n or 0) + 1, []), WORD)
        self.engine = LocalEngine(spec, workers=2, bins=4)
        self.engine.epoch([])
        self.asked = 0
        self.runs = True
        self.failure = None

    def migrate(self, plan):
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return self.engine.migrate(plan)

    def observe(self):
        return Observation.of(self.engine.epochs, time.monotonic())

    def plan(self, strategy="fluid"):
        """To where no bin is now."""
        expected = self.engine.epochs.controller.expected
        return make_plan(expected, THERE if expected == HERE else HERE, strategy).to_json().encode()


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch):
    for name, seconds in {"LOOK_EVERY_S": 0.01, "SETTLE_S": 0.1, "TELL_EVERY_S": 0.02, "RETRY_EVERY_S": 0.02}.items():
        monkeypatch.setattr(module, name, seconds)


@pytest.fixture
def query():
    return Query()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "plans").mkdir()
    return tmp_path / "plans"


@contextmanager
def watching(folder, query, **options):
    watch = Watch(folder, query.migrate, query.observe, lambda: query.runs, **options)
    try:
        yield watch
    finally:
        watch.stop()


def drop(folder, name, content):
    """A plan, as the docs say: a draft, then renamed."""
    draft = folder / ".draft"
    draft.write_bytes(content)
    draft.rename(folder / name)


def until(condition, what):
    deadline = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come about"
        time.sleep(0.005)
    return found


def answer(folder, name, kind="refused"):
    path = folder / f"{name}.{kind}"
    until(path.exists, f"{name}.{kind}")
    return path.read_text()


def check_alive(folder, query, watch):
    """A good plan is followed to its end."""
    drop(folder, "good.json", query.plan())
    assert answer(folder, "good", "accepted").startswith("fluid waiting")
    query.engine.settle()
    assert answer(folder, "good", "done") == "fluid done: 4 of 4 steps, 4 of 4 bins\n"
    assert watch.watching


HOSTILE = {
    "no JSON": (b"{", "not a plan: "),
    "no text": (b"\xff\xfe\x00", "not a plan: "),
    "nothing": (b"", "not a plan: "),
    "deep JSON": (b"[" * 1_000_000, "not a plan"),
    "deep JSON in a plan": (b'{"megaphone_plan": 1, "steps": ' + b"[" * 100_000, "not a plan"),
    "huge": (b" " * (MAX_BYTES + 1), f"the file has {MAX_BYTES + 1} bytes or more; write at most {MAX_BYTES}"),
    "huge number": (b'{"megaphone_plan": 1, "bins": ' + b"9" * 10_000 + b', "steps": []}', ""),
    "for other bins": (b'{"megaphone_plan": 1, "bins": 8, "steps": []}', "plan is for 8 bins"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_content_is_refused_and_the_watch_goes_on(folder, query, kind):
    content, reason = HOSTILE[kind]
    with watching(folder, query) as watch:
        drop(folder, "bad.json", content)
        refusal = answer(folder, "bad")
        assert refusal.startswith(reason)
        assert refusal.count("\n") == 1
        check_alive(folder, query, watch)
        assert watch.error is None


def test_strategy_of_any_name_leaves_the_watch_alive(folder, query):
    with watching(folder, query) as watch:
        drop(folder, "odd.json", query.plan().replace(b'"fluid"', b'"\\ud800\\u001b[2J"'))
        until(lambda: list(folder.glob("odd.*ed")), "an answer")
        query.engine.settle()
        assert all(path.read_text().strip().isprintable() for path in folder.glob("odd.*ed"))
        check_alive(folder, query, watch)


def a_fifo(path):
    os.mkfifo(path)


def a_directory(path):
    path.mkdir()


def a_link(path):
    target = path.parent.parent / "elsewhere.json"
    target.write_bytes(Query().plan())
    path.symlink_to(target)


def a_hard_link(path):
    a_link(path)
    target = path.resolve()
    path.unlink()
    path.hardlink_to(target)


def a_loop(path):
    path.symlink_to(path)


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as at:
        at.bind(str(path))


SPECIAL = {
    a_fifo: "not a regular file",
    a_directory: "not a regular file",
    a_socket: "not a regular file",
    a_link: "the file is a link",
    a_loop: "the file is a link",
    a_hard_link: "the file has 2 names",
}


@pytest.mark.parametrize("make", SPECIAL, ids=lambda make: make.__name__)
def test_only_regular_files_are_read(folder, query, make):
    with watching(folder, query) as watch:
        make(folder / "bad.json")
        assert SPECIAL[make] in answer(folder, "bad")
        assert query.asked == 0
        check_alive(folder, query, watch)


def test_no_link_is_written_through(folder, query, tmp_path):
    treasures = [tmp_path / f"treasure{number}" for number in range(4)]
    for treasure in treasures:
        treasure.write_text("precious")
    (folder / "query.status").symlink_to(treasures[0])
    (folder / ".query.status").symlink_to(treasures[1])
    original = query.migrate

    def migrate(plan):
        # Somebody is quick, and is there between the plan and its answer.
        (folder / "good.accepted").symlink_to(treasures[2])
        (folder / "good.done").symlink_to(treasures[3])
        return original(plan)

    query.migrate = migrate
    with watching(folder, query):
        until(lambda: not (folder / "query.status").is_symlink(), "a status")
        drop(folder, "good.json", query.plan())
        until(lambda: query.asked, "a look")
        query.engine.settle()
        for kind in ("accepted", "done"):
            until(lambda: not (folder / f"good.{kind}").is_symlink(), "an answer in place of the link")  # noqa: B023
    assert [treasure.read_text() for treasure in treasures] == ["precious"] * len(treasures)


@needs_root
def test_plan_of_somebody_else_is_followed_only_if_named(folder, query):
    folder.chmod(0o777)
    with watching(folder, query):
        drop(folder, "theirs.json", query.plan())
        os.chown(folder / "theirs.json", 4711, -1)
        refusal = answer(folder, "theirs")
        assert refusal == "the file belongs to uid 4711, who is not trusted here; name that user in watch(owners=)\n"
    (folder / "theirs.refused").unlink()
    with watching(folder, query, owners=[4711]):
        assert answer(folder, "theirs", "accepted")


@needs_root
def test_folder_of_somebody_else_is_not_watched(folder, query, monkeypatch):
    os.chown(folder, 4711, -1)
    with pytest.raises(
        PlanError, match=r"belongs to uid 4711; watch a folder of your own, or trust .* owners=\[4711\]"
    ):
        Watch(folder, query.migrate, query.observe, lambda: True)
    with watching(folder, query, owners=[4711]):
        pass


def test_folder_that_all_can_write_to_is_warned_of(folder, query, caplog):
    folder.chmod(0o777)
    with caplog.at_level(logging.WARNING, "megaphone"), watching(folder, query):
        pass
    assert "everybody can write to the watched folder" in caplog.text


@pytest.mark.parametrize("owners", ["alice", 5, ["no such user"], [True], [-1], [1.5], [2**32 - 1], [None], ["\ud800"]])
def test_owners_are_checked_when_they_are_given(folder, query, owners):
    with pytest.raises(PlanError, match="give"):
        Watch(folder, query.migrate, query.observe, lambda: True, owners)


NAMES = {
    "long": b"x" * 250,
    "unprintable": b"esc\x1b[2J",
    "newline": b"a\nb",
    "not UTF-8": b"\xff\xfe",
}


@pytest.mark.parametrize("kind", NAMES)
def test_name_that_no_answer_can_have_is_answered_under_another(folder, query, kind):
    with watching(folder, query) as watch:
        drop(folder, os.fsdecode(NAMES[kind] + b".json"), query.plan())
        (path,) = until(lambda: list(folder.glob("unnamed-*.refused")), "a refusal")
        text = path.read_text()
        assert "a plan's name has only printable characters, and at most 200 bytes; choose another" in text
        assert text.removesuffix("\n").isprintable()
        assert query.asked == 0
        check_alive(folder, query, watch)


def test_names_that_are_alike_have_answers_of_their_own(folder, query):
    names = ["a", "a.b", "a.json", "a.accepted", "ä b", "query", "x" * 200]
    with watching(folder, query):
        for name in names:
            drop(folder, f"{name}.json", query.plan())
            assert answer(folder, name, "accepted")
    assert query.asked == len(names)


def test_drafts_are_left_alone(folder, query):
    with watching(folder, query) as watch:
        for name in (".json", ".hidden.json", "other.JSON", "other.draft"):
            drop(folder, name, query.plan())
        check_alive(folder, query, watch)
    assert query.asked == 1


def test_plan_that_is_written_in_place_is_read_when_it_is_all_there(folder, query):
    plan = query.plan()
    with watching(folder, query):
        with (folder / "slow.json").open("wb") as file:
            for start in range(0, len(plan), 40):
                file.write(plan[start : start + 40])
                file.flush()
                time.sleep(0.01)
        assert answer(folder, "slow", "accepted")


def block(folder, name):
    (folder / name).mkdir()


@pytest.mark.parametrize("kind", ["accepted", "refused", "done"])
def test_answer_that_cannot_be_written_neither_repeats_the_plan_nor_ends_the_watch(folder, query, kind):
    original, ended = query.migrate, []

    def migrate(plan):
        if query.asked == 0:
            block(folder, f"first.{kind}")
        if kind == "refused":
            query.asked += 1
            raise PlanError("not today")
        ended.append(original(plan))
        return ended[-1]

    with watching(folder, query) as watch:
        watch._migrate = migrate
        drop(folder, "first.json", query.plan())
        until(lambda: query.asked, "a look")
        query.engine.settle()
        error = until(lambda: watch.error, "an error")
        assert isinstance(error, IsADirectoryError)
        watch._migrate = original
        query.asked = 0
        check_alive(folder, query, watch)
        assert query.asked == 1
    with watching(folder, query) as watch:
        drop(folder, "second.json", query.plan())
        assert answer(folder, "second", "accepted")
        assert query.asked == 2
        # Once there is room, it is answered after all.
        (folder / f"first.{kind}").rmdir()
    assert query.asked == 2


def test_answer_that_could_not_be_written_is_written_when_there_is_room(folder, query):
    with watching(folder, query) as watch:
        block(folder, "p.done")
        drop(folder, "p.json", query.plan())
        # What has an answer of any kind is left alone.
        time.sleep(0.05)
        assert query.asked == 0
        (folder / "p.done").rmdir()
        assert answer(folder, "p", "accepted")
        block(folder, "p.done")
        query.engine.settle()
        until(lambda: watch.error, "an error")
        (folder / "p.done").rmdir()
        assert answer(folder, "p", "done").startswith("fluid done")
        until(lambda: watch.error is None, "no error")


@needs_root
def test_nothing_is_followed_while_no_answer_can_be_written(folder, query, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with watching(folder, query) as watch, monkeypatch.context() as room:
        room.setattr(module.SharedFolder, "create", full)
        drop(folder, "p.json", query.plan())
        assert "No space left" in str(until(lambda: watch.error, "an error"))
        assert query.asked == 0
        room.undo()
        assert answer(folder, "p", "accepted")
        until(lambda: watch.error is None, "no error")


def test_plan_that_another_watch_took_on_is_not_followed_again(folder, query, monkeypatch):
    monkeypatch.setattr(module, "TAKEN_S", 0.1)
    (folder / ".p.taken").touch()
    drop(folder, "p.json", query.plan())
    with watching(folder, query):
        assert answer(folder, "p").startswith("it was taken on before, and the watch ended")
    assert query.asked == 0
    assert not (folder / ".p.taken").exists()


def test_plan_is_not_followed_again_when_its_answer_is_removed(folder, query):
    with watching(folder, query) as watch:
        drop(folder, "p.json", query.plan())
        assert answer(folder, "p", "accepted")
        query.engine.settle()
        assert answer(folder, "p", "done")
        for kind in ("accepted", "done"):
            (folder / f"p.{kind}").unlink()
        check_alive(folder, query, watch)
        assert query.asked == 2
        # A new file of the same name is a new plan.
        drop(folder, "p.json", query.plan())
        assert answer(folder, "p", "accepted")


def test_failure_of_any_class_is_an_answer(folder, query):
    with watching(folder, query) as watch:
        for number, failure in enumerate([RuntimeError("boom"), SystemExit(3), MemoryError(), UnicodeError("\ud800")]):
            query.failure = failure
            drop(folder, f"{number}.json", query.plan())
            assert answer(folder, str(number)).startswith(f"it could not be followed: {type(failure).__name__}")
        query.failure = None
        check_alive(folder, query, watch)


def test_watch_says_what_goes_wrong_with_the_status_and_goes_on(folder, query):
    query.observe = lambda: 1 / 0
    with watching(folder, query) as watch:
        assert isinstance(until(lambda: watch.error, "an error"), ZeroDivisionError)
        check_alive(folder, query, watch)


def test_migration_that_does_not_succeed_is_answered_too(folder, query):
    controller = query.engine.epochs.controller
    endings = {
        "cancelled": lambda: controller.cancel(HERE),
        "failed": lambda: controller.fail(0, HERE, "bin 3 cannot travel"),
        "interrupted": controller.interrupt,
    }
    with watching(folder, query):
        for phase, end in endings.items():
            drop(folder, f"{phase}.json", query.plan())
            assert answer(folder, phase, "accepted")
            end()
            assert answer(folder, phase, "done").startswith(f"fluid {phase}: 0 of 4 steps")
            controller.expect(HERE)


def test_plan_waits_for_a_query_that_is_being_started(folder, query, monkeypatch):
    query.runs = False
    with watching(folder, query):
        drop(folder, "early.json", query.plan())
        time.sleep(0.05)
        query.runs = True
        assert answer(folder, "early", "accepted")
        query.runs = False
        monkeypatch.setattr(module, "START_S", 0.05)
        drop(folder, "idle.json", query.plan())
        assert answer(folder, "idle").startswith("no query is running; start one")


def test_folder_that_was_removed_is_watched_again_when_it_is_back(folder, query):
    with watching(folder, query) as watch:
        until((folder / "query.status").exists, "a status")
        folder.rename(folder.parent / "gone")
        assert isinstance(until(lambda: watch.error, "an error"), FileNotFoundError)
        folder.mkdir()
        check_alive(folder, query, watch)
        until(lambda: watch.error is None, "no error")


def test_link_in_the_folders_place_is_not_followed(folder, query):
    other = folder.parent / "other"
    other.mkdir()
    drop(other, "old.json", query.plan())
    with watching(folder, query) as watch:
        folder.rename(folder.parent / "gone")
        folder.symlink_to(other)
        assert isinstance(until(lambda: watch.error, "an error"), OSError)
    assert sorted(path.name for path in other.iterdir()) == ["old.json"]
    assert query.asked == 0


def test_plans_by_the_thousand_are_all_answered_while_the_status_is_told(folder, query):
    count = 300
    for number in range(count):
        drop(folder, f"{number}.json", b"{}")
    with watching(folder, query):
        until(lambda: len(list(folder.glob("*.refused"))) == count, "all answers")
    assert (folder / "query.status").exists()
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_folder_to_watch_must_be_there(query, tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "nowhere", tmp_path / "file"):
        with pytest.raises(PlanError, match="is not a directory; create it first"):
            Watch(path, query.migrate, query.observe, lambda: True)
    with pytest.raises(PlanError, match="cannot be watched: "):
        Watch(Path("a\0b"), query.migrate, query.observe, lambda: True)
