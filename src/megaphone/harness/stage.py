"""The stage of an experiment: one Spark session for all its runs, room for checkpoints, and a word on how it goes.

All runs share a session, so every one after the first has a warm JVM. It starts when a run first asks for it.
Neighbours: bench.py sets it up, trial.py plays on it.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "FATAL",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": str(CORES),
    # Of Spark's own ways the faster one that can also be repartitioned.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


class Stage:
    """What a run needs of the world."""

    def __init__(self, show: Callable[[str], None], settings: Mapping[str, str] | None = None) -> None:
        """`show` tells people what is going on; `settings` are for Spark, on top of the usual ones."""
        self.show = show
        self.is_cold = True
        """Until the first run has warmed the JVM up."""
        self._settings = {**SETTINGS, **(settings or {})}
        self._spark: SparkSession | None = None

    @property
    def spark(self) -> "SparkSession":
        """The session."""
        if self._spark is None:
            self.show("starting Spark")
            self._spark = _session(self._settings)
        return self._spark

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A place for a checkpoint, gone afterwards."""
        path = Path(tempfile.mkdtemp(prefix="megaphone-bench-"))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Stop Spark, if it was started."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = None
            self.is_cold = True


def _session(settings: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    from megaphone.engine.spark.session import tuned
    from megaphone.harness.session import begin
    from megaphone.harness.source import KeysSource

    builder = tuned(SparkSession.builder.master(f"local[{CORES}]").appName("megaphone bench"))
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = begin(builder)
    spark.dataSource.register(KeysSource)
    return spark
