"""What does a migration do to NEXMark's queries, Q1 to Q8?

Each query under an open-loop stream of events, event time going faster than the clock so that windows come and go. A
quarter of the bins is moved away and back, in batches and then all at once, in the same query; beside it the native
query, which cannot be migrated. Queries whose state grows with what has come begin with the events of the time before,
preloaded: as many as the paper's stream has brought by its first migration, or as their windows hold.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from megaphone.harness.experiment import Experiment, Form, Parameters, Ratio, Result, Table
from megaphone.harness.recipe import (
    ALL_AT_ONCE,
    MIGRATION_HEADS,
    STRETCHES,
    migration_rows,
    migrations,
    over,
    trial_seconds,
    worst_ms,
)
from megaphone.harness.results import SEED

if TYPE_CHECKING:
    from megaphone.harness.stage import Stage

QUERIES = {
    "smoke": ("q1", "q4"),
    "quick": tuple(f"q{n}" for n in range(1, 9)),
    "full": tuple(f"q{n}" for n in range(1, 9)),
}
NATIVE_TOO = {"smoke": (), "quick": ("q3",), "full": QUERIES["full"]}
RATE = {"smoke": 1_000, "quick": 100_000, "full": 100_000}
BINS = {"smoke": 16, "quick": 4096, "full": 4096}
BATCHED = {"strategy": "batched", "batch": 16}
WARM_UP_S = {"smoke": 1.0, "quick": 30.0, "full": 400.0}
"""State grows while events come: in the full form for as long as in the paper."""
IN_FLIGHT_S = {"q4": 20, "q6": 20}
"""Seconds of the stream's events, as many auctions as which are open; of the other queries it does not matter."""
PRELOAD_S = {"q3": 16_000, "q4": 700, "q5": 60, "q6": 700, "q8": 745}
"""Seconds of the stream that are there before it begins: of Q3, which forgets nothing, as many events as in the paper;
of Q4 and Q6 those in which auctions come that are still open, of Q5 a window; of Q8 so many that its migrations are at
the paper's hour, the seventeenth."""
PRELOADED = {"q3": 9_000_000, "q8": 6_000_000}
"""About how many events a second, to say how long a run will take; else a million."""
STREAM = {"dilation": 60, "strings": "true", "partitions": 2, "seed": SEED}
"""A minute of NEXMark's time in a second, as Q5 in the paper."""
DILATION = {"q8": 79}
"""So that its windows of twelve hours come and go, as in the paper."""
STATELESS = ("q1", "q2")


def runs(form: Form) -> list[Parameters]:
    """Each query, and its native version where it is asked for."""
    found = []
    for query in QUERIES[form]:
        found.append(_run(form, query, "migrateable"))
        if query in NATIVE_TOO[form]:
            found.append(_run(form, query, "native"))
    return found


def _run(form: Form, query: str, version: str) -> Parameters:
    warm_up = min(WARM_UP_S[form], 20.0) if query in STATELESS else WARM_UP_S[form]
    return {
        "name": query if version == "migrateable" else f"{query} native",
        "query": query,
        "version": version,
        "workers": 2,
        "bins": BINS[form],
        "rate": RATE[form],
        "snapshot_share": 0.05,
        "stream": {
            **STREAM,
            "dilation": DILATION.get(query, STREAM["dilation"]),
            "in_flight_auctions": int(IN_FLIGHT_S.get(query, 0.2) * RATE[form]),
            "preload": PRELOAD_S.get(query, 0) * RATE[form],
        },
        "strategies": [BATCHED, ALL_AT_ONCE] if version == "migrateable" else [],
        **STRETCHES[form],
        "warm_up_s": warm_up,
    }


def run(parameters: Parameters, stage: "Stage") -> dict[str, Any]:
    """One query."""
    from megaphone.harness import trial

    return trial.nexmark(parameters, stage)


def table(results: Sequence[Result]) -> Table:
    """Every migration, and of native queries the steady maximum."""
    rows: list[tuple[str, ...]] = []
    for result in results:
        name = result["parameters"]["name"]
        none = [(name, *("-",) * (len(MIGRATION_HEADS) - 2), f"{result['steady']['max_ms']:,.0f} ms", "-")]
        rows += migration_rows(result, name) or none
    return Table(("query", *MIGRATION_HEADS), rows)


def draw(results: Sequence[Result], path: Path) -> None:
    """A timeline for each query, from when it was warm."""
    from megaphone.harness.report import Panel, Span, draw_timelines

    panels = []
    for result in results:
        warm = result["steady_spans"][0][0] if result["steady_spans"] else 0
        spans = [Span(found["strategy"], found["began_s"], found["ended_s"]) for found in result["migrations"]]
        rows = [row for row in result["timeline"] if row["second"] >= warm]
        panels.append(Panel(result["parameters"]["name"], rows, spans))
    draw_timelines(panels, path, across=2)


def ratios(results: Sequence[Result]) -> list[Ratio]:
    """For each query: all-at-once to batched, and batched to steady."""
    by_name = {result["parameters"]["name"]: result for result in results}
    found = []
    for query in QUERIES["full"]:
        result = by_name.get(query)
        batched = worst_ms(migrations(result, "batched")) if result else None
        at_once = worst_ms(migrations(result, "all_at_once")) if result else None
        found.append(Ratio(f"{query}: maximum latency of all_at_once to batched", over(at_once, batched)))
        steady = result["steady"]["max_ms"] if result else None
        found.append(Ratio(f"{query}: maximum latency of batched to steady", over(batched, steady)))
    return found


def expected_s(parameters: Parameters) -> float:
    """About how long a query takes."""
    preloaded = parameters["stream"]["preload"] / PRELOADED.get(parameters["query"], 1_000_000)
    return float(10 + preloaded + trial_seconds(parameters))


EXPERIMENT = Experiment(
    name="nexmark_timelines",
    question="What does a migration do to NEXMark's queries, Q1 to Q8?",
    paper="figures 5 to 12",
    claim="no spike without state (Q1, Q2) or with little (Q7); else all-at-once an order of magnitude above batched.",
    word=(
        "Batched is hardly to be told from steady. All at once is, by an order of magnitude in Q3, which begins with "
        "as many events as in the paper, and by two to five times where less moves: our queries keep no more than "
        "they must. Without state (Q1, Q2), or with little (Q7), all at once is seen as well, unlike in the paper: a "
        "thousand bins move in one step, and each takes some tenth of a millisecond, full or empty."
    ),
    criteria=("H2", "H3", "H4", "H5", "H6", "H7", "H8"),
    runs=runs,
    run=run,
    table=table,
    draw=draw,
    ratios=ratios,
    seconds=expected_s,
)
