"""What experiments say of results, by results with known figures.

Would catch a ratio upside down or of the wrong runs, and a table or a picture that cannot be made from what a trial
saves. That trials save what stands here for it is seen to in `test_trial.py`.
"""

from pathlib import Path

import numpy as np
import pytest

from megaphone.harness.experiment import find
from megaphone.harness.latency import Histogram

EXPERIMENTS = find(Path(__file__).parents[2] / "benchmarks")
STEADY_MS = 200
TRIALS = sorted(set(EXPERIMENTS) - {"throughput"})


def histogram(ms):
    found = Histogram()
    found.record(np.full(1000, int(ms * 1e6)))
    return found


def trial(parameters, ms_of=lambda options: 300, steady_ms=STEADY_MS, memory=1.05):
    """What a trial with such parameters saves, if migrations had a maximum latency of so many milliseconds."""
    strategies = parameters["strategies"] or [{"strategy": "restart"}]
    migrations = [
        {
            "strategy": options["strategy"],
            "options": {name: value for name, value in options.items() if name != "strategy"},
            "way": way,
            "phase": "done",
            "steps": 4,
            "bins": 4,
            "bytes_moved": 10**6,
            "began_s": 10.0,
            "ended_s": 20.0,
            "duration_s": 10.0,
            "longest_step_s": 1.0,
            "latency": histogram(ms_of(options)).summary(),
            "memory": dict.fromkeys(("driver", "jvm", "heap", "workers", "tasks", "total"), memory * 1e9),
            "memory_before": dict.fromkeys(("driver", "jvm", "heap", "workers", "tasks", "total"), 1e9),
        }
        for options in strategies
        for way in ("out", "back")
    ]
    return {
        "parameters": parameters,
        "steady": histogram(steady_ms).summary(),
        "steady_histogram": histogram(steady_ms).saved(),
        "steady_spans": [[5.0, 10.0]],
        "not_done": 0,
        "skipped": 0,
        "migrations": migrations if parameters["strategies"] or "way" in parameters else [],
        "timeline": [{"second": n / 4, **histogram(100 + n).summary()} for n in range(100)],
        "memory": [{"second": n / 2, "total": 2e9, "workers": 1e9, "jvm": 5e8} for n in range(50)],
    }


def values(name, results):
    return {ratio.name: ratio for ratio in EXPERIMENTS[name].ratios(results)}


@pytest.mark.parametrize("name", TRIALS)
def test_table_picture_and_ratios_are_made_of_what_a_trial_saves(name, tmp_path):
    experiment = EXPERIMENTS[name]
    results = [trial(run) for run in experiment.runs("full")]
    table = experiment.table(results)
    assert table.rows
    assert {len(row) for row in table.rows} == {len(table.heads)}
    assert all(isinstance(cell, str) for row in table.rows for cell in row)
    experiment.draw(results, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"
    assert all(ratio.value is not None for ratio in experiment.ratios(results) if ratio.asked)


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_experiment_that_has_only_begun_has_figures_too(name):
    experiment = EXPERIMENTS[name]
    first = experiment.runs("quick")[0]
    results = [trial(first) if name != "throughput" else {"parameters": first, "epoch_s": 1.0, "records_per_s": 5}]
    table = experiment.table(results)
    assert table.rows
    assert {len(row) for row in table.rows} == {len(table.heads)}
    ratios = experiment.ratios(results)
    assert [ratio.name for ratio in ratios] == [ratio.name for ratio in experiment.ratios([])]
    assert all(ratio.value is None or np.isfinite(ratio.value) for ratio in ratios)


def test_tuned_migration_is_set_beside_steady_and_all_at_once():
    runs = EXPERIMENTS["keys_vary"].runs("quick")
    results = [
        trial(run, lambda options, keys=run["keys"]: 280 if options["strategy"] == "batched" else keys * 8 / 1e6)
        for run in runs
    ]
    found = values("keys_vary", results)
    tuned = found["maximum latency of a tuned migration to steady, worst of the sizes"]
    assert (tuned.value, tuned.verdict) == (pytest.approx(1.4), "pass")
    # The largest is what the machine has room for.
    largest = max(run["keys"] for run in runs) * 8 / 1e6
    below = {name: ratio.value for name, ratio in found.items() if "to a tuned migration" in name}
    in_dicts, drained, *quarters = below.values()
    assert in_dicts == pytest.approx(largest * 0.8 / 9 / 280, rel=0.01)
    assert drained == pytest.approx(largest * 0.8 / 280)
    assert quarters == [pytest.approx(largest / 280)] * 2
    grown = found["maximum latency of all_at_once, largest state to smallest"]
    assert (grown.value, grown.verdict) == (pytest.approx(largest / 10), "pass")


def test_one_size_that_falls_short_is_enough():
    runs = EXPERIMENTS["keys_vary"].runs("quick")
    results = [trial(run, lambda o, n=n: 1000 if n == 1 else 210) for n, run in enumerate(runs)]
    found = values("keys_vary", results)
    tuned = found["maximum latency of a tuned migration to steady, worst of the sizes"]
    assert (tuned.value, tuned.verdict) == (pytest.approx(5), "falls short")


def test_median_with_the_usual_bins_is_set_beside_native():
    runs = EXPERIMENTS["steady_overhead"].runs("quick")
    slow = {"native": 100, 1 << 12: 107, 1 << 20: 400}
    results = [trial(run, steady_ms=slow.get(run["version"], slow.get(run["bins"], 100))) for run in runs]
    found = list(values("steady_overhead", results).values())
    assert found[0].value == pytest.approx(1.07, rel=1 / 16)
    assert found[0].verdict == "pass"
    assert found[1].value == pytest.approx(4, rel=1 / 16)


def test_memory_is_set_beside_that_before():
    (run, *_) = EXPERIMENTS["memory"].runs("quick")
    assert run["name"] == "batched"
    found = values("memory", [trial(run, memory=1.2)])
    ratio = found["peak memory during batched to steady"]
    assert (ratio.value, ratio.verdict) == (pytest.approx(1.2), "falls short")


def test_stop_and_restart_is_set_beside_ours():
    runs = EXPERIMENTS["todays_ways"].runs("quick")
    slow = {"restart": 30_000, "batched": 400, "all_at_once": 1000}
    found = values("todays_ways", [trial(run, lambda o: slow[o["strategy"]]) for run in runs])
    ratio = found["maximum latency of stop and restart (aggregation) to ours, largest state"]
    assert (ratio.value, ratio.verdict) == (pytest.approx(75), "pass")
    assert found["maximum latency of all_at_once to ours, largest state"].value == pytest.approx(2.5)


def test_rate_counts_only_with_short_epochs(tmp_path):
    experiment = EXPERIMENTS["throughput"]
    results = []
    for run in experiment.runs("quick"):
        system, rows = run["system"], run["rows"]
        if system == "bytewax":
            results.append({"parameters": run, "not_installed": True})
            continue
        epoch_s = 5.0 if rows == 10_000_000 else 1.0
        results.append({"parameters": run, "epoch_s": epoch_s, "records_per_s": int(rows / epoch_s)})
    found = values("throughput", results)
    assert found["records a second, ours with 2^12 bins to groupBy().count()"].value == pytest.approx(1)
    assert found["records a second, ours with 2^12 bins to bytewax"].value is None
    assert ["bytewax", "not installed"] in [[row[0], row[3]] for row in experiment.table(results).rows]
    experiment.draw(results, tmp_path / "picture.png")


def test_load_that_was_not_done_is_saturated():
    runs = EXPERIMENTS["offered_load"].runs("quick")
    results = [{**trial(run), "not_done": 10**6 if run is runs[-1] else 0} for run in runs]
    found = values("offered_load", results)
    assert found["most records a second before saturation"].value == runs[-2]["rate"]
