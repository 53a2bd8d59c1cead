"""Would catch an example that does not run, or does not do what it says."""

import subprocess
import sys
from pathlib import Path

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
    assert {migration.plan.strategy for migration in control.history()} == {"external"}
