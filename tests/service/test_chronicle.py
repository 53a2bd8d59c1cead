"""Would catch a line of progress that Spark's readers could not read, counts what was not there, or grows for ever.

And a log line that is no JSON, and a log that has one for every epoch.
"""

import json
import logging
import re
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from megaphone import LocalEngine
from megaphone.configuration import Assignment
from megaphone.control.strategies import make_plan
from megaphone.dataflow.operators import Input, key_operator
from megaphone.service import chronicle as module
from megaphone.service.chronicle import Chronicle
from megaphone.service.logs import JsonLines, tell

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
WORD = pa.schema([("word", pa.string())])


def count(word, _, n):
    return (n or 0) + 1, []


@pytest.fixture
def engine():
    return LocalEngine(key_operator("count", Input(WORD, ("word",)), count, WORD), workers=2, bins=4)


@pytest.fixture
def chronicle():
    return Chronicle("id", "run", "words", "c1")


def run(engine, chronicle, *epochs):
    for rows in epochs:
        engine.epoch([(word,) for word in rows])
        chronicle.note(engine.epochs, 2)


def test_line_is_of_the_epoch_before(engine, chronicle, monkeypatch):
    """The local engine reports at once, so an epoch's records are there when it is noted."""
    run(engine, chronicle, "ab", "abc", "")
    lines = chronicle.since(-1)
    assert [(line["batchId"], line["numInputRows"]) for line in lines] == [(0, 3), (1, 0)]
    assert {key: lines[0][key] for key in ("id", "runId", "name")} == {"id": "id", "runId": "run", "name": "words"}
    assert lines[0]["stateOperators"][0]["operatorName"] == "count"
    assert lines[0]["stateOperators"][0]["customMetrics"]["recordsApplied"] == 3
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", lines[0]["timestamp"])
    assert chronicle.since(0) == lines[1:]


def test_migration_is_told(engine, chronicle):
    run(engine, chronicle, "a")
    engine.migrate(make_plan(Assignment.round_robin(4, 2), Assignment([0] * 4), "fluid"))
    run(engine, chronicle, "a", "a")
    assert chronicle.since(0)[-1]["megaphone"]["migration"].startswith("fluid running: ")


def test_old_lines_are_forgotten(engine, chronicle):
    run(engine, chronicle, *["a"] * 4)
    assert len(chronicle.since(-1)) == 3
    assert chronicle._lines.maxlen == module.LINES


def test_page_explains_every_field(engine, chronicle):
    run(engine, chronicle, "a", "a")
    (line,) = chronicle.since(-1)
    told = set(re.findall(r"^\| `([\w.\[\]]+)`", PAGE.read_text(), re.MULTILINE))
    assert set(fields(line)) <= told


def fields(value, before=""):
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from fields(inner, f"{before}{name}.")
        elif isinstance(inner, list):
            yield from fields(inner[0], f"{before}{name}[].")
        else:
            yield f"{before}{name}"


@pytest.fixture
def clock(monkeypatch):
    """The seconds that the chronicle sees, in a list of one."""
    seconds = [1000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: seconds[0]))
    return seconds


def progress(caplog):
    return [json.loads(JsonLines().format(record)) for record in caplog.records]


def test_log_has_one_line_a_minute(engine, chronicle, caplog, clock):
    """At ten epochs a second, a line for each would be 4.5 GB a week."""
    caplog.set_level(logging.INFO, "megaphone")
    for _ in range(1250):
        run(engine, chronicle, "ab")
        clock[0] += 0.125
    first, second = progress(caplog)
    assert (first["logger"], first["level"]) == ("megaphone.progress", "INFO")
    assert [line["megaphone"]["epochs"] for line in (first, second)] == [480, 480]
    assert [line["batchId"] for line in (first, second)] == [479, 959]
    assert [line["numInputRows"] for line in (first, second)] == [960, 960]
    assert first["durationMs"]["triggerExecution"] == 125
    assert first["processedRowsPerSecond"] == 16
    assert first["stateOperators"][0]["customMetrics"]["recordsApplied"] == 960
    assert len(chronicle.since(-1)) == module.LINES


def test_log_has_every_epoch_if_asked_for(engine, chronicle, caplog):
    caplog.set_level(logging.DEBUG, "megaphone.progress")
    run(engine, chronicle, "a", "ab", "")
    told = progress(caplog)
    assert [(line["level"], line["batchId"], line["megaphone"]["epochs"]) for line in told] == [
        ("DEBUG", 0, 1),
        ("DEBUG", 1, 1),
    ]


def test_events_are_lines_of_json(caplog):
    caplog.set_level(logging.INFO, "megaphone")
    tell("worker joined", worker=3, host="ü")
    (event,) = progress(caplog)
    assert (event["event"], event["worker"], event["host"]) == ("worker joined", 3, "ü")
    assert event["message"] == "worker joined: worker 3, host ü"


def test_exception_is_in_the_line():
    try:
        raise ValueError("no")
    except ValueError as error:
        record = logging.LogRecord("megaphone", logging.ERROR, "", 0, "bad", None, (ValueError, error, None))
    assert "ValueError: no" in json.loads(JsonLines().format(record))["traceback"]
