"""What does a rescale cost, beside what Spark users do today?

The same stream of keys, counted: by Spark's own aggregation and by `transformWithState`, rescaled from two partitions
to four by stopping the query, rewriting its checkpoint with `StreamingCheckpointManager.repartition`, and starting it
again; and by ours, rescaled from two workers to four while it runs, all at once and in batches, and for comparison with
a quarter of the state moved between two workers, which starts no process. One Spark application. What a restart costs
grows with the state, so how many times ours it is depends on the size: both the smallest and the largest are told.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from megaphone.harness.experiment import Experiment, Form, Parameters, Ratio, Result, Table
from megaphone.harness.recipe import (
    ALL_AT_ONCE,
    MIGRATION_HEADS,
    counting,
    migration_rows,
    over,
    seconds,
    tuned,
    worst_ms,
)

if TYPE_CHECKING:
    from megaphone.harness.stage import Stage

BINS, TO = 1 << 8, 4
RATE = {"smoke": 500, "quick": 1_000, "full": 2_000}
"""What the slowest of them, `transformWithState`, can keep up with."""
SAME = "same workers, "
AGGREGATION, TRANSFORM = "groupBy().count()", "transformWithState"
SIZES: dict[str, tuple[tuple[int, tuple[str, ...]], ...]] = {
    "smoke": ((2_000, (AGGREGATION, TRANSFORM)),),
    "quick": ((200_000, (AGGREGATION, TRANSFORM)), (16_000_000, (AGGREGATION,))),
    "full": ((1_000_000, (AGGREGATION, TRANSFORM)), (20_000_000, (AGGREGATION,))),
}
"""Keys, and the ways that can be filled with so many: some thousand keys a second with `transformWithState`."""
FILL_PER_S = {AGGREGATION: 100_000, TRANSFORM: 6_000}
REWRITE_PER_S = 100_000


def runs(form: Form) -> list[Parameters]:
    """For each size ours, then Spark's."""
    return [run for keys, ways in SIZES[form] for run in _ways(form, keys, ways)]


def _ways(form: Form, keys: int, ways: Sequence[str]) -> list[Parameters]:
    common = {"benchmark": "hash", "keys": keys, "bins": BINS, "rate": RATE[form], "to": TO, "saturated_s": 3600}
    batched = tuned(keys, BINS, "hash")
    ours = [
        counting(
            form, f"{keys:,} keys, {way}{options['strategy']}", way=f"{way}megaphone", strategies=[options], **common
        )
        for way, options in ((SAME, batched), ("", batched), ("", ALL_AT_ONCE))
    ]
    return [*ours, *(counting(form, f"{keys:,} keys, restart, {way}", way=way, **common) for way in ways)]


def run(parameters: Parameters, stage: "Stage") -> dict[str, Any]:
    """One way."""
    from megaphone.harness import today, trial

    ours = {"megaphone": today.rescale, f"{SAME}megaphone": trial.count}
    return ours.get(parameters["way"], today.restart)(parameters, stage)


def expected_s(parameters: Parameters) -> float:
    """About how long a way takes."""
    if parameters["way"].endswith("megaphone"):
        return seconds(parameters)
    keys = parameters["keys"]
    return seconds(parameters) + 10 + keys / FILL_PER_S[parameters["way"]] + keys / REWRITE_PER_S


def table(results: Sequence[Result]) -> Table:
    """Every rescale."""
    rows = [row for result in results for row in migration_rows(result, f"{result['parameters']['keys']:,}")]
    return Table(("keys", *MIGRATION_HEADS), rows)


def draw(results: Sequence[Result], path: Path) -> None:
    """The maximum latency of each way."""
    from megaphone.harness.report import draw_bars

    bars = {result["parameters"]["name"]: worst_ms(result["migrations"]) or 0.0 for result in results}
    draw_bars(bars, "maximum latency of a rescale from two to four, ms", path)


def _worst(results: Sequence[Result], keys: int, name: str) -> float | None:
    found = [result for result in results if result["parameters"]["keys"] == keys]
    return worst_ms(
        migration
        for result in found
        if result["parameters"]["name"].endswith(f"keys, {name}")
        for migration in result["migrations"]
    )


def ratios(results: Sequence[Result]) -> list[Ratio]:
    """Stop and restart to ours: with the largest state, and with as much as `transformWithState` can be filled with."""
    sizes = sorted({result["parameters"]["keys"] for result in results}) or [0]
    ours, small = _worst(results, sizes[-1], "batched"), _worst(results, sizes[0], "batched")
    return [
        Ratio(
            "maximum latency of stop and restart (aggregation) to ours, largest state",
            over(_worst(results, sizes[-1], f"restart, {AGGREGATION}"), ours),
            least=50,
        ),
        Ratio(
            "maximum latency of stop and restart (aggregation) to ours on the same workers, largest state",
            over(_worst(results, sizes[-1], f"restart, {AGGREGATION}"), _worst(results, sizes[-1], f"{SAME}batched")),
        ),
        Ratio(
            "maximum latency of stop and restart (aggregation) to ours, smallest state",
            over(_worst(results, sizes[0], f"restart, {AGGREGATION}"), small),
        ),
        Ratio(
            "maximum latency of stop and restart (transformWithState) to ours",
            over(_worst(results, sizes[0], f"restart, {TRANSFORM}"), small),
        ),
        Ratio(
            "maximum latency of all_at_once to ours, largest state",
            over(_worst(results, sizes[-1], "all_at_once"), ours),
        ),
    ]


EXPERIMENT = Experiment(
    name="todays_ways",
    question="What does a rescale cost, beside what Spark users do today?",
    paper="section 2.1",
    claim="stop-and-restart is what systems offer; it stops the stream for as long as the state takes to be rewritten.",
    criteria=("A7",),
    runs=runs,
    run=run,
    table=table,
    draw=draw,
    ratios=ratios,
    seconds=expected_s,
    # Spark keeps what it reads of its state in the JVM.
    settings={"spark.driver.memory": "4g"},
)
