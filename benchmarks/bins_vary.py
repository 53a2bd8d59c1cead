"""How do latency and duration of a migration change with the number of bins?

Key count with a fixed number of keys: more bins are smaller bins. A quarter of the state is moved away and back, one
strategy after the other in the same query.
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
    lasted_s,
    migration_rows,
    migrations,
    over,
    seconds,
    strategies_of,
    tuned,
    worst_ms,
)

KEYS = {"smoke": 200_000, "quick": 512_000_000, "full": 1_024_000_000}
SHIFTS = {"smoke": (4,), "quick": (4, 6, 8, 10), "full": (4, 6, 8, 10, 12, 14)}
FLUID_UP_TO = {"smoke": 4, "quick": 8, "full": 12}
"""Beyond, a bin at a time would take more time than the form has."""


def runs(form: Form) -> list[Parameters]:
    """One for each number of bins."""
    return [_run(form, KEYS[form], shift) for shift in SHIFTS[form]]


def _run(form: Form, keys: int, shift: int) -> Parameters:
    fluid = [FLUID] if shift <= FLUID_UP_TO[form] else []
    strategies = [tuned(keys, 1 << shift), *fluid, ALL_AT_ONCE]
    return counting(form, f"2^{shift} bins", keys=keys, bins=1 << shift, strategies=strategies)


def table(results: Sequence[Result]) -> Table:
    """Every migration."""
    rows = [row for result in results for row in migration_rows(result, result["parameters"]["name"])]
    return Table(("bins", *MIGRATION_HEADS), rows)


def draw(results: Sequence[Result], path: Path) -> None:
    """Maximum latency and duration over the number of bins, a line for each strategy."""
    from megaphone.harness.report import draw_curves

    latency: dict[str, Any] = {}
    duration: dict[str, Any] = {}
    for strategy in strategies_of(results):
        found = [(result["parameters"]["bins"], migrations(result, strategy)) for result in results]
        latency[strategy] = [(bins, worst_ms(some) or 0) for bins, some in found if some]
        duration[strategy] = [(bins, lasted_s(some) or 0) for bins, some in found if some]
    latency["steady"] = [(result["parameters"]["bins"], result["steady"]["max_ms"]) for result in results]
    panels = {"maximum latency, ms": latency, "duration, s": duration}
    draw_curves(panels, "bins", "", path)


def ratios(results: Sequence[Result]) -> list[Ratio]:
    """What the fewest bins cost beside the most, by strategy."""
    first, last = (results[0], results[-1]) if results else (None, None)
    found = []
    for strategy in ("batched", "all_at_once"):
        value = None
        if first and last:
            value = over(worst_ms(migrations(first, strategy)), worst_ms(migrations(last, strategy)))
        found.append(Ratio(f"maximum latency of {strategy}, fewest bins to most", value))
    return found


EXPERIMENT = Experiment(
    name="bins_vary",
    question="How do latency and duration of a migration change with the number of bins?",
    paper="figure 16",
    claim="with more bins the maximum latency of fluid and batched falls while they take as long; all-at-once stays.",
    word=(
        "More bins are smaller steps, as in the paper, until a step is lost in Spark's epoch: memory is lent at "
        "gigabytes a second, so that is soon. And a step takes an epoch, however small: more bins take longer."
    ),
    criteria=("J1",),
    runs=runs,
    run=count,
    table=table,
    draw=draw,
    ratios=ratios,
    seconds=seconds,
)
