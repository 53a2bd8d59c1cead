"""Would catch a warning that is written in every epoch while something stays broken."""

import logging
from types import SimpleNamespace

import pytest

from megaphone.configuration import Assignment
from megaphone.engine.spark import run as module
from megaphone.engine.spark.memoir import CUT_EVERY
from megaphone.engine.spark.messages import Key
from megaphone.engine.spark.rpc import Caller
from megaphone.engine.spark.run import Run, Terms


@pytest.fixture
def run(tmp_path):
    terms = Terms(Assignment.round_robin(4, 2), 2, {}, str(tmp_path), "control0", 0.05, False, None)
    run = Run(Key("q", "r", "c"), terms, 0, Caller("s"), lambda: 1, lambda _: False, lambda _: None)
    yield run
    run.close()


def test_log_that_cannot_be_cut_is_told_once_a_minute(run, tmp_path, caplog, monkeypatch):
    seconds = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    caplog.set_level(logging.WARNING, "megaphone")
    plan = tmp_path / "megaphone" / "control0" / "plans" / "000000000007-0001"
    plan.parent.mkdir()
    plan.write_bytes(b"torn")
    for epoch in range(0, 125 * CUT_EVERY, CUT_EVERY):
        run._cut(epoch, 0, [])
        seconds[0] += 1
    assert [record.message[:34] for record in caplog.records] == ["the log of query q cannot be cut, "] * 3
