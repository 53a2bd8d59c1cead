"""A query whose checkpoint is real, and nothing else of it: no Spark, no processes."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
from hypothesis import settings

from megaphone.bins import BinId, Bins, WorkerId
from megaphone.configuration import Assignment, Configuration
from megaphone.control.epochs import Clock, EpochPlan, OperatorPlan, Report, input_frontier
from megaphone.control.strategies import make_plan
from megaphone.dataflow.exchange import encode
from megaphone.dataflow.hashing import hash_columns
from megaphone.dataflow.hosting import Host
from megaphone.dataflow.operators import OperatorSpec
from megaphone.dataflow.records import Records
from megaphone.dataflow.routing import address
from megaphone.dataflow.rows import rows_to_batch
from megaphone.dataflow.state import pack, unpack
from megaphone.durability.log import Head, Writing
from megaphone.durability.manifest import Manifest, shape_of
from megaphone.durability.restoration import obey
from megaphone.durability.store import Command, LogFile, Store
from megaphone.engine.spark.memoir import Memoir
from megaphone.progress import Time

# How long an example takes says something of the machine, and nothing of the code.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("new", deadline=None, max_examples=2000, print_blob=True)
# A change must not fail by chance: new examples are drawn by `make fuzz`, and stay as @example if they find something.
settings.load_profile(os.environ.get("MEGAPHONE_EXAMPLES", "same"))


class StoredQuery:
    """Operators of one input each, all of which read the same rows, on hosts in this process."""

    def __init__(
        self, checkpoint: Path, *specs: OperatorSpec, workers: int = 2, bins: int = 8, control: str = "control0"
    ) -> None:
        """Begin, or go on from what is there."""
        self.checkpoint = checkpoint
        self.specs = specs
        self.bins = Bins.of_count(bins)
        self.store = Store(str(checkpoint), control)
        self._clocks: dict[str, tuple[Clock, int]] = {
            spec.name: ("epoch" if spec.by_epoch else "column", 1) for spec in specs
        }
        shapes = {spec.name: shape_of(spec, (", ".join(spec.inputs[0].keys),)) for spec in specs}
        pickled = {spec.name: cloudpickle.dumps(spec) for spec in specs}
        self.memoir = Memoir(self.store, Manifest(bins, workers, shapes), pickled, self._clocks)
        initial = Assignment.round_robin(bins, workers)
        self.epochs = self.memoir.begin(0, initial)
        self.hosts = {
            (spec.name, worker): Host(WorkerId(worker), spec.fold, bins, initial.bins_of(WorkerId(worker)))
            for spec in specs
            for worker in range(workers)
        }
        (checkpoint / "offsets").mkdir(exist_ok=True)
        (checkpoint / "commits").mkdir(exist_ok=True)

    def run(self, *batches: Sequence[Sequence[Any]]) -> None:
        """An epoch for each batch, all committed."""
        for rows in batches:
            self.epoch(rows)
            self.commit()

    def epoch(self, rows: Sequence[Sequence[Any]]) -> None:
        """Plan an epoch, apply it and log it."""
        plan = self.memoir.open(self.epochs, self.epochs.epoch + 1, False)
        for spec in self.specs:
            self._apply(spec, plan, plan.operators[spec.name], rows)

    def commit(self) -> None:
        """What Spark does when the sink has an epoch's rows."""
        (self.checkpoint / "commits" / str(self.epochs.epoch)).write_text('v1\n{"nextBatchWatermarkMs":0}')

    def migrate(self, target: Sequence[int], strategy: str) -> None:
        """Ask for a migration, as a control does."""
        plan = make_plan(self.epochs.controller.expected, Assignment(target), strategy)
        command = Command("submit", plan.to_json())
        obey(self.epochs, command, self.memoir.command(command))

    def snapshot(self, operator: str, worker: int, *bins: int) -> None:
        """Keep bins as they are."""
        for bin in bins:
            parcel = self.hosts[operator, worker].copy(BinId(bin))
            self.store.write_snapshot(operator, self.epochs.epoch, {bin: pack(parcel).parts})

    def _apply(self, spec: OperatorSpec, plan: EpochPlan, mine: OperatorPlan, rows: Sequence[Sequence[Any]]) -> None:
        for move in mine.moves:
            packed = pack(self.hosts[spec.name, move.source].release(move.bin))
            parcel = unpack(packed.bin, [bytearray(part) for part in packed.parts])
            self.hosts[spec.name, move.target].install(parcel)
        records = self._records(spec, rows, plan.epoch)
        seen = [Time(max([mine.seen[0], *records.times.tolist()]))]
        lateness = [spec.inputs[0].lateness]
        clock, _ = self._clocks[spec.name]
        frontier = input_frontier(clock, plan.epoch, plan.closing, seen, lateness, mine.frontier)
        routed = dict(address(Configuration.of(plan.configuration), records))
        for worker in plan.workers:
            host, part = self.hosts[spec.name, worker], routed.get(worker)
            payloads = [] if part is None else [(0, encode([part]))]
            file = LogFile(plan.epoch, self.memoir.attempt, spec.name, int(worker), 1)
            writing = Writing(self.store, file, Head(frontier.bound, list(seen), [0] * len(payloads)), payloads)
            if part is not None:
                host.receive(part)
            host.unhold()
            for bin, at in mine.holds:
                host.hold(bin, at)
            outcome = host.advance(frontier)
            report = Report(worker, host.output_frontier.bound, outcome.applied, outcome.late)
            writing.finish(report)
            self.epochs.report(spec.name, plan.epoch, [report], seen, frontier.bound)

    def _records(self, spec: OperatorSpec, rows: Sequence[Sequence[Any]], epoch: int) -> Records:
        input = spec.inputs[0]
        data: pa.RecordBatch = rows_to_batch([tuple(row) for row in rows], input.schema)
        bins = self.bins.of_hashes(hash_columns([data.column(name) for name in input.keys]))
        if input.time is None:
            return Records.at(Time(epoch), bins, data)
        return Records(bins, input.times(data.column(input.time)), data)


@pytest.fixture
def stored_query(tmp_path: Path) -> Callable[..., StoredQuery]:
    """Begin a query, by default in a checkpoint of its own."""
    return lambda *specs, **options: StoredQuery(options.pop("checkpoint", tmp_path / "checkpoint"), *specs, **options)


STRANGER = 65534
"""A uid, and a gid, under which nobody has files of his own."""


@pytest.fixture(scope="session")
def as_stranger() -> Callable[..., str]:
    """Run some lines of Python as another user, of a group if one is given; what they print."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as somebody else")

    def run(lines: str, *arguments: str, group: int = STRANGER) -> str:
        # Imported before: the interpreter may be where only root can read.
        become = f"import os, socket, stat, sys; os.setgroups([]); os.setgid({group}); os.setuid({STRANGER})\n"
        command = [sys.executable, "-c", become + lines, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout

    return run


LONGEST = (
    "test_chaos",
    "test_recovery",
    "test_docs",
    "test_scenarios",
    "test_executors",
    "test_crashes",
    "test_processes",
)
"""Files that take minutes come first: two processes share the files, and one must not end with a long one alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first; else in their order."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))
