"""An experiment: one question of the evaluation, the runs that answer it, and what is drawn and said of them.

A file in `benchmarks/` has one, named `EXPERIMENT`. It knows nothing of Spark until a run begins.
Neighbours: bench.py runs experiments, results.py keeps what they found.  Paper: the evaluation.
"""

import ast
import hashlib
import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from megaphone.errors import PlanError

if TYPE_CHECKING:
    from megaphone.harness.stage import Stage

Form = Literal["smoke", "quick", "full"]
FORMS: tuple[Form, ...] = ("smoke", "quick", "full")
"""Seconds, to see that it works; some minutes on two cores; as the paper did, as far as the machine goes."""

Parameters = Mapping[str, Any]
"""Everything a run depends on, as plain data; `name` tells it from the other runs of its experiment."""

Result = Mapping[str, Any]
"""What a run found, as plain data, with its `parameters`."""

Verdict = Literal["pass", "falls short", "not measured", "told"]


def key_of(parameters: Parameters) -> str:
    """What a run is called on disk: its name, and a digest of all its parameters, so that changed ones are run anew.

    >>> key_of({"name": "2^4 bins", "bins": 16})
    '2_4_bins-9056806a'
    """
    text = json.dumps(parameters, sort_keys=True)
    name = "".join(letter if letter.isalnum() else "_" for letter in str(parameters["name"]))
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure that the evaluation must reach, or one that is only told.

    >>> Ratio("to native", 1.04, most=1.1).verdict, Ratio("below all at once", 7.0, least=10).verdict
    ('pass', 'falls short')
    """

    name: str
    value: float | None
    """None if it was not measured."""
    most: float | None = None
    least: float | None = None

    @property
    def verdict(self) -> Verdict:
        """Is it reached?"""
        if self.value is None:
            return "not measured"
        if self.most is None and self.least is None:
            return "told"
        low, high = self.least, self.most
        return "pass" if (low is None or self.value >= low) and (high is None or self.value <= high) else "falls short"

    @property
    def asked(self) -> str:
        """What it must be."""
        bounds = [("at least", self.least), ("at most", self.most)]
        return ", ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)


@dataclass(frozen=True, slots=True)
class Table:
    """Figures for people, each row as long as the heads."""

    heads: tuple[str, ...]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Experiment:
    """One question."""

    name: str
    question: str
    paper: str
    """Which figures of the paper it repeats; empty if it is ours."""
    claim: str
    """What the paper says they show."""
    criteria: tuple[str, ...]
    """Which acceptance criteria it answers for: A1 to K1."""
    runs: Callable[[Form], Sequence[Parameters]]
    run: "Callable[[Parameters, Stage], dict[str, Any]]"
    table: Callable[[Sequence[Result]], Table]
    draw: Callable[[Sequence[Result], Path], None]
    ratios: Callable[[Sequence[Result]], Sequence[Ratio]]
    """Also without results: then it says what is to be measured."""
    seconds: Callable[[Parameters], float]
    """About how long a run takes."""
    word: str = ""
    """What is to be said of what was seen, above all where it is not what the paper shows."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """For Spark, on top of the usual ones."""
    lacks: Callable[[], str | None] = lambda: None
    """Why it cannot be run here, if it cannot."""


def find(folder: Path) -> dict[str, Experiment]:
    """The experiments of a folder, by name."""
    if not folder.is_dir():
        raise PlanError(f"there is no folder {folder}; run it in a checkout of the project, or give --benchmarks")
    found = [_load(path) for path in sorted(folder.glob("*.py")) if _has_experiment(path)]
    return {experiment.name: experiment for experiment in found}


def _has_experiment(path: Path) -> bool:
    """Told from its text: another file there may import Spark."""
    body = ast.parse(path.read_text()).body
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    return any(isinstance(target, ast.Name) and target.id == "EXPERIMENT" for target in targets)


def _load(path: Path) -> Experiment:
    spec = importlib.util.spec_from_file_location(f"benchmarks_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    experiment: Experiment = module.EXPERIMENT
    if experiment.name != path.stem:
        raise PlanError(f"{path} has an experiment named '{experiment.name}'; name it as its file")
    return experiment
