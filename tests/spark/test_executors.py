"""State on real, separate executors: it leaves one process and arrives in another, on another executor.

Would catch all that works only because everything is in one JVM: paths, sockets, workers that are all on one side.
"""

import json
import os
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest

DRIVER = Path(__file__).parent / "driver.py"
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"

pytestmark = pytest.mark.cluster


@pytest.fixture
def folder(tmp_path_factory) -> Path:
    """A short path: the name of a socket has a hundred bytes."""
    return tmp_path_factory.mktemp("x")


def environment(folder: Path, host: str = "127.0.0.1") -> dict[str, str]:
    """Nothing of it listens outside this machine."""
    found = {**os.environ, "TMPDIR": str(folder), "SPARK_LOCAL_IP": host, "PYSPARK_PYTHON": sys.executable}
    found.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    return found


def drive(folder: Path, master: str, *transports: str) -> list[dict[str, Any]]:
    """What a driver sees of a move on a cluster, transport by transport."""
    command = [sys.executable, str(DRIVER), "move", master, *transports]
    done = subprocess.run(command, env=environment(folder), cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-10_000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(facts: dict[str, Any]) -> None:
    """Counts went on in another process, on another executor, where they stopped in the first."""
    old, new = facts["pids"]
    assert facts["phase"] == "done"
    assert facts["bins"] == [0, 8]
    assert facts["bytes_moved"] > 0
    assert old != new
    assert None not in facts["executors"]
    assert len({*facts["executors"], *facts["pids"]}) == 4
    counted: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for key, n, pid in facts["rows"]:
        counted[key].append((n, pid))
    assert len(counted) == 20
    for pairs in counted.values():
        assert sorted(n for n, _ in pairs) == list(range(1, len(pairs) + 1))
        here, there = ([n for n, pid in pairs if pid == where] for where in (old, new))
        assert here
        assert there
        assert max(here) + 1 == min(there)


def test_state_moves_between_executors_of_a_local_cluster(folder):
    (facts,) = drive(folder, "local-cluster[2,1,1024]", "auto")
    check(facts)
    assert not facts["by_tcp"]


def test_state_moves_between_executors_of_a_standalone_cluster(folder):
    with standalone(folder) as master:
        near, far = drive(folder, master, "auto", "tcp")
    check(near)
    check(far)
    assert (near["by_tcp"], far["by_tcp"]) == (False, True)


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A master and two workers of Spark, each a process, which end with the block."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        serve = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
        processes = [stack.enter_context(daemon(folder, "127.0.0.1", *serve, "--webui-port", "0"))]
        for host in ("127.0.0.2", "127.0.0.3"):
            work = ["org.apache.spark.deploy.worker.Worker", "--host", host, "--webui-port", "0", "--cores", "1"]
            work += ["--memory", "1g", "--work-dir", str(folder / host)]
            processes.append(stack.enter_context(daemon(folder, host, *work, master)))
        yield master
        assert all(process.poll() is None for process in processes)


@contextmanager
def daemon(folder: Path, host: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Spark's; with it end those that it started."""
    with open(folder / f"{arguments[0]}-{host}.log", "w") as log:  # noqa: PTH123
        process = subprocess.Popen(
            [str(SPARK_CLASS), *arguments], env=environment(folder, host), cwd=folder, stdout=log, stderr=log
        )
        try:
            yield process
        finally:
            ended = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            for one in ended:
                one.terminate()
            process.wait(60)
            _, left = psutil.wait_procs(ended, timeout=60)
            for one in left:
                one.kill()
