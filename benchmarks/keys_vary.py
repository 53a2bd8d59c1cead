"""How do latency and duration of a migration change with the size of the state?

Key count with 2^12 bins, as in the paper, from ten megabytes to the largest state that fits the machine with room for
what moves. `batched` is tuned by one rule for all sizes: some megabytes in a step. Workers on one machine lend
each other the memory of arrays instead of copying it; so the largest state is also streamed, as between machines, and
kept in Python's dicts, which have to be pickled wherever they go. A quarter of the state moves, as in the paper; of the
largest also all that one of the two workers has, as when it is drained. A tuned migration of the largest takes minutes:
steady stretches together are as long, since the maximum of a longer time is a higher one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from megaphone.harness.counting import KEY_BYTES
from megaphone.harness.experiment import Experiment, Form, Parameters, Ratio, Result, Table
from megaphone.harness.recipe import (
    ALL_AT_ONCE,
    FLUID,
    MIGRATION_HEADS,
    as_long_steady,
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

SIZES = {"smoke": (1_000_000,), "quick": (10e6, 100e6, 1e9, 15e9), "full": (10e6, 40e6, 160e6, 640e6, 2.5e9, 6e9, 15e9)}
"""Bytes of state, as far as they fit."""
ROOM = 0.6
"""Of the memory: a quarter of the state is there twice while it moves, and Spark and the system need some, too."""
LESS = 0.8
"""Of the largest size, where more memory is needed for a while: half of the state is there twice while a worker is
drained of it all at once; a dict that has to grow is half empty, and memory that held many small objects is not given
back at once."""
SHIFT = {"smoke": 4, "quick": 12, "full": 12}
STREAMED, DRAINED, IN_DICTS = ", streamed", ", drained", ", in dicts"
FLUID_TOO = {"smoke": True, "quick": False, "full": True}


def runs(form: Form) -> list[Parameters]:
    """One for each size that fits; the largest in four ways."""
    room = psutil.virtual_memory().total * ROOM
    sizes = [bytes for bytes in SIZES[form] if bytes <= room]
    largest, less = sizes[-1], sizes[-1] * LESS
    return [
        *(_run(form, size(bytes), bytes) for bytes in sizes),
        _run(form, f"{size(largest)}{STREAMED}", largest, transport="tcp"),
        _run(form, f"{size(less)}{DRAINED}", less, transport="tcp", drained=1),
        _run(form, f"{size(less)}{IN_DICTS}", less, "dict"),
    ]


def _run(form: Form, name: str, bytes: float, benchmark: str = "key", **changes: Any) -> Parameters:
    bins, keys = 1 << SHIFT[form], int(bytes) // KEY_BYTES[benchmark]
    strategies = [tuned(keys, bins, benchmark), *([FLUID] if FLUID_TOO[form] else []), ALL_AT_ONCE]
    run = counting(form, name, benchmark=benchmark, keys=keys, bins=bins, strategies=strategies, **changes)
    return as_long_steady(run)


def table(results: Sequence[Result]) -> Table:
    """Every migration."""
    rows = [row for result in results for row in migration_rows(result, result["parameters"]["name"])]
    return Table(("state", *MIGRATION_HEADS), rows)


def draw(results: Sequence[Result], path: Path) -> None:
    """Maximum latency and duration over the size of the state, a line for each strategy."""
    from megaphone.harness.report import draw_curves

    latency: dict[str, Any] = {}
    duration: dict[str, Any] = {}
    results = by_way(results)[""]
    for strategy in strategies_of(results):
        found = [(result["parameters"]["keys"] * 8 / 1e6, migrations(result, strategy)) for result in results]
        latency[strategy] = [(bytes, worst_ms(some) or 0) for bytes, some in found if some]
        duration[strategy] = [(bytes, lasted_s(some) or 0) for bytes, some in found if some]
    latency["steady"] = [(result["parameters"]["keys"] * 8 / 1e6, result["steady"]["max_ms"]) for result in results]
    draw_curves({"maximum latency, ms": latency, "duration, s": duration}, "MB of state", "", path)


def by_way(results: Sequence[Result]) -> dict[str, list[Result]]:
    """By how a state moved, each in the order of sizes; where memory was lent under no name."""
    ways = (STREAMED, DRAINED, IN_DICTS)
    found: dict[str, list[Result]] = {way: [] for way in ("", *ways)}
    for result in sorted(results, key=lambda result: result["parameters"]["keys"]):
        found[next((way for way in ways if result["parameters"]["name"].endswith(way)), "")].append(result)
    return found


def ratios(results: Sequence[Result]) -> list[Ratio]:
    """Tuned to steady at every size, tuned below all-at-once at the largest, and how all-at-once grows."""
    tuned_to_steady = [over(worst_ms(migrations(found, "batched")), found["steady"]["max_ms"]) for found in results]
    ways = by_way(results)
    grown = over(_worst(ways[""][-1:], "all_at_once"), _worst(ways[""][:1], "all_at_once"))
    below = "maximum latency of all_at_once to a tuned migration, largest state"
    return [
        Ratio("maximum latency of a tuned migration to steady, worst of the sizes", most(tuned_to_steady), most=1.5),
        Ratio(f"{below}, in dicts", _below(ways[IN_DICTS]), least=10),
        Ratio(f"{below}, in arrays, streamed as between machines, a worker drained", _below(ways[DRAINED]), least=10),
        Ratio(f"{below}, in arrays, streamed as between machines", _below(ways[STREAMED]), least=10),
        Ratio(f"{below}, in arrays, lent", _below(ways[""][-1:]), least=10),
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
    word=(
        "All-at-once grows with the state; a tuned migration does not, since a step is lost in Spark's epoch, and a "
        "maximum of about two epochs is what there is without any migration. So how far the two are apart depends on "
        "how fast a state moves all at once: Python's objects have to be pickled; arrays are streamed or, on one "
        "machine, even lent, at up to a gigabyte a second. That all-at-once takes longer in all than batched, as the "
        "paper saw, we do not see."
    ),
    criteria=("A5", "J2", "J6"),
    runs=runs,
    run=count,
    table=table,
    draw=draw,
    ratios=ratios,
    seconds=seconds,
)
