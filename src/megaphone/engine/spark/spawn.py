"""Starting a worker process from a Spark task, on the machine the task runs on.

The process belongs to nobody once it runs: it must outlive the Python process of the task, and leave no corpse in it.
Neighbours: placement.py says which, worker.py is what starts.
"""

import os
import socket
import subprocess
import sys
from functools import cache

import psutil

from megaphone.engine.spark.messages import Address, Birth, Key, WorkerConfig, dump


def spawn(coordinator: Address, lease: Address, secret: str, unix: bool, key: Key, birth: Birth) -> None:
    """Start a worker; it reports to the coordinator by itself."""
    config = WorkerConfig(
        key, birth.worker, birth.incarnation, coordinator, lease, secret, unix, executor_pid(), birth.warm
    )
    # Through a shell that ends at once: the worker is then nobody's child, and the task's process need not reap it.
    # The secret goes by standard input, where no process list shows it.
    script = 'exec 3<&0; "$@" <&3 3<&- >&2 &'
    command = ["/bin/sh", "-c", script, "sh", sys.executable, "-m", "megaphone.engine.spark.worker"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment["MEGAPHONE_EXECUTOR_PID"] = str(executor_pid() or "")
    subprocess.run(command, input=dump(config), check=True, start_new_session=True, env=environment)


@cache
def executor_pid() -> int | None:
    """The Java process this task works for, if it is on this machine as one would expect."""
    for process in psutil.Process().parents():
        if process.name() == "java":
            return int(process.pid)
    return None


@cache
def executor_id() -> str:
    """A name for the executor of this task."""
    return f"{socket.gethostname()}/{executor_pid()}"
