"""No process is left: after stop, after a failure, after Ctrl-C, after the driver was killed.

Would catch a worker that outlives its query. Drivers that are ended here are processes of their own.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path

import psutil
import pytest

import megaphone
from megaphone.engine.spark.coordinator import Coordinator

DRIVER = Path(__file__).parent / "driver.py"


def count(key, _, n):
    """A running count that fails when it meets a seven."""
    if key == 7:
        raise ValueError("seven")
    return (n or 0) + 1, []


@pytest.fixture
def counting(spark, feed, start):
    """A running count and the processes of its workers."""
    control = megaphone.Control(spark, workers=3, bins=8)
    source = feed("k long")
    running = start(megaphone.state_machine(control, source.frame, "k", count, "k long"))
    source.send([(1,), (2,)])
    running.settle()
    (status,) = control.status()
    return control, source, running, {worker.pid for worker in status.workers}


def test_no_worker_is_left_after_stop(counting, worker_processes, wait_until):
    control, _, running, workers = counting
    assert len(workers) == 3
    assert workers <= worker_processes().keys()
    migration = control.migrate([0] * 8, "fluid", gap=10_000)
    running.query.stop()
    wait_until(lambda: not workers & worker_processes().keys(), "the end of the workers")
    # Who waits for a migration of a query that has ended is not left waiting.
    assert migration.wait(120).phase == "interrupted"
    assert "goes on when it is started again from its checkpoint" in str(migration)
    wait_until(lambda: control.status() == [], "the end of the run")


def test_no_worker_is_left_after_a_failure(counting, worker_processes, wait_until):
    _, source, running, workers = counting
    source.send([(7,)])
    with pytest.raises(Exception, match="ValueError: seven"):
        running.settle()
    wait_until(lambda: not workers & worker_processes().keys(), "the end of the workers")


def test_nothing_is_left_of_a_coordinator_that_is_closed(spark, wait_until):
    # As with one Spark application after another in a process.
    coordinator = Coordinator(spark)
    left = weakref.ref(coordinator)
    coordinator.close()
    del coordinator
    wait_until(lambda: gc.collect() >= 0 and left() is None, "the end of the coordinator")


@pytest.fixture
def folder():
    """A folder with a short path: that of a socket has a hundred bytes, and Spark leaves 61 of them to its folder."""
    with tempfile.TemporaryDirectory(prefix="m") as name:
        yield Path(name)


@pytest.fixture
def started():
    """Processes that end with the test, however that ends."""
    processes = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize("ending", ["SIGKILL", "SIGINT"])
def test_no_process_is_left_when_the_driver_is_ended(ending, folder, started, wait_until):
    environment = {**os.environ, "TMPDIR": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, str(DRIVER), "run", "local[2]"]
    with open(folder / "stderr", "w") as log:  # noqa: PTH123
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment, start_new_session=True)
    started.append(driver)
    with driver.stdout:
        line = driver.stdout.readline()
        assert line, (folder / "stderr").read_text()
        workers = [psutil.Process(pid) for pid in json.loads(line)["workers"]]
        children = psutil.Process(driver.pid).children(recursive=True)
        assert len(workers) == 3
        assert any(child.name() == "java" for child in children)
        assert {path.name[0] for path in folder.glob("megaphone-*/*.sock")} == {".", "c", "l", "w"}
        end(driver, ending)
        wait_until(lambda: not [process for process in workers + children if alive(process)], "the end of all")
    # All but the run directory, which is swept by whoever looks next.
    assert list(folder.glob("megaphone-*/*.sock")) == []
    if ending == "SIGINT":
        assert list(folder.glob("megaphone-*")) == []


def test_no_jvm_is_left_when_the_start_is_interrupted(wait_until):
    start = "from megaphone.harness.session import quiet_session; quiet_session('interrupted', 'local[2]')"
    with subprocess.Popen([sys.executable, "-c", start], stderr=subprocess.DEVNULL, start_new_session=True) as driver:
        children: list[psutil.Process] = []

        def has_child() -> bool:
            children[:] = psutil.Process(driver.pid).children()
            return bool(children)

        wait_until(has_child, "a JVM")
        os.killpg(driver.pid, signal.SIGINT)
        assert driver.wait(60) != 0
        wait_until(lambda: not any(map(alive, children)), "the end of the JVM")


def end(driver: subprocess.Popen, ending: str) -> None:
    """End it, as the system does or as a person would.

    Ctrl-C goes to all that the terminal has in its foreground. The first one may stay unheard (2 of 33 tries): the
    driver's main thread was found waiting in a read, and a second one ended it. It seems that CPython notices one that
    comes on the way into a read only when that returns, and here that is the end of the query.
    """
    kill, patience = (os.kill, 120) if ending == "SIGKILL" else (os.killpg, 30)
    for _ in range(4):
        kill(driver.pid, getattr(signal, ending))
        try:
            driver.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        return
    os.killpg(driver.pid, signal.SIGKILL)
    pytest.fail(f"the driver goes on after {ending}")


def alive(process: psutil.Process) -> bool:
    """Does it run? Who waits to be reaped does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
