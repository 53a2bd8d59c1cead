"""Would catch metrics that Prometheus cannot read, that are not described, and that the page does not explain."""

import re
from pathlib import Path

import pytest

from megaphone.bins import WorkerId
from megaphone.configuration import Assignment
from megaphone.control.controller import Migration
from megaphone.control.strategies import make_plan
from megaphone.service.prometheus import METRICS, exposition
from megaphone.service.status import Status, WorkerStatus

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} (-?[0-9.e+-]+)')
LABEL = re.compile(r'([a-z]+)="((?:[^"\\]|\\.)*)"')


def status(name="words", **changes):
    plan = make_plan(Assignment([0, 0, 1]), Assignment([1, 1, 1]), "fluid")
    known = {
        "migration": Migration(plan, phase="paused", issued=1, completed=1),
        "name": name,
        "control": "c1",
        "state_bytes": {"count": 1000, "join": 20},
        "migrations": {"done": 3, "paused": 1},
        "bytes_moved": 77,
        "imbalance": 1.25,
        "measured": 0.5,
        "last_epoch_s": 0.125,
        "lags": {"count": 250},
    }
    first = WorkerStatus(WorkerId(0), "here", 1, 2, 3, 4.5, 0.25, 600, memory_bytes=9000)
    workers = (first, WorkerStatus(WorkerId(1), "there", 1, 2, 3))
    frontiers, late, applied = {"count": "8", "join": "open"}, {"count": 1, "join": 0}, {"count": 9, "join": 10**12}
    return Status("id-1", 7, frontiers, late, applied, Assignment([0, 1]), workers, **(known | changes))


def parsed(text):
    """Each sample's value, by metric and labels; what is not in the form of Prometheus fails."""
    samples, described = {}, set()
    for line in text.splitlines():
        if line.startswith("#"):
            _, what, metric, rest = line.split(" ", 3)
            assert what in ("HELP", "TYPE")
            assert rest
            described.add((metric, what))
            continue
        found = SAMPLE.fullmatch(line)
        assert found, line
        assert {(found[1], "HELP"), (found[1], "TYPE")} <= described
        labels = frozenset(LABEL.findall(found[2]))
        assert (found[1], labels) not in samples
        samples[found[1], labels] = float(found[3])
    return samples


def value(samples, metric, **labels):
    (found,) = [v for (name, given), v in samples.items() if name == metric and labels.items() <= dict(given).items()]
    return found


def test_every_metric_is_told_with_its_value():
    samples = parsed(exposition([status()]))
    assert {metric for metric, _ in samples} == METRICS.keys()
    assert value(samples, "megaphone_records_applied_total", operator="join") == 10**12
    assert value(samples, "megaphone_worker_busy_ratio", worker="0", host="here") == 0.25
    assert value(samples, "megaphone_output_frontier", operator="count") == 8
    assert value(samples, "megaphone_frontier_lag", operator="count") == 250
    assert value(samples, "megaphone_worker_memory_bytes") == 9000
    assert value(samples, "megaphone_migration_bins") == 2
    assert value(samples, "megaphone_migration_bins_moved") == 1
    assert value(samples, "megaphone_migration_paused") == 1
    assert value(samples, "megaphone_migrations_total", phase="done") == 3
    assert value(samples, "megaphone_migrations_total", phase="cancelled") == 0


def test_frontier_that_is_no_number_is_left_out():
    samples = parsed(exposition([status()]))
    told = [dict(labels)["operator"] for name, labels in samples if name == "megaphone_output_frontier"]
    assert told == ["count"]


@pytest.mark.parametrize("name", ['a "b" \\ c', "two\nlines", "ü", "", None])
def test_any_name_can_be_told(name):
    samples = parsed(exposition([status(name)]))
    assert value(samples, "megaphone_epoch") == 7


def test_several_queries_are_told_apart():
    samples = parsed(exposition([status(), status(name="other", migration=None)]))
    assert value(samples, "megaphone_migration_bins", name="words") == 2
    assert value(samples, "megaphone_migration_bins", name="other") == 0


def test_without_a_query_nothing_is_told():
    assert exposition([]) == ""


def test_page_explains_every_metric():
    assert set(re.findall(r"^\| `(megaphone_\w+)`", PAGE.read_text(), re.MULTILINE)) == METRICS.keys()
