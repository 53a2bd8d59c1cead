"""How many records a second can be counted, beside Spark's own ways and bytewax?

A running count over the same keys, always with the next epoch's records at hand, in epochs of growing size. The rate of
a system is the best it reaches with epochs of at most four seconds. A JVM gets faster for minutes, so those that are
fast take two turns, in turn. bytewax, if it is installed, counts as many words in one go.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from megaphone.harness.experiment import Experiment, Form, Parameters, Ratio, Result, Table
from megaphone.harness.recipe import counting, over

if TYPE_CHECKING:
    from megaphone.harness.stage import Stage

EPOCH_LIMIT_S = 4.0
OURS = ("megaphone, 2^8 bins", "megaphone, 2^12 bins")
NATIVE, BYTEWAX = "native", "bytewax"
SPARKS = ("groupBy().count()", "applyInPandasWithState", "transformWithState", "transformWithStateInPandas")
KEYS = {"smoke": 2_000, "quick": 1_000_000, "full": 10_000_000}
SLOW_KEYS = {"smoke": 500, "quick": 20_000, "full": 100_000}
"""Spark's state APIs for Python are filled with some thousand keys a second, and pay for each key in an epoch."""
ROWS: dict[str, dict[str, tuple[int, ...]]] = {
    "smoke": {"fast": (5_000,), "spark": (5_000,), "slow": (500,)},
    "quick": {"fast": (1_000_000, 10_000_000), "spark": (200_000, 1_000_000), "slow": (5_000,)},
    "full": {
        "fast": (200_000, 1_000_000, 4_000_000, 10_000_000),
        "spark": (50_000, 200_000, 600_000, 1_000_000),
        "slow": (2_000, 5_000, 20_000),
    },
}
EPOCHS = {"smoke": 2, "quick": 3, "full": 7}
TURNS = {"smoke": 1, "quick": 2, "full": 2}


def runs(form: Form) -> list[Parameters]:
    """For each system its sizes, the smallest first; then those that take another turn."""
    fast = (*OURS, NATIVE, SPARKS[0])
    turns = [(*fast, *SPARKS[1:], BYTEWAX), *(fast,) * (TURNS[form] - 1)]
    return [
        _run(form, system, rows, turn)
        for turn, systems in enumerate(turns, 1)
        for system in systems
        for rows in _sizes(form, system)
    ]


def _kind(system: str) -> str:
    if system in (*OURS, NATIVE, BYTEWAX):
        return "fast"
    return "spark" if system == SPARKS[0] else "slow"


def _sizes(form: Form, system: str) -> tuple[int, ...]:
    sizes = ROWS[form][_kind(system)]
    return sizes[:1] if system == BYTEWAX else sizes


def _run(form: Form, system: str, rows: int, turn: int) -> Parameters:
    keys = (SLOW_KEYS if _kind(system) == "slow" else KEYS)[form]
    return counting(
        form,
        f"{system}, {rows:,} an epoch, turn {turn}",
        benchmark="hash",
        version="native" if system == NATIVE else "migrateable",
        system=system,
        keys=keys,
        bins=1 << (12 if "2^12" in system else 8),
        rows=rows,
        warm=2,
        epochs=EPOCHS[form],
    )


def run(parameters: Parameters, stage: "Stage") -> dict[str, Any]:
    """One system, one size."""
    from megaphone.harness import saturation

    return saturation.measure(parameters, stage)


def expected_s(parameters: Parameters) -> float:
    """About how long a size takes."""
    speed = {"fast": 2_000_000, "spark": 120_000, "slow": 2_000}[_kind(parameters["system"])]
    return float(10 + (parameters["keys"] + parameters["rows"] * (parameters["epochs"] + 2)) / speed)


def best(results: Sequence[Result], system: str) -> float | None:
    """The best rate whose epochs keep to the limit; if none does, that of the shortest."""
    found = [result for result in results if result["parameters"]["system"] == system and "epoch_s" in result]
    kept = [result["records_per_s"] for result in found if result["epoch_s"] <= EPOCH_LIMIT_S or system == BYTEWAX]
    shortest = min(found, key=lambda result: result["epoch_s"], default=None)
    return max(kept) if kept else (shortest["records_per_s"] if shortest else None)


def table(results: Sequence[Result]) -> Table:
    """Every size of every system."""
    rows = []
    for result in results:
        given = result["parameters"]
        cells = ("not installed", "-") if "epoch_s" not in result else _cells(result)
        rows.append((given["system"], f"{given['keys']:,}", f"{given['rows']:,}", *cells))
    return Table(("system", "keys", "records an epoch", "epoch", "records/s"), rows)


def _cells(result: Result) -> tuple[str, str]:
    return f"{result['epoch_s']:.2f} s", f"{result['records_per_s']:,}"


def draw(results: Sequence[Result], path: Path) -> None:
    """The best rate of each system."""
    from megaphone.harness.report import draw_bars

    systems = dict.fromkeys(result["parameters"]["system"] for result in results)
    bars = {system: rate for system in systems if (rate := best(results, system)) is not None}
    draw_bars(bars, f"records a second, epochs of at most {EPOCH_LIMIT_S:.0f} s", path)


def ratios(results: Sequence[Result]) -> list[Ratio]:
    """Ours, with 2^12 bins, to each of the others."""
    ours = best(results, OURS[1])
    return [
        Ratio(f"records a second, ours with 2^12 bins to {system}", over(ours, best(results, system)))
        for system in (NATIVE, *SPARKS, BYTEWAX)
    ]


EXPERIMENT = Experiment(
    name="throughput",
    question="How many records a second can be counted, beside Spark's own ways and bytewax?",
    paper="",
    claim="what a user has to choose from.",
    criteria=("A3",),
    runs=runs,
    run=run,
    table=table,
    draw=draw,
    ratios=ratios,
    seconds=expected_s,
    # Epochs of ten million records are shuffled in the JVM.
    settings={"spark.driver.memory": "6g"},
)
