"""Would catch an example that does not run, or does not do what it says.

The counts that the programs keep are compared with a batch over the same events, as many as Spark has committed.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import megaphone

EXAMPLES = Path(__file__).parents[2] / "examples"
WORKERS, BINS, KEYS = 2, 16, 60


def count(key, _, n):
    """A running count."""
    return (n or 0) + 1, []


def test_external_controller_evens_the_load_by_writing_plans(spark, feed, start, tmp_path):
    control = megaphone.Control(spark, workers=WORKERS, bins=BINS, assignment=[0] * BINS)
    source = feed("k long")
    running = start(megaphone.state_machine(control, source.frame, "k", count, "n long"))

    def send():
        source.send([(key,) for key in range(KEYS)])
        running.settle()

    directory = tmp_path / "plans"
    directory.mkdir()
    watch = control.watch(directory)
    program = [sys.executable, EXAMPLES / "external_controller.py", directory, "--looks", "2"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as external:
        try:
            running.until(lambda: send() or external.poll() is not None, "its end")
            told = external.communicate()[0]
        finally:
            external.kill()
            watch.stop()
    assert external.returncode == 0
    assert "done: external done: " in told
    (status,) = control.status()
    assert len({int(owner) for owner in status.assignment.owners}) == WORKERS
    # It only wrote control messages: what they did is in the query's own history.
    assert {migration.strategy for migration in control.history()} == {"external"}


@contextmanager
def running(program, *arguments, home):
    """An example in a process of its own, until Ctrl-C."""
    command = [sys.executable, EXAMPLES / program, *map(str, arguments)]
    with (
        (home / "errors").open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment(home)) as process,
    ):
        try:
            yield process
            process.send_signal(signal.SIGINT)
            process.wait(60)
        finally:
            process.kill()


def environment(home):
    return {**os.environ, "XDG_RUNTIME_DIR": str(home)}


def ask(home, *words):
    """What the command `megaphone` answers; None if it does not."""
    command = [sys.executable, "-m", "megaphone.cli", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(home))
    return json.loads(done.stdout) if done.returncode == 0 else None


def committed(checkpoint):
    """The last epoch that Spark has committed; -1 if there is none."""
    return max((int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")), default=-1)


def has_passed(checkpoint, epoch):
    """Has Spark committed an epoch after this one?"""
    return committed(checkpoint) > epoch


def expected(spark, checkpoint):
    """How many bids each auction has among the events that Spark has committed."""
    lines = (checkpoint / "offsets" / str(committed(checkpoint))).read_text().splitlines()
    (events,) = {json.loads(line)["event"] for line in lines if '"event"' in line}
    bids = spark.read.format("nexmark").options(kind="bid", rate=5000, events=events).load()
    return {row.auction: row["count"] for row in bids.groupBy("auction").count().collect()}


def kept(spark, checkpoint):
    """The counts that our operator keeps."""
    return {int(row.key): int(row.state) for row in megaphone.read_state(spark, str(checkpoint)).collect()}


def workers(home):
    """How many there are, as soon as there are any."""
    status = ask(home, "status")
    return status and len(status["workers"])


def test_rescaled_count_counts(spark, tmp_path, wait_until):
    checkpoint = tmp_path / "checkpoint"
    with running("rescaled_count.py", checkpoint, home=tmp_path):
        wait_until(partial(has_passed, checkpoint, 1), "epochs")
    counts = kept(spark, checkpoint)
    assert counts
    assert counts == expected(spark, checkpoint)


@pytest.mark.slow
def test_rescaled_count_is_right_after_a_rescale_and_a_new_start(spark, tmp_path, wait_until):
    checkpoint, seen = tmp_path / "checkpoint", []
    for known in (2, 4):
        before = committed(checkpoint)
        with running("rescaled_count.py", checkpoint, home=tmp_path):
            assert wait_until(lambda: workers(tmp_path), "workers") == known
            assert ask(tmp_path, "rescale", "--workers", "4")["phase"] == "done"
            assert workers(tmp_path) == 4
            wait_until(partial(has_passed, checkpoint, before + 1), "epochs")
        seen.append(kept(spark, checkpoint))
        assert seen[-1] == expected(spark, checkpoint)
    assert sum(seen[1].values()) > sum(seen[0].values())
    recount = [sys.executable, EXAMPLES / "recount.py", checkpoint]
    told = subprocess.run(recount, capture_output=True, text=True, check=True, timeout=240).stdout
    assert told.endswith(f" {len(seen[1]):,} auctions, 0 of them wrong\n")


@pytest.mark.slow
def test_plain_count_counts(spark, tmp_path, wait_until):
    checkpoint = tmp_path / "checkpoint"
    with running("plain_count.py", checkpoint, home=tmp_path):
        wait_until(partial(has_passed, checkpoint, 1), "epochs")
    rows = spark.read.format("statestore").load(str(checkpoint)).collect()
    assert {row.key.auction: row.value["count"] for row in rows} == expected(spark, checkpoint)
