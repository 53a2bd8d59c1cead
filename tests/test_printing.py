"""Would catch an escape of somebody else's that reaches a terminal, or a text that reads as another one."""

import io
import json
import logging
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megaphone import cli
from megaphone.bins import WorkerId
from megaphone.configuration import Assignment
from megaphone.control.controller import Migration
from megaphone.control.policies.policy import Decision
from megaphone.control.strategies import make_plan
from megaphone.dataflow.operators import Input, key_operator
from megaphone.errors import FoldError
from megaphone.harness.nexmark.command import Failed, _refuse
from megaphone.printing import LOGGER, plain, printable
from megaphone.service import directory, views
from megaphone.service.directory import Entry, Query
from megaphone.service.encoding import encode_json
from megaphone.service.logs import tell
from megaphone.service.server import Answer, Refusal, Server
from megaphone.service.status import Status, WorkerStatus

EVIL = "\x1b]0;title\x07\x1b[2J\x9b2J\x7f\r\x08\u202e\u2066\u2028"
"""A title, two ways to clear the screen, a way back, and marks that turn the direction of writing."""


def is_harmless(text):
    return all(c.isprintable() or c in "\n\t" for c in text)


@given(st.text())
def test_printed_text_is_harmless_and_printable_text_is_as_it_was(text):
    assert is_harmless(plain(text))
    assert printable(text).isprintable()
    assert plain(plain(text)) == plain(text)
    if text.isprintable():
        assert plain(text) == printable(text) == text


@given(st.text(st.characters(codec="utf-8")))
def test_json_is_harmless_and_says_the_same(text):
    assert is_harmless(encode_json({text: text}).decode())
    assert json.loads(encode_json({text: text})) == {text: text}


def test_what_is_printed_of_plans_migrations_decisions_and_errors_is_harmless():
    plan = replace(make_plan(Assignment([0, 0]), Assignment([1, 1]), "fluid"), strategy=EVIL)
    for thing in (plan, Migration(plan, reason=EVIL), Decision(0.0, 1, EVIL), FoldError(f"first\nsecond {EVIL}")):
        assert is_harmless(str(thing))
        assert "title" in str(thing)


def test_log_lines_are_harmless_whoever_writes_them():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    LOGGER.addHandler(handler)
    before = LOGGER.level
    LOGGER.setLevel(logging.INFO)
    try:
        tell("worker joined", host=EVIL)
        logging.getLogger("megaphone").warning("an error: %s", EVIL)
        try:
            raise ValueError(EVIL)
        except ValueError:
            LOGGER.exception("it ended")
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before)
    assert is_harmless(stream.getvalue())
    assert stream.getvalue().count("title") == 3
    assert "raise ValueError(EVIL)\nValueError: \\x1b]0;title" in stream.getvalue()


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def evil(view):
    """A view in which every text has escapes, also what operators are called."""
    if isinstance(view, dict):
        return {EVIL if name == "count" else name: evil(value) for name, value in view.items()}
    return [evil(value) for value in view] if isinstance(view, list) else EVIL if isinstance(view, str) else view


def evil_desk(request):
    """Answers as a control would, but for the texts."""
    migration = Migration(make_plan(Assignment([0]), Assignment([1]), "fluid"))
    migration.end("done")
    worker = WorkerStatus(WorkerId(0), "here", 11, 10, 1)
    known = {"count": "8"}, {"count": 1}, {"count": 900}
    status = Status("aaaa", 7, *known, Assignment([0]), (worker,), migration, name="words", control="c1")
    if request.path == "/cancel":
        raise Refusal(409, EVIL)
    if request.path == "/status":
        return Answer.of(evil([views.of_status(status)]))
    seen = views.of_plan(migration.plan) if request.path == "/plan" else views.of_migration(migration)
    return Answer.of(evil([seen] if request.path == "/history" else seen))


COMMANDS = ["ps", "status", "history", "dashboard", "plan rebalance", "rebalance", "pause", "cancel", "status nobody"]


@pytest.mark.parametrize("json", [[], ["--json"]], ids=["people", "programs"])
@pytest.mark.parametrize("command", COMMANDS)
def test_command_writes_nothing_that_is_an_order(home, capsys, command, json):
    server = Server(evil_desk, "token")
    try:
        directory.enter(Entry.of_this_process("c1", server.address, "token", (Query("aaaa", EVIL),)))
        cli.main([*command.split(), *json])
    finally:
        server.close()
    out, err = capsys.readouterr()
    assert out + err != ""
    assert is_harmless(out + err)


@pytest.mark.parametrize("arguments", [["status", "a", EVIL], [EVIL]], ids=["extra", "verb"])
def test_complaints_about_arguments_are_harmless(capsys, arguments):
    with pytest.raises(SystemExit):
        cli.main(arguments)
    err = capsys.readouterr().err
    assert "title" in err
    assert is_harmless(err)


@pytest.mark.parametrize("options", [[], ["--bins"], ["--json"]], ids=str)
def test_checkpoint_is_shown_without_an_order(stored_query, capsys, tmp_path, options):
    words = Input(pa.schema([(EVIL, pa.string())]), (EVIL,))
    checkpoint = tmp_path / EVIL
    checkpoint.mkdir()
    spec = key_operator("count", words, lambda word, _, n: (1, []), pa.schema([("n", pa.int64())]))
    stored_query(spec, checkpoint=checkpoint).run([("a",)])
    codes = [cli.main(["state", str(place), *options]) for place in (checkpoint, checkpoint / EVIL, "\udcff")]
    out, err = capsys.readouterr()
    assert codes == [0, 1, 1]
    assert ("title" in out) is (options != ["--bins"])
    assert "title" in err
    assert is_harmless(out + err)


def test_nexmark_complains_without_an_order(capsys):
    assert _refuse(Failed(EVIL), 1) == 1
    assert is_harmless(capsys.readouterr().err)
