"""A Spark session that leaves the terminal to whoever measures on it, and no JVM behind.

Neighbours: quiet.py keeps what is written all the same.
"""

import psutil
from pyspark.sql import SparkSession

from megaphone.engine.spark.session import tuned

QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "FATAL"}

ALONE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Where all of Spark is in one process, nobody else need reach it."""


def quiet_session(name: str, master: str) -> SparkSession:
    """Tuned, without a web page, and silent."""
    builder = tuned(SparkSession.builder.master(master).appName(name))
    for setting, value in (QUIET | (ALONE if master.partition("[")[0] == "local" else {})).items():
        builder = builder.config(setting, value)
    return begin(builder)


def begin(builder: SparkSession.Builder) -> SparkSession:
    """The session; nothing is left of one whose start is interrupted, where Spark would leave its JVM."""
    before = set(psutil.Process().children())
    try:
        return builder.getOrCreate()
    except BaseException:
        for process in set(psutil.Process().children()) - before:
            process.kill()
        raise
