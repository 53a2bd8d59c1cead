"""How do latency and duration of a migration change with the size of the state?

Key count with 2^12 bins (2^10 in the quick form), from ten megabytes to the largest state that fits the machine with
room for what moves. `batched` is tuned by one rule for all sizes: some megabytes in a step. Workers on one machine lend
each other their memory instead of copying it; the largest state is also streamed, as between machines.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from megaphone.harness.experiment import Experiment, Form, Parameters, Ratio, Result, Table
from megaphone.harness.recipe import (
    ALL_AT_ONCE,
    FLUID,
    MIGRATION_HEADS,
    count,
    counting,
    lasted_s,
    migration_rows,
    migrations,
    most,
    over,
    seconds,
    size,
    strategies_of,
    tuned,
    worst_ms,
)

SIZES = {"smoke": (1_000_000,), "quick": (10e6, 100e6, 1e9, 12e9), "full": (10e6, 40e6, 160e6, 640e6, 2.5e9, 6e9, 12e9)}
"""Bytes of state; half of the memory is left for what is in flight, Spark, and the system."""
SHIFT = {"smoke": 4, "quick": 10, "full": 12}
STREAMED = ", streamed"
FLUID_TOO = {"smoke": True, "quick": False, "full": True}


def runs(form: Form) -> list[Parameters]:
    """One for each size that fits."""
    room = psutil.virtual_memory().total / 2
    keys = [int(bytes) // 8 for bytes in SIZES[form] if bytes <= room]
    return [*(_run(form, size(number * 8), number) for number in keys), _streamed(form, keys[-1])]


def _streamed(form: Form, keys: int) -> Parameters:
    return {**_run(form, f"{size(keys * 8)}{STREAMED}", keys), "transport": "tcp"}


def _run(form: Form, name: str, keys: int) -> Parameters:
    bins = 1 << SHIFT[form]
    strategies = [tuned(keys, bins), *([FLUID] if FLUID_TOO[form] else []), ALL_AT_ONCE]
    return counting(form, name, keys=keys, bins=bins, strategies=strategies)


def table(results: Sequence[Result]) -> Table:
    """Every migration."""
    rows = [row for result in results for row in migration_rows(result, result["parameters"]["name"])]
    return Table(("state", *MIGRATION_HEADS), rows)


def draw(results: Sequence[Result], path: Path) -> None:
    """Maximum latency and duration over the size of the state, a line for each strategy."""
    from megaphone.harness.report import draw_curves

    latency: dict[str, Any] = {}
    duration: dict[str, Any] = {}
    results, _ = by_transport(results)
    for strategy in strategies_of(results):
        found = [(result["parameters"]["keys"] * 8 / 1e6, migrations(result, strategy)) for result in results]
        latency[strategy] = [(bytes, worst_ms(some) or 0) for bytes, some in found if some]
        duration[strategy] = [(bytes, lasted_s(some) or 0) for bytes, some in found if some]
    latency["steady"] = [(result["parameters"]["keys"] * 8 / 1e6, result["steady"]["max_ms"]) for result in results]
    draw_curves({"maximum latency, ms": latency, "duration, s": duration}, "MB of state", "", path)


def by_transport(results: Sequence[Result]) -> tuple[list[Result], list[Result]]:
    """Where memory was lent, by size, and where it was streamed."""
    ordered = sorted(results, key=lambda result: result["parameters"]["keys"])
    streamed = [result for result in ordered if result["parameters"]["name"].endswith(STREAMED)]
    return [result for result in ordered if result not in streamed], streamed


def ratios(results: Sequence[Result]) -> list[Ratio]:
    """Tuned to steady at every size, tuned below all-at-once at the largest, and how all-at-once grows."""
    tuned_to_steady = [over(worst_ms(migrations(found, "batched")), found["steady"]["max_ms"]) for found in results]
    lent, streamed = by_transport(results)
    grown = over(_worst(lent[-1:], "all_at_once"), _worst(lent[:1], "all_at_once"))
    return [
        Ratio("maximum latency of a tuned migration to steady, worst of the sizes", most(tuned_to_steady), most=1.5),
        Ratio("maximum latency of all_at_once to a tuned migration, largest state", _below(lent[-1:]), least=10),
        Ratio("the same, streamed as between machines", _below(streamed), least=10),
        Ratio("maximum latency of all_at_once, largest state to smallest", grown, least=2),
    ]


def _worst(results: Sequence[Result], strategy: str) -> float | None:
    return most(worst_ms(migrations(result, strategy)) for result in results)


def _below(results: Sequence[Result]) -> float | None:
    return over(_worst(results, "all_at_once"), _worst(results, "batched"))


EXPERIMENT = Experiment(
    name="keys_vary",
    question="How do latency and duration of a migration change with the size of the state?",
    paper="figures 1 and 17",
    claim="both grow with the state for every strategy; fluid and batched stay orders of magnitude below all-at-once.",
    criteria=("A5", "J2", "J6"),
    runs=runs,
    run=count,
    table=table,
    draw=draw,
    ratios=ratios,
    seconds=seconds,
)
