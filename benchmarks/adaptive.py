"""Does a strategy that sizes each step to a latency target hold it, where `batched` needs tuning?

Key count at several sizes of the state. `batched` with the same number of bins in a step for every size: too few take
long, too many break the target. `adaptive` is told the target, 1.5 times the steady maximum of its own run, and no
size.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from megaphone.control.strategies import STRATEGIES
from megaphone.harness.experiment import Experiment, Form, Parameters, Ratio, Result, Table
from megaphone.harness.recipe import (
    MIGRATION_HEADS,
    count,
    counting,
    migration_rows,
    migrations,
    most,
    over,
    seconds,
    size,
    worst_ms,
)

TARGET = 1.5
SIZES = {"smoke": (1e6,), "quick": (64e6, 2e9), "full": (64e6, 640e6, 2.5e9, 10e9)}
SHIFT = {"smoke": 4, "quick": 9, "full": 12}
BATCHES = {"smoke": (2,), "quick": (4, 64), "full": (4, 32, 256)}


def lacks() -> str | None:
    """There may be no such strategy."""
    return None if "adaptive" in STRATEGIES else "there is no strategy named 'adaptive' yet"


def runs(form: Form) -> list[Parameters]:
    """One for each size."""
    batched = [{"strategy": "batched", "batch": batch} for batch in BATCHES[form]]
    strategies = [{"strategy": "adaptive", "times_steady": TARGET}, *batched]
    return [
        counting(form, size(bytes), keys=int(bytes) // 8, bins=1 << SHIFT[form], strategies=strategies)
        for bytes in SIZES[form]
    ]


def table(results: Sequence[Result]) -> Table:
    """Every migration."""
    rows = [row for result in results for row in migration_rows(result, result["parameters"]["name"])]
    return Table(("state", *MIGRATION_HEADS), rows)


def draw(results: Sequence[Result], path: Path) -> None:
    """A timeline for each size."""
    from megaphone.harness.report import Panel, Span, draw_timelines

    panels = [
        Panel(
            result["parameters"]["name"],
            [row for row in result["timeline"] if row["second"] >= 1],
            [Span(_name(found), found["began_s"], found["ended_s"]) for found in result["migrations"]],
        )
        for result in results
    ]
    draw_timelines(panels, path)


def _name(found: Any) -> str:
    batch = found["options"].get("batch")
    return f"{found['strategy']} {batch}" if batch else str(found["strategy"])


def ratios(results: Sequence[Result]) -> list[Ratio]:
    """The maximum latency of adaptive to steady, and of the worst batch that was not tuned."""
    adaptive = [over(worst_ms(migrations(found, "adaptive")), found["steady"]["max_ms"]) for found in results]
    batched = [over(worst_ms(migrations(found, "batched")), found["steady"]["max_ms"]) for found in results]
    return [
        Ratio("maximum latency of adaptive to steady, worst of the sizes", most(adaptive), most=TARGET),
        Ratio("maximum latency of batched to steady, worst of sizes and batches", most(batched)),
    ]


EXPERIMENT = Experiment(
    name="adaptive",
    question="Does a strategy that sizes each step to a latency target hold it, where `batched` needs tuning?",
    paper="",
    claim="the size of a batch is chosen by hand there, and the right one depends on the state and the machine.",
    criteria=("C3",),
    runs=runs,
    run=count,
    table=table,
    draw=draw,
    ratios=ratios,
    seconds=seconds,
    lacks=lacks,
)
