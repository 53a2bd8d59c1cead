"""The page `docs/evaluation.md`: every picture beside the paper's claim, the figures seen, and a plain word on each.

Written from saved figures, never by hand; only results of a clean commit are shown.
Neighbours: results.py has the figures, bench.py writes the page.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from megaphone.harness.experiment import Experiment, Ratio
from megaphone.harness.results import Folder, newest_clean, ratios_of

NOT_MEASURED = "Not measured yet."

HEAD = """\
# Evaluation

What the paper's evaluation measures, measured here, on Spark. Written by `megaphone bench plot` from the results in
`benchmarks/results`; do not edit it. Latency counts from when a record was due, never from when it was sent. Each
experiment runs in one Spark application on one machine: trust the ratios, not the milliseconds. How each is done is at
the top of its file in [benchmarks](../benchmarks/README.md); which criterion of the paper is shown by which test or
experiment is in [claims](claims.md).
"""

WORDS = {
    "pass": "reached",
    "falls short": "**not reached**",
    "not measured": "not measured yet",
    "told": "",
}


def evaluation(experiments: Sequence[Experiment], root: Path) -> str:
    """The page."""
    found = {experiment.name: newest_clean(root, experiment.name) for experiment in experiments}
    parts = [HEAD, "\n".join(_summary(experiments, found))]
    parts += ["\n".join(_section(experiment, found[experiment.name], root)) for experiment in experiments]
    return "\n".join(parts)


def _summary(experiments: Sequence[Experiment], found: Mapping[str, Folder | None]) -> Iterator[str]:
    yield "## What was asked, and what was seen\n"
    yield "| experiment | ratio | asked | seen | |"
    yield "|---|---|---|---|---|"
    for experiment in experiments:
        for ratio in _ratios(experiment, _figures(found[experiment.name])):
            if ratio.asked:
                cells = (f"`{experiment.name}`", ratio.name, ratio.asked, _seen(ratio), WORDS[ratio.verdict])
                yield f"| {' | '.join(cells)} |"
    yield ""


def _section(experiment: Experiment, folder: Folder | None, root: Path) -> Iterator[str]:
    figures = _figures(folder)
    yield f"## {experiment.question}\n"
    paper = f"The paper, {experiment.paper}" if experiment.paper else "Not in the paper"
    yield f"`megaphone bench run {experiment.name}`. {paper}: {experiment.claim}\n"
    if folder is None or figures is None:
        yield f"{NOT_MEASURED}\n"
        return
    yield f"![{experiment.question}]({os.path.relpath(folder.picture, root.parents[1] / 'docs')})\n"
    yield "| " + " | ".join(figures["heads"]) + " |"
    yield "|---" * len(figures["heads"]) + "|"
    for row in figures["rows"]:
        yield "| " + " | ".join(row) + " |"
    yield ""
    for ratio in _ratios(experiment, figures):
        yield f"- {ratio.name}: {_seen(ratio)}" + (f" ({ratio.asked}: {WORDS[ratio.verdict]})" if ratio.asked else "")
    if experiment.word:
        yield f"\n{experiment.word}"
    yield f"\n{_origin(figures)}\n"


def _figures(folder: Folder | None) -> dict[str, Any] | None:
    return folder.figures() if folder else None


def _ratios(experiment: Experiment, figures: Mapping[str, Any] | None) -> Sequence[Ratio]:
    return ratios_of(figures) if figures else experiment.ratios([])


def _seen(ratio: Ratio) -> str:
    return "-" if ratio.value is None else f"{ratio.value:,.2f}"


def _origin(figures: Mapping[str, Any]) -> str:
    machine, versions = figures["machine"], figures["versions"]
    part = "" if figures["runs"] == figures["runs_asked"] else f"; {figures['runs']} of {figures['runs_asked']} runs"
    return (
        f"Commit {figures['commit']}, {figures['form']} form{part}; {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB; PySpark {versions['pyspark']}, Python {versions['python']}."
    )
