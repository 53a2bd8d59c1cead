"""Spark's standalone cluster on hosts: a master on the first, a worker of Spark's with one core on each of the others.

Everything that takes Spark a minute or two to notice is set to seconds.
Neighbours: network.py has the hosts, stage.py runs a query on it.
"""

import subprocess
from collections.abc import Iterable
from pathlib import Path

import pyspark

from megaphone.harness.chaos.warden import until
from megaphone.harness.hosts.network import Host

HOME = Path(pyspark.__file__).parent
PORT = 7077
GONE_S = 8
"""How long a host may be silent before the master gives it up; Spark's default is 60."""

SETTINGS = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "8s",
    "spark.network.timeoutInterval": "2s",
    "spark.shuffle.io.connectionTimeout": "4s",
    "spark.shuffle.io.maxRetries": "2",
    "spark.shuffle.io.retryWait": "500ms",
    # Every host takes part from the first epoch on, not only those that read the source.
    "spark.locality.wait": "0s",
    # Workers are spread over the executors that are there in the first epoch: wait for all.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "90s",
}


def environment(host: Host, folder: Path) -> dict[str, str]:
    """What every process on a host is told: where it is, and where its faults are."""
    return {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": host.address,
        "SPARK_LOCAL_DIRS": str(host.temporary),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"-Dspark.worker.timeout={GONE_S}",
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={host.temporary} -XX:-UsePerfData",
        "MEGAPHONE_FAULTS": str(faults_of(host, folder)),
    }


def faults_of(host: Host, folder: Path) -> Path:
    """Where faults are set for the processes of one host."""
    path = folder / "faults" / host.name
    path.mkdir(parents=True, exist_ok=True)
    return path


def standalone(head: Host, others: Iterable[Host], folder: Path) -> str:
    """Start a cluster, which ends with its hosts; gives the address of its master."""
    master = f"spark://{head.address}:{PORT}"
    _daemon(head, folder, "master.Master", "--host", head.address, "--port", str(PORT), "--webui-port", "0")
    log = folder / "head.log"
    until(lambda: "elected leader" in log.read_text() or None, "a master", 60.0)
    for host in others:
        work = ["--host", host.address, "--webui-port", "0", "--cores", "1", "--memory", "1g"]
        _daemon(host, folder, "worker.Worker", *work, "--work-dir", str(folder / f"work-{host.name}"), master)
    return master


def is_daemon(command: str) -> bool:
    """Is this a process of the cluster's own, which stays when an application has ended?"""
    return any(f"org.apache.spark.deploy.{kind}" in command for kind in ("master.Master", "worker.Worker"))


def _daemon(host: Host, folder: Path, kind: str, *arguments: str) -> None:
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
    with (folder / f"{host.name}.log").open("wb") as log:
        host.start(command, environment(host, folder), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
