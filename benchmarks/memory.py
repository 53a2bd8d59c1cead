"""How much memory does a migration take?

Key count with a large state, one strategy in each run: processes keep what they once had. Resident bytes of the
driver, the JVM, the workers and Spark's Python processes, twice a second.
"""

from collections.abc import Sequence
from pathlib import Path

from megaphone.harness.counting import state_bytes
from megaphone.harness.experiment import Experiment, Form, Parameters, Ratio, Result, Table
from megaphone.harness.recipe import ALL_AT_ONCE, FLUID, count, counting, most, over, seconds, size, tuned

KEYS = {"smoke": 1_000_000, "quick": 256_000_000, "full": 1_024_000_000}
SHIFT = {"smoke": 4, "quick": 8, "full": 12}


def runs(form: Form) -> list[Parameters]:
    """One for each strategy."""
    keys, bins = KEYS[form], 1 << SHIFT[form]
    strategies = [tuned(keys, bins), *([FLUID] if form != "quick" else []), ALL_AT_ONCE]
    return [counting(form, options["strategy"], keys=keys, bins=bins, strategies=[options]) for options in strategies]


def table(results: Sequence[Result]) -> Table:
    """The most that there was, steady and in each migration."""
    rows = []
    for result in results:
        state = size(state_bytes(result["parameters"]))
        for found in result["migrations"]:
            steady = found["memory_before"]
            cells = [size(part[role]) for role in ("total", "workers", "jvm") for part in (steady, found["memory"])]
            ratio = over(found["memory"]["total"], steady["total"])
            name = f"{found['strategy']}, {found['way']}"
            rows.append((name, state, size(found["bytes_moved"]), *cells, f"{ratio or 0:.2f}"))
    parts = ("all, steady", "all, moving", "workers, steady", "workers, moving", "JVM, steady", "JVM, moving")
    return Table(("strategy", "state", "moved", *parts, "ratio"), rows)


def draw(results: Sequence[Result], path: Path) -> None:
    """Memory over time, all processes and the workers alone, a line for each strategy."""
    from megaphone.harness.report import draw_curves

    panels = {
        f"{title}, GB": {
            result["parameters"]["name"]: [(sample["second"], sample[role] / 1e9) for sample in result["memory"]]
            for result in results
        }
        for title, role in (("all processes", "total"), ("workers", "workers"))
    }
    draw_curves(panels, "seconds", "", path, scale="linear")


def peak_to_steady(results: Sequence[Result], strategy: str) -> float | None:
    """The most memory during a strategy's migrations, to the most in the steady stretch before each."""
    return most(
        over(found["memory"]["total"], found["memory_before"]["total"])
        for result in results
        for found in result["migrations"]
        if found["strategy"] == strategy
    )


def ratios(results: Sequence[Result]) -> list[Ratio]:
    """Peak memory to steady, by strategy."""
    return [
        Ratio("peak memory during batched to steady", peak_to_steady(results, "batched"), most=1.1),
        Ratio("peak memory during all_at_once to steady", peak_to_steady(results, "all_at_once")),
    ]


EXPERIMENT = Experiment(
    name="memory",
    question="How much memory does a migration take?",
    paper="figure 20",
    claim="all-at-once takes about as much again as a process has; with fluid and batched memory hardly changes.",
    criteria=("A6", "J5"),
    runs=runs,
    run=count,
    table=table,
    draw=draw,
    ratios=ratios,
    seconds=seconds,
    # A heap grows to what it may have, whatever happens around it: this one soon has.
    settings={"spark.driver.memory": "1g"},
)
