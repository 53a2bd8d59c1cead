"""One Spark session, input that can be replayed, outputs by epoch.

A feed is a folder with one file for each epoch. What an epoch really read is taken from Spark's own offset log, so an
oracle need not trust anything of ours.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pyspark.cloudpickle
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import megaphone

PATIENCE_S = 120.0
"""For conditions that take a second or two on an idle machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs Spark; what is marked `cluster` brings its own."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("cluster") is None:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores, four tries for a task."""
    builder = SparkSession.builder.master("local[2,4]").appName("megaphone tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.megaphone.silence": "5",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = megaphone.tuned(builder).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="module", autouse=True)
def _folds_travel(request: pytest.FixtureRequest) -> Iterator[None]:
    """Workers cannot import a test module: let its functions travel as code."""
    # Spark has a copy of the library for itself.
    for library in (cloudpickle, pyspark.cloudpickle):
        library.register_pickle_by_value(request.module)
    yield
    for library in (cloudpickle, pyspark.cloudpickle):
        library.unregister_pickle_by_value(request.module)


class Feed:
    """A streaming DataFrame whose micro-batches are what the test sends, a file each."""

    def __init__(self, spark: SparkSession, folder: Path, schema: str) -> None:
        """Begin with nothing sent."""
        folder.mkdir(parents=True)
        self.sent: list[list[tuple[Any, ...]]] = []
        self._folder = folder
        self._names = StructType.fromDDL(schema).names
        self.frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder))

    def send(self, *epochs: list[tuple[Any, ...]]) -> None:
        """Let each list of rows be one epoch's input."""
        for rows in epochs:
            number = len(self.sent)
            self.sent.append(list(rows))
            draft = self._folder.parent / f".{self._folder.name}-{number}"
            lines = (json.dumps(dict(zip(self._names, row, strict=True))) for row in rows)
            draft.write_text("".join(f"{line}\n" for line in lines))
            # Spark reads files by age: whole seconds apart, however fast they were written.
            os.utime(draft, (1_700_000_000 + number,) * 2)
            draft.rename(self._folder / f"{number:06}.json")


class Running:
    """A started query: its outputs by epoch, and what each epoch read."""

    def __init__(self, frame: DataFrame, checkpoint: Path, **options: Any) -> None:
        """Start it."""
        self.by_epoch: dict[int, list[Any]] = {}
        self._checkpoint = checkpoint
        writer = frame.writeStream.foreachBatch(self._sink).option("checkpointLocation", str(checkpoint))
        self.writer = writer.trigger(**options) if options else writer
        self.query = self.writer.start()

    def _sink(self, frame: DataFrame, epoch: int) -> None:
        self.by_epoch[epoch] = frame.collect()

    @property
    def outputs(self) -> list[Any]:
        """All output rows so far."""
        return [row for rows in self.by_epoch.values() for row in rows]

    def settle(self) -> None:
        """Wait until everything sent is through."""
        self.query.processAllAvailable()

    def until(self, condition: Callable[[], Any], what: str = "a condition") -> Any:
        """Wait for a condition while the query runs."""
        return until(lambda: self._raise_failure() or condition(), what)

    def _raise_failure(self) -> None:
        error = self.query.exception()
        if error is not None:
            raise error

    def read(self, feed: Feed) -> dict[int, list[tuple[Any, ...]]]:
        """The rows each epoch read, by Spark's offset log."""
        epochs, before = {}, -1
        for log in sorted((self._checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)):
            last = max((n for n in map(_file_offset, log.read_text().splitlines()) if n is not None), default=before)
            epochs[int(log.name)] = [row for rows in feed.sent[before + 1 : last + 1] for row in rows]
            before = last
        return epochs


def _file_offset(line: str) -> int | None:
    if not line.startswith('{"logOffset"'):
        return None
    return int(json.loads(line)["logOffset"])


def until(condition: Callable[[], Any], what: str = "a condition") -> Any:
    """Wait for a condition; on a noisy machine that may take long."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come about in {PATIENCE_S:.0f} s")
        time.sleep(0.05)
    return found


@pytest.fixture(scope="session")
def new_feed(spark: SparkSession) -> Callable[[Path, str], Feed]:
    """Make a feed in a folder."""
    return lambda folder, schema: Feed(spark, folder, schema)


@pytest.fixture(scope="session")
def new_query() -> type[Running]:
    """Start a query with a checkpoint location; whoever does it stops it."""
    return Running


@pytest.fixture
def feed(new_feed: Callable[[Path, str], Feed], tmp_path: Path) -> Callable[..., Feed]:
    """Make a feed of a schema."""
    return lambda schema, name="feed": new_feed(tmp_path / "feeds" / name, schema)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start a query; it is stopped when the test ends."""
    started: list[Running] = []

    def start(frame: DataFrame, **options: Any) -> Running:
        started.append(Running(frame, tmp_path / f"checkpoint{len(started)}", **options))
        return started[-1]

    yield start
    for running in started:
        running.query.stop()


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., Any]:
    """Wait for a condition."""
    return until


@pytest.fixture(scope="session")
def worker_processes() -> Callable[[], dict[int, int]]:
    """Every worker process on this machine, and its parent."""
    return _worker_processes


def _worker_processes() -> dict[int, int]:
    found = {}
    for process in psutil.process_iter(["cmdline", "ppid"]):
        if "megaphone.engine.spark.worker" in (process.info["cmdline"] or ()):
            found[process.pid] = process.info["ppid"]
    return found
