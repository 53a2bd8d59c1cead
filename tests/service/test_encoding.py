"""Would catch a name or a message that costs the whole answer, the log line, or the metrics it is in."""

import json
import logging

from hypothesis import given
from hypothesis import strategies as st

from megaphone.configuration import Assignment
from megaphone.control.controller import Migration
from megaphone.control.strategies import make_plan
from megaphone.service.answers import Answer, Refusal
from megaphone.service.encoding import encode_json, encode_text
from megaphone.service.logs import LOGGER, JsonLines, tell
from megaphone.service.views import of_migration

ANY_TEXT = st.text(st.characters())
ANY_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
)


@given(ANY_VALUE)
def test_any_value_becomes_json(value):
    json.loads(encode_json(value).decode())


@given(ANY_TEXT)
def test_text_is_sent_as_it_is_wherever_that_is_possible(text):
    sent = json.loads(encode_json({"text": text}))["text"]
    assert sent.encode() == encode_text(text)
    if not any(0xD800 <= ord(character) < 0xE000 for character in text):
        assert sent == text


def test_history_is_shown_whatever_its_strategies_are_called():
    plan = make_plan(Assignment([0, 1]), Assignment([1, 0]), "fluid")
    migration = Migration(plan)
    object.__setattr__(plan, "strategy", "\ud800")
    migration.end("failed", "cannot pickle '\udcff'")
    (shown,) = json.loads(Answer.of([of_migration(migration)]).body)
    assert shown["strategy"] == "\\ud800"
    assert shown["text"] == "\\ud800 failed: 0 of 2 steps, 0 of 2 bins; cannot pickle '\\udcff'"


def test_refusal_is_sent_whatever_it_quotes():
    assert json.loads(Refusal(409, "no query '\ud800'").answer().body)["error"] == "no query '\\ud800'"


def test_event_is_logged_whatever_is_in_it(tmp_path):
    paths = [tmp_path / "text", tmp_path / "json"]
    handlers = [logging.FileHandler(path, encoding="utf-8") for path in paths]
    handlers[1].setFormatter(JsonLines())
    failed = []
    level = LOGGER.level
    LOGGER.setLevel(logging.INFO)
    for handler in handlers:
        handler.handleError = failed.append
        LOGGER.addHandler(handler)
    try:
        tell("migration: submit", query="q", migration="\ud800 waiting")
    finally:
        LOGGER.setLevel(level)
        for handler in handlers:
            LOGGER.removeHandler(handler)
            handler.close()
    assert not failed
    assert paths[0].read_text() == "migration: submit: query q, migration \\ud800 waiting\n"
    assert json.loads(paths[1].read_text())["migration"] == "\\ud800 waiting"
