"""What a Python process of Spark's has loaded stays out of the garbage collector's sight, and it leaves without noise.

Would catch an end that hides an error.
"""

import gc
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from megaphone.engine.spark.process import settle_in


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_is_loaded_later_is_settled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    settle_in()
    first = gc.get_freeze_count()
    late = ModuleType("loaded_by_a_later_task")
    late.__dict__["lists"] = [[] for _ in range(10_000)]
    monkeypatch.setitem(sys.modules, late.__name__, late)
    settle_in()
    assert gc.get_freeze_count() - first > 9_000


def test_what_comes_without_a_module_is_collected_as_ever() -> None:
    settle_in()
    first, own = gc.get_freeze_count(), [[] for _ in range(10_000)]
    settle_in()
    assert gc.get_freeze_count() <= first
    # Frozen objects are not among these.
    assert any(each is own for each in gc.get_objects())


PROBE = """
import os
from megaphone.engine.spark.process import leave_quietly

def main(infile, outfile):
    if "LOUD" not in os.environ:
        leave_quietly()
    asked = infile.read(1)
    if asked == b"!":
        raise ValueError("an error of its own")
    outfile.write(b"an answer")
"""


@pytest.fixture
def told(tmp_path: Path) -> Callable[..., str]:
    """What Spark's daemon tells the terminal of a process that has done a task when it is asked something else."""
    (tmp_path / "pyspark_probe.py").write_text(PROBE)
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": tempfile.gettempdir(),
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        "SPARK_REUSE_WORKER": "1",
    }

    def told(asked: bytes, **more: str) -> str:
        command = [sys.executable, "-m", "pyspark.daemon", "pyspark_probe"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment | more) as daemon:
            assert daemon.stdout is not None
            with socket.socket(socket.AF_UNIX) as spark:
                spark.connect(daemon.stdout.read(int.from_bytes(daemon.stdout.read(4), "big")))
                answers = spark.makefile("rb")
                process = psutil.Process(int.from_bytes(answers.read(4), "big"))
                spark.sendall(b"?")
                assert answers.read(9) == b"an answer"
                spark.sendall(asked)
                answers.close()
            process.wait(10)
            return daemon.communicate()[1].decode()

    return told


def test_process_that_spark_hangs_up_on_leaves_quietly(told: Callable[..., str]) -> None:
    assert told(b"") == ""
    # Without it, so that we notice when Spark has changed.
    assert "BrokenPipeError" in told(b"", LOUD="1")


def test_error_of_its_own_is_told_all_the_same(told: Callable[..., str]) -> None:
    assert "ValueError: an error of its own" in told(b"!")
