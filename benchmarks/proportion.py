"""If bins grow in number with the keys, does the latency of a migration stay?

Key count with the same number of keys in every bin: more state is more bins, of the same size.
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
    worst_ms,
)

KEYS_OF_A_BIN = {"smoke": 10_000, "quick": 500_000, "full": 250_000}
"""Two to four megabytes."""
SHIFTS = {"smoke": (4,), "quick": (6, 8, 10), "full": (6, 8, 10, 12)}
BATCHED = {"strategy": "batched", "batch": 4}


def runs(form: Form) -> list[Parameters]:
    """One for each number of bins."""
    return [_run(form, shift) for shift in SHIFTS[form]]


def _run(form: Form, shift: int) -> Parameters:
    keys = KEYS_OF_A_BIN[form] << shift
    return counting(form, f"2^{shift} bins", keys=keys, bins=1 << shift, strategies=[BATCHED, FLUID, ALL_AT_ONCE])


def table(results: Sequence[Result]) -> Table:
    """Every migration."""
    rows = [row for result in results for row in migration_rows(result, result["parameters"]["name"])]
    return Table(("bins", *MIGRATION_HEADS), rows)


def draw(results: Sequence[Result], path: Path) -> None:
    """Maximum latency over duration, as the paper draws it: a line for each strategy, a mark for each size."""
    from megaphone.harness.report import draw_curves

    lines: dict[str, Any] = {}
    for strategy in strategies_of(results):
        found = [migrations(result, strategy) for result in results]
        lines[strategy] = [(lasted_s(some) or 0, worst_ms(some) or 0) for some in found if some]
    draw_curves({"the same keys in every bin": lines}, "duration, s", "maximum latency, ms", path)


def ratios(results: Sequence[Result]) -> list[Ratio]:
    """What the most bins cost beside the fewest, by strategy."""
    first, last = (results[0], results[-1]) if results else (None, None)
    found = []
    for strategy in ("batched", "fluid", "all_at_once"):
        value = None
        if first and last:
            value = over(worst_ms(migrations(last, strategy)), worst_ms(migrations(first, strategy)))
        found.append(Ratio(f"maximum latency of {strategy}, most bins to fewest", value))
    return found


EXPERIMENT = Experiment(
    name="proportion",
    question="If bins grow in number with the keys, does the latency of a migration stay?",
    paper="figure 18",
    claim="the maximum latency of fluid and batched stays while they take longer; of all-at-once both grow.",
    word="Batched and fluid stay; all-at-once is told from them only where the state is largest.",
    criteria=("J3",),
    runs=runs,
    run=count,
    table=table,
    draw=draw,
    ratios=ratios,
    seconds=seconds,
)
