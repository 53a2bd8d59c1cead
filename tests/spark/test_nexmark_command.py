"""Would catch a run of a NEXMark query that loses events, does not migrate, tells no summary, or leaves processes."""

import io
import json
import os
import re
import signal
import subprocess
import sys

import psutil
import pytest

from megaphone import cli
from megaphone.harness.nexmark.arguments import settings_of
from megaphone.harness.nexmark.command import follow, tell
from megaphone.harness.nexmark.interruption import Interruption
from megaphone.harness.nexmark.job import Job
from megaphone.harness.nexmark.progress import Line

SMALL = ["--rate", "2000", "--bins", "8", "--master", "local[2]"]


def ends(checkpoint):
    """How far each epoch came, by Spark's own log."""
    logs = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    lines = ((json.loads(line) for line in log.read_text().splitlines() if '"event"' in line) for log in logs)
    return [min(offset["event"] for offset in found) for found in lines]


def test_run_ends_with_every_event_done_and_every_bin_moved(spark, tmp_path, capsys):
    told = ["q3", *SMALL, "--duration", "4s", "--migrate", "batched@2.2s:batch=2", "--out", str(tmp_path)]
    settings, line = settings_of(cli._parser().parse_args(["nexmark", *told])), Line(progress := io.StringIO(), False)
    job = Job(spark, settings, str(tmp_path / "checkpoint"))
    follow(job, line, Interruption())
    assert tell(job, line, Interruption(), as_json=False) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["ended"] == "complete"
    assert summary["events"] >= 8_000
    assert summary["preload"] + summary["events"] == ends(tmp_path / "checkpoint")[summary["epochs"] - 1]
    (moved,) = summary["migrations"]
    assert (moved["phase"], moved["steps_done"], moved["bins_moved"]) == ("done", 2, 4)
    assert moved["bytes_moved"] > 0
    samples = (summary["warm_up"], summary["steady"], moved["latency"])
    assert sum(latency["events"] for latency in samples) == summary["events"]
    assert summary["late"] == 0
    assert summary["frontier_lag"]["max_ms"] > 0
    assert (tmp_path / "latency.png").read_bytes().startswith(b"\x89PNG")
    assert "batched at 2.2 s: done, 2 of 2 steps, 4 of 4 bins" in capsys.readouterr().out
    assert "events/s, latency " in progress.getvalue()


@pytest.mark.slow
def test_interrupted_command_tells_what_was_done_and_leaves_nothing(tmp_path_factory, wait_until):
    # A short path: the name of a socket has a hundred bytes.
    folder = tmp_path_factory.mktemp("n")
    command = [sys.executable, "-m", "megaphone.cli", "nexmark", "q5", *SMALL, "--duration", "10m", "--json"]
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(
        [*command, "--out", str(folder / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        said = ""
        while not re.search(r" [1-9][\d,]* events/s", said):
            said += (line := process.stderr.readline())
            assert line, said
        family = processes_of(process.pid)
        assert len(family) > 3
        # Ctrl-C goes to all that the terminal has in its foreground.
        os.killpg(process.pid, signal.SIGINT)
        told, rest = process.communicate(timeout=120)
    assert process.returncode == 130, rest
    summary = json.loads(told)
    assert (summary["ended"], summary["events"] > 0) == ("interrupted", True)
    assert not {"\x1b", "\r"} & {*told, *said, *rest}
    wait_until(lambda: not [one for one in family if alive(one)], "the end of all")
    assert [path.name for path in folder.glob("megaphone-*")] == []


def processes_of(pid):
    """A process, what it has started, and the workers, which are nobody's children."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    java = {str(one.pid) for one in family if one.name() == "java"}
    return family + [one for one in psutil.process_iter() if environment(one).get("MEGAPHONE_EXECUTOR_PID") in java]


def environment(process):
    try:
        return process.environ()
    except psutil.Error:
        return {}


def alive(process):
    """Does it run? Who waits to be reaped does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
