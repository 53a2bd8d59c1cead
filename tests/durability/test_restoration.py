"""Would catch a migration that was accepted, and is forgotten because the driver died."""

import pickle

import pyarrow as pa
import pytest

from megaphone.configuration import Assignment
from megaphone.control.epochs import Report
from megaphone.control.strategies import make_plan
from megaphone.dataflow.operators import Input, key_operator
from megaphone.durability.manifest import Manifest, shape_of
from megaphone.durability.restoration import obey
from megaphone.durability.store import Command, Store
from megaphone.engine.spark.memoir import Memoir
from megaphone.progress import Time

BINS = 4
SPEC = key_operator("op", Input(pa.schema([("k", pa.int64())]), ("k",)), max, pa.schema([("k", pa.int64())]))


@pytest.fixture
def attempt(tmp_path):
    """Starts the query once more."""

    def attempt(epoch):
        memoir = Memoir(
            Store(str(tmp_path), "control"),
            Manifest(BINS, 2, {"op": shape_of(SPEC, ("k",))}),
            {"op": pickle.dumps(SPEC)},
            {"op": ("epoch", 1)},
        )
        return memoir, memoir.begin(epoch, Assignment([0] * BINS))

    return attempt


def submit(memoir, epochs, target, strategy):
    plan = make_plan(epochs.controller.expected, Assignment(target), strategy)
    command = Command("submit", plan.to_json())
    return obey(epochs, command, memoir.command(command))


def test_migration_that_began_where_a_lost_step_ended_is_fitted_to_where_the_bins_are(attempt):
    memoir, epochs = attempt(0)
    memoir.open(epochs, 0, False)
    epochs.report("op", 0, [Report(0, Time(1)), Report(1, Time(1))], [Time(0)], Time(1))
    submit(memoir, epochs, [1, 1, 1, 1], "fluid")
    memoir.open(epochs, 1, False)
    # Bin 0 is on its way; the next migration counts on that, and then the driver dies.
    obey(epochs, Command("cancel"), memoir.command(Command("cancel")))
    submit(memoir, epochs, [0, 0, 1, 1], "all_at_once")
    for _ in range(2):
        memoir, epochs = attempt(1)
        assert [str(migration.plan.strategy) for migration in epochs.controller.history] == ["fluid", "all_at_once"]
        assert epochs.controller.expected == Assignment([0, 0, 1, 1])
    for epoch in range(1, 4):
        memoir.open(epochs, epoch, False)
        reports = [Report(worker, Time(epoch + 1)) for worker in (0, 1)]
        epochs.report("op", epoch, reports, [Time(epoch)], Time(epoch + 1))
    assert epochs.configuration.last == Assignment([0, 0, 1, 1])
    assert epochs.controller.history[-1].phase == "done"
