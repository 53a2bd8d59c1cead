"""Sockets between Spark and its own Python processes: Unix domain sockets, where only this user can reach them.

Spark does without authentication on them, so whoever can open one runs code as the query's user. By default they lie in
the temporary directory with the rights that the umask leaves; here they get a folder that nobody else can enter.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext

from megaphone.durability.rights import fault_of_folder

ENABLED = "spark.python.unix.domain.socket.enabled"
FOLDER = "spark.python.unix.domain.socket.dir"
ENABLED_BY_ENVIRONMENT = "PYSPARK_UDS_MODE"

LONGEST = 61
"""Bytes of the folder's path: Spark takes no longer one, since a socket's path has about a hundred."""


def private_sockets(given: Mapping[str, str]) -> dict[str, str]:
    """Settings for a session that is about to begin with those given; none if it cannot have private sockets."""
    if SparkContext._active_spark_context is not None or _is_remote(given):
        return {}
    settings = SparkConf(loadDefaults=False).setAll(list(given.items()))
    # As Spark would next. From here on it can tell what spark-submit and spark-defaults.conf say, of the master too.
    SparkContext._ensure_initialized(conf=settings)
    known = {**dict(SparkConf().getAll()), **given}
    if not is_local(known.get("spark.master", "")) or _is_settled(known):
        return {}
    folder = _private_folder()
    return {} if folder is None else {ENABLED: "true", FOLDER: folder}


def is_local(master: str) -> bool:
    """Is all of Spark on this machine, and does it run as this user?

    >>> [is_local(master) for master in ("local", "local[2,4]", "local-cluster[2,1,1024]", "yarn", "spark://local:7077")]
    [True, True, True, False, False]
    """
    return master == "local" or master.startswith(("local[", "local-cluster["))


def _is_remote(given: Mapping[str, str]) -> bool:
    """Is it a session of Spark Connect, whose processes are another application's?"""
    mode = given.get("spark.api.mode", os.environ.get("SPARK_API_MODE", ""))
    named = {"SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"} & os.environ.keys()
    return bool(named) or "spark.remote" in given or mode.lower() == "connect"


def _is_settled(known: Mapping[str, str]) -> bool:
    """Has the user decided?"""
    return not known.keys().isdisjoint((ENABLED, FOLDER)) or ENABLED_BY_ENVIRONMENT in os.environ


def _private_folder() -> str | None:
    """A folder that only this user can enter; None if its path were too long, or others could put one in its place."""
    parent = os.path.realpath(tempfile.gettempdir())
    if fault_of_folder(parent) is not None:
        return None
    folder = tempfile.mkdtemp(prefix="megaphone-", dir=parent)
    if len(os.fsencode(folder)) > LONGEST:
        Path(folder).rmdir()
        return None
    remove_with_spark(folder)
    return folder


def remove_with_spark(folder: str) -> None:
    """Have a folder removed when Spark's process ends, which is after this one, whatever that dies of."""
    jvm = SparkContext._jvm
    assert jvm is not None
    jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(jvm.java.io.File(folder))
