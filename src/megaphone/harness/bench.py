"""`megaphone bench`: lists experiments, runs them, draws them, and says which ratios are reached.

Only `run` needs Spark. A run that was interrupted goes on: what is saved is not done again.
Neighbours: experiment.py, results.py, page.py; the command line calls this.
"""

import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from megaphone.errors import PlanError
from megaphone.harness import experiment as experiments
from megaphone.harness.experiment import Experiment, Form, Parameters
from megaphone.harness.page import evaluation
from megaphone.harness.quiet import errors_to
from megaphone.harness.results import Folder, folder_for, newest, ratios_of, say_where, write_figures
from megaphone.harness.stage import Stage
from megaphone.printing import printable

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C has ended."""


@dataclass(frozen=True, slots=True)
class Bench:
    """The experiments of a checkout, and where their results are."""

    benchmarks: Path
    console: Console

    @property
    def results(self) -> Path:
        """Where results are."""
        return self.benchmarks / "results"

    def experiments(self, names: Sequence[str] = ()) -> list[Experiment]:
        """Those named; all, if none is."""
        known = experiments.find(self.benchmarks)
        for name in names:
            if name not in known:
                raise PlanError(f"no experiment named '{name}'; choose {', '.join(sorted(known))}")
        return [known[name] for name in names or known]

    def list(self) -> int:
        """Say what there is to run, and when it was last run."""
        table = _table("experiment", "question", "paper", "quick", "full", "newest results")
        for experiment in self.experiments():
            found = newest(self.results, experiment.name)
            took = [_minutes(sum(map(experiment.seconds, experiment.runs(form)))) for form in ("quick", "full")]
            told = f"{found.commit}, {found.form}" if found else "none"
            table.add_row(experiment.name, experiment.question, experiment.paper or "-", *took, told)
        self.console.print(table)
        return 0

    def run(self, names: Sequence[str], form: Form, again: bool = False) -> int:
        """Run experiments, one after the other, and draw them; 1 if a run has failed."""
        chosen = self.experiments(names)
        if len(chosen) > 1:
            return max(self._apart(experiment, form, again) for experiment in chosen)
        failed = 0
        for experiment in chosen:
            lack = experiment.lacks()
            if lack is not None:
                self.console.print(f"{experiment.name}: skipped: {lack}")
                continue
            folder = folder_for(self.results, experiment.name, form, self.benchmarks.parent)
            failed += self._run(experiment, folder, experiment.runs(form), again)
            self._draw(experiment, folder)
        self._write_page()
        return 1 if failed else 0

    def _apart(self, experiment: Experiment, form: Form, again: bool) -> int:
        """Run an experiment in a process of its own: a JVM stays for as long as its process, with all it has taken."""
        command = [sys.executable, "-m", "megaphone.cli", "bench", "--benchmarks", str(self.benchmarks)]
        command += ["run", experiment.name, "--form", form, *(["--again"] if again else [])]
        code = subprocess.run(command).returncode
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        return code

    def _run(self, experiment: Experiment, folder: Folder, runs: Sequence[Parameters], again: bool) -> int:
        """Run what is left of an experiment; how many runs failed."""
        left = [run for run in runs if again or not folder.has(run)]
        self.console.print(f"{experiment.name}: {experiment.question}{_kept(folder, len(runs) - len(left))}")
        if not left:
            return 0
        folder.begin(runs)
        with _progress(self.console, experiment, left) as tell, errors_to(folder.path / "spark.log"):
            stage, failed = Stage(tell, experiment.settings), 0
            try:
                for run in left:
                    tell(str(run["name"]), run)
                    failed += not self._try(experiment, folder, run, stage)
            finally:
                stage.close()
        return failed

    def _try(self, experiment: Experiment, folder: Folder, run: Parameters, stage: Stage) -> bool:
        """Do one run and save it; one that fails is told, and does not keep the others from theirs."""
        begin = time.monotonic()
        try:
            found = experiment.run(run, stage)
        except Exception as error:
            # Past whatever stands for standard error in this process: to where Spark writes as well.
            os.write(2, traceback.format_exc().encode())
            told = printable((str(error).strip() or type(error).__name__).splitlines()[0])
            self.console.print(f"  {run['name']} failed: {told}; more is in {say_where(folder)}/spark.log")
            stage.close()
            return False
        folder.save(run, found, time.monotonic() - begin)
        return True

    def plot(self, names: Sequence[str], commit: str | None = None, form: Form | None = None) -> int:
        """Draw saved results once more."""
        drawn = 0
        for experiment in self.experiments(names):
            folder = newest(self.results, experiment.name, commit, form)
            if folder is not None:
                self._draw(experiment, folder)
                drawn += 1
            elif names:
                raise PlanError(f"{experiment.name} has no results; run 'megaphone bench run {experiment.name}'")
        if not drawn:
            self.console.print("no results yet; run 'megaphone bench run'")
        self._write_page()
        return 0

    def _write_page(self) -> None:
        page = self.benchmarks.parent / "docs" / "evaluation.md"
        if page.parent.is_dir():
            page.write_text(evaluation(self.experiments(), self.results))
            self.console.print(f"page: {page}")

    def _draw(self, experiment: Experiment, folder: Folder) -> None:
        write_figures(folder, experiment)
        figures = folder.figures()
        assert figures is not None
        table = _table(*figures["heads"])
        for row in figures["rows"]:
            table.add_row(*row)
        self.console.print(table)
        self.console.print(f"picture: {say_where(folder)}/picture.png, figures: {say_where(folder)}/figures.json")

    def compare(self, names: Sequence[str] = (), commit: str | None = None, form: Form | None = None) -> int:
        """Every ratio with its verdict; 0 only if all that are asked for are reached."""
        table = _table("experiment", "results", "ratio", "seen", "asked", "verdict")
        reached = True
        for experiment in self.experiments(names):
            folder = newest(self.results, experiment.name, commit, form)
            figures = folder.figures() if folder else None
            lack = None if figures else experiment.lacks()
            for ratio in ratios_of(figures) if figures else experiment.ratios([]):
                seen = "-" if ratio.value is None else f"{ratio.value:,.2f}"
                verdict = "skipped" if lack and ratio.value is None else ratio.verdict
                where = f"{folder.commit}, {folder.form}" if figures and folder else "none"
                table.add_row(experiment.name, where, ratio.name, seen, ratio.asked, verdict)
                reached &= verdict in ("pass", "told", "skipped") or not ratio.asked
            if lack:
                self.console.print(f"{experiment.name}: skipped: {lack}")
        self.console.print(table)
        self.console.print("every ratio is reached" if reached else "not every ratio is reached")
        return 0 if reached else 1


def _kept(folder: Folder, done: int) -> str:
    """What is not run again."""
    if not done:
        return ""
    doubt = ", of a tree that may have changed since; --again does them anew" if folder.is_dirty else ""
    return f" ({done} runs are there{doubt})"


def _table(*heads: str) -> Table:
    return Table(*heads, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")


def _minutes(seconds: float) -> str:
    """How long, for people.

    >>> _minutes(40), _minutes(400), _minutes(8000)
    ('40 s', '7 min', '2.2 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextmanager
def _progress(console: Console, experiment: Experiment, runs: Sequence[Parameters]) -> "Iterator[Callable[..., None]]":
    """Two bars: this run, and all of them; with the time left by what runs are known to take."""
    columns = (TextColumn("{task.description:<34}"), BarColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as bars:
        seconds = [experiment.seconds(run) for run in runs]
        meter = _Meter(bars, seconds, bars.add_task(experiment.name, total=sum(seconds), left=""))
        yield meter.tell
        meter.finish()


class _Meter:
    """Turns words on how it goes into bars."""

    def __init__(self, bars: Progress, seconds: Sequence[float], whole: TaskID) -> None:
        self._bars, self._seconds, self._whole = bars, seconds, whole
        self._run, self._begin = -1, time.monotonic()
        self._task: TaskID | None = None

    def tell(self, what: str, begun: Parameters | None = None) -> None:
        """Say what is going on; `begun` if it is another run."""
        if begun is not None:
            self._next(str(begun["name"]))
        if self._task is None:
            return
        passed, expected = time.monotonic() - self._begin, self._seconds[self._run]
        # A run that takes longer than it should is never quite done.
        share = min(passed / expected, 0.99)
        before, after = sum(self._seconds[: self._run]), sum(self._seconds[self._run + 1 :])
        self._bars.update(self._task, completed=share, left=what)
        left = f"{_minutes(after + (1 - share) * expected)} left"
        self._bars.update(self._whole, completed=before + share * expected, left=left)

    def finish(self) -> None:
        """All is done."""
        self._end_run()
        self._bars.update(self._whole, completed=sum(self._seconds), left="")

    def _end_run(self) -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=1.0, left="")
            self._bars.stop_task(self._task)

    def _next(self, name: str) -> None:
        self._end_run()
        self._run, self._begin = self._run + 1, time.monotonic()
        self._task = self._bars.add_task(f"  {name}", total=1.0, left="")
        if not self._bars.console.is_terminal:
            # Bars are drawn at the end there; whoever follows a log wants to see more.
            self._bars.console.print(f"  {name}, {_minutes(sum(self._seconds[self._run :]))} left")
