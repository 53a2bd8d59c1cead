"""Does a gap between steps lower the maximum latency?

Key count in large steps, so that a step makes its epoch longer, with no gap and with gaps of some epochs between steps.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from megaphone.harness.experiment import Experiment, Form, Parameters, Ratio, Result, Table
from megaphone.harness.recipe import MIGRATION_HEADS, count, counting, migration_rows, over, seconds, worst_ms

KEYS = {"smoke": 200_000, "quick": 256_000_000, "full": 1_024_000_000}
SHIFT = {"smoke": 4, "quick": 8, "full": 10}
BATCH = {"smoke": 2, "quick": 16, "full": 32}
GAPS = {"smoke": (0, 1), "quick": (0, 2), "full": (0, 1, 2, 4)}


def runs(form: Form) -> list[Parameters]:
    """All gaps in one query, so that they are compared within one run."""
    keys, bins = KEYS[form], 1 << SHIFT[form]
    strategies = [{"strategy": "batched", "batch": BATCH[form], "gap": gap} for gap in GAPS[form]]
    return [counting(form, "gaps", keys=keys, bins=bins, strategies=strategies)]


def table(results: Sequence[Result]) -> Table:
    """Every migration."""
    return Table(MIGRATION_HEADS, [row for result in results for row in migration_rows(result)])


def draw(results: Sequence[Result], path: Path) -> None:
    """The timeline, with the gap over each migration."""
    from megaphone.harness.report import Span, draw_timeline

    (result,) = results
    spans = [Span(f"gap {gap_of(found)}", found["began_s"], found["ended_s"]) for found in result["migrations"]]
    draw_timeline(result["timeline"], spans, "large steps, with gaps of so many epochs between them", path)


def gap_of(found: Any) -> int:
    """The gap of a migration."""
    return int(found["options"].get("gap", 0))


def ratios(results: Sequence[Result]) -> list[Ratio]:
    """The maximum latency with the smallest gap, to that without."""
    found = [migration for result in results for migration in result["migrations"]]
    least = min((gap_of(migration) for migration in found if gap_of(migration)), default=0)
    without = worst_ms(migration for migration in found if not gap_of(migration))
    with_gap = worst_ms(migration for migration in found if gap_of(migration) == least) if least else None
    return [Ratio("maximum latency with a gap to without", over(with_gap, without))]


EXPERIMENT = Experiment(
    name="gap",
    question="Does a gap between steps lower the maximum latency?",
    paper="section 4.4",
    claim="a gap to drain brings the worst latency from two steps' durations down to one.",
    word="Both are about the steady maximum: a step of this size is lost in Spark's epoch, and leaves little to drain.",
    criteria=("F7",),
    runs=runs,
    run=count,
    table=table,
    draw=draw,
    ratios=ratios,
    seconds=seconds,
)
