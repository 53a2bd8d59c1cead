"""What does a migration do to the maximum latency as the offered load grows, up to saturation?

Key count, the same state at every load. A load is beyond saturation when epochs only grow, or records that were due
have not been done when the run ends; such records count as late as they are by then.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from megaphone.harness.experiment import Experiment, Form, Parameters, Ratio, Result, Table
from megaphone.harness.recipe import (
    ALL_AT_ONCE,
    FLUID,
    MIGRATION_HEADS,
    count,
    counting,
    migration_rows,
    migrations,
    most,
    over,
    seconds,
    strategies_of,
    tuned,
    worst_ms,
)

KEYS = {"smoke": 200_000, "quick": 128_000_000, "full": 512_000_000}
SHIFT = {"smoke": 4, "quick": 8, "full": 10}
RATES = {
    "smoke": (2_000,),
    "quick": (25_000, 100_000, 400_000, 1_600_000),
    "full": tuple(25_000 << doubling for doubling in range(8)),
}


def runs(form: Form) -> list[Parameters]:
    """One for each load, the lightest first."""
    keys, bins = KEYS[form], 1 << SHIFT[form]
    fluid = [FLUID] if form == "full" else []
    strategies = [tuned(keys, bins), *fluid, ALL_AT_ONCE]
    return [
        counting(form, f"{rate:,} records a second", keys=keys, bins=bins, rate=rate, strategies=strategies)
        for rate in RATES[form]
    ]


def is_saturated(result: Result) -> bool:
    """Was more offered than could be done?"""
    return bool(result.get("saturated")) or result["not_done"] > 0


def table(results: Sequence[Result]) -> Table:
    """Every migration; a load without one is beyond saturation."""
    rows: list[tuple[str, ...]] = []
    for result in results:
        load = f"{result['parameters']['rate']:,}" + (" (saturated)" if is_saturated(result) else "")
        none = [(load, *("-",) * (len(MIGRATION_HEADS) - 2), f"{result['steady']['max_ms']:,.0f} ms", "-")]
        rows += migration_rows(result, load) or none
    return Table(("records/s", *MIGRATION_HEADS), rows)


def draw(results: Sequence[Result], path: Path) -> None:
    """Maximum latency over load, a line for each strategy and one without a migration."""
    from megaphone.harness.report import draw_curves

    lines: dict[str, Any] = {}
    for strategy in strategies_of(results):
        found = [(result["parameters"]["rate"], worst_ms(migrations(result, strategy))) for result in results]
        lines[strategy] = [(rate, worst) for rate, worst in found if worst]
    lines["not migrating"] = [(result["parameters"]["rate"], result["steady"]["max_ms"]) for result in results]
    draw_curves({"": lines}, "records a second, offered", "maximum latency, ms", path)


def ratios(results: Sequence[Result]) -> list[Ratio]:
    """Where it saturates, and what all-at-once costs beside a tuned migration at the loads below."""
    kept = [result for result in results if not is_saturated(result)]
    gaps = [over(worst_ms(migrations(found, "all_at_once")), worst_ms(migrations(found, "batched"))) for found in kept]
    return [
        Ratio("most records a second before saturation", most(result["parameters"]["rate"] for result in kept)),
        Ratio("maximum latency of all_at_once to a tuned migration, widest", most(gaps)),
    ]


EXPERIMENT = Experiment(
    name="offered_load",
    question="What does a migration do to the maximum latency as the offered load grows, up to saturation?",
    paper="figure 19",
    claim="latency is flat until saturation; all-at-once above batched above fluid above none, 10 to 100 times apart.",
    word="The strategies are not orders of magnitude apart with this state, since all of it moves within two epochs.",
    criteria=("J4",),
    runs=runs,
    run=count,
    table=table,
    draw=draw,
    ratios=ratios,
    seconds=seconds,
)
