"""Recipes: the parameters of counting runs in each form, and what is read from their results.

What every experiment on the counting benchmarks shares, so that each says only what it varies.
Neighbours: the files in `benchmarks/`; trial.py runs what this describes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from megaphone.harness.counting import KEY_BYTES
from megaphone.harness.experiment import Form, Parameters, Result
from megaphone.harness.results import SEED

if TYPE_CHECKING:
    from megaphone.harness.stage import Stage

STEP_BYTES = 8 << 20
"""Bytes in a step of a tuned migration: some ten milliseconds of copying, far below what Spark spends on an epoch."""
STEP_BINS = 64
"""Bins in a step of a tuned migration: each costs a message or two."""
EPOCH_S = 0.25
"""About how long an epoch takes, to say how long a run will."""
STEP_S = 0.1
"""About how long a step of a tuned migration takes."""

ALL_AT_ONCE = {"strategy": "all_at_once"}
FLUID = {"strategy": "fluid"}

STRETCHES: Mapping[Form, Mapping[str, float]] = {
    "smoke": {"cold_s": 0.0, "warm_up_s": 1.0, "steady_s": 1.5, "settle_s": 1.5, "limit_s": 30.0},
    "quick": {"cold_s": 15.0, "warm_up_s": 25.0, "steady_s": 8.0, "settle_s": 3.0, "limit_s": 180.0},
    "full": {"cold_s": 40.0, "warm_up_s": 40.0, "steady_s": 30.0, "settle_s": 5.0, "limit_s": 3600.0},
}
"""Seconds to warm up, for a steady stretch, to settle after a migration, and at most for a migration; `cold_s` is what
the first run of an experiment warms up longer, since its JVM is new. For the first sixty epochs of any query, or more,
the JVM is busy with compiling what it runs; a migration that meets this is blamed for it."""
RATES: Mapping[Form, int] = {"smoke": 2_000, "quick": 20_000, "full": 50_000}


def counting(form: Form, name: str, **changes: Any) -> dict[str, Any]:
    """The parameters of a counting run.

    >>> run = counting("quick", "ten megabytes", keys=1_250_000, bins=1 << 12)
    >>> run["benchmark"], run["rate"], run["keys"]
    ('key', 20000, 1250000)
    """
    common = {
        "name": name,
        "benchmark": "key",
        "version": "migrateable",
        "workers": 2,
        "rate": RATES[form],
        "seed": SEED,
        "snapshot_share": 0.05,
        "strategies": [],
    }
    return {**common, **STRETCHES[form], **changes}


def count(parameters: Parameters, stage: "Stage") -> dict[str, Any]:
    """A counting run; Spark is imported with it."""
    from megaphone.harness import trial

    return trial.count(parameters, stage)


def tuned(keys: int, bins: int, benchmark: str = "key") -> dict[str, Any]:
    """`batched`, with as many bins in a step as make some megabytes.

    >>> tuned(1 << 30, 1 << 12), tuned(1_250_000, 1 << 12)
    ({'strategy': 'batched', 'batch': 4}, {'strategy': 'batched', 'batch': 64})
    """
    bin_bytes = keys * KEY_BYTES[benchmark] / bins
    return {"strategy": "batched", "batch": int(min(STEP_BINS, max(1, STEP_BYTES // bin_bytes)))}


def seconds(parameters: Parameters) -> float:
    """About how long a counting run takes."""
    filled = 500_000 if parameters["benchmark"] == "hash" else 5e8 / KEY_BYTES[parameters["benchmark"]]
    return float(6 + parameters["keys"] / filled + trial_seconds(parameters))


def trial_seconds(parameters: Parameters) -> float:
    """About how long a trial takes, once its state is there."""
    strategies = parameters["strategies"]
    stretches = _stretches(parameters) * (parameters["steady_s"] + parameters["settle_s"])
    moving = sum(2 * _steps(parameters, options) * EPOCH_S for options in strategies)
    return float(parameters["warm_up_s"] + stretches + moving)


def as_long_steady(parameters: Parameters) -> Parameters:
    """A run whose steady stretches together are at least as long as its first strategy takes, out and back.

    What happens once in a minute is then as likely to be met by the one as by the other, and a maximum over the one can
    be set beside a maximum over the other.

    >>> run = counting("quick", "15 GB", bins=1 << 12, strategies=[{"strategy": "batched", "batch": 2}, ALL_AT_ONCE])
    >>> round(as_long_steady(run)["steady_s"], 1), round(as_long_steady({**run, "drained": 1})["steady_s"], 1)
    (21.5, 42.0)
    """
    moving = 2 * _steps(parameters, parameters["strategies"][0]) * STEP_S
    # The last second of each stretch is left out.
    return {**parameters, "steady_s": max(parameters["steady_s"], moving / _stretches(parameters) + 1)}


def _stretches(parameters: Parameters) -> int:
    """How many steady stretches a trial has: before each migration, out and back, and at the end."""
    return 2 * len(parameters["strategies"]) + 1


def _steps(parameters: Parameters, options: Mapping[str, Any]) -> float:
    bins = parameters["bins"] / (4 if "drained" not in parameters else parameters["workers"])
    each = {"all_at_once": bins, "fluid": 1}.get(options["strategy"], options.get("batch", 16))
    return float(max(1.0, bins / each) * (1 + options.get("gap", 0)))


def label(options: Mapping[str, Any]) -> str:
    """A strategy with its options, for people.

    >>> label({"strategy": "batched", "batch": 4, "gap": 2})
    'batched, batch 4, gap 2'
    """
    rest = [f"{name.replace('_', ' ')} {value:g}" for name, value in options.items() if name != "strategy"]
    return ", ".join([str(options["strategy"]), *rest])


def migrations(result: Result, strategy: str) -> list[Mapping[str, Any]]:
    """The migrations of a run by a strategy."""
    return [found for found in result["migrations"] if found["strategy"] == strategy]


def worst_ms(found: Iterable[Mapping[str, Any]]) -> float | None:
    """The maximum latency during some migrations."""
    return max((migration["latency"]["max_ms"] for migration in found), default=None)


def lasted_s(found: Sequence[Mapping[str, Any]]) -> float | None:
    """How long the longest of some migrations lasted."""
    return max((migration["duration_s"] for migration in found), default=None)


def strategies_of(results: Sequence[Result]) -> list[str]:
    """The strategies seen, in their order."""
    return list(dict.fromkeys(found["strategy"] for result in results for found in result["migrations"]))


def over(value: float | None, base: float | None) -> float | None:
    """A ratio, if both were measured."""
    return None if value is None or not base else value / base


def most(values: Iterable[float | None]) -> float | None:
    """The largest that was measured."""
    return max((value for value in values if value is not None), default=None)


def least(values: Iterable[float | None]) -> float | None:
    """The smallest that was measured."""
    return min((value for value in values if value is not None), default=None)


def size(bytes: float) -> str:
    """Bytes, for people.

    >>> size(10_000_000), size(12e9)
    ('10 MB', '12 GB')
    """
    return f"{bytes / 1e9:.3g} GB" if bytes >= 1e9 else f"{bytes / 1e6:.3g} MB"


def ms(value: float | None) -> str:
    """Milliseconds, for people."""
    return "-" if value is None else f"{value:,.0f}"


MIGRATION_HEADS = ("strategy", "steps", "moved", "took", "longest step", "max latency", "p99", "steady max", "ratio")


def migration_rows(result: Result, *before: str) -> list[tuple[str, ...]]:
    """A row for each migration of a run, behind cells that tell the run; as `MIGRATION_HEADS`."""
    steady = result["steady"]["max_ms"]
    rows = []
    for found in result["migrations"]:
        latency = found["latency"]
        ratio = over(latency["max_ms"], steady)
        rows.append(
            (
                *before,
                f"{label({'strategy': found['strategy'], **found['options']})}, {found['way']}",
                str(found["steps"]) if found["phase"] == "done" else f"{found['steps']}, {found['phase']}",
                size(found["bytes_moved"]),
                f"{found['duration_s']:.1f} s",
                f"{found['longest_step_s'] * 1000:.0f} ms",
                f"{ms(latency['max_ms'])} ms",
                f"{ms(latency['p99_ms'])} ms",
                f"{ms(steady)} ms",
                "-" if ratio is None else f"{ratio:.2f}",
            )
        )
    return rows
