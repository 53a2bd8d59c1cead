"""Results: what was measured, by experiment, commit and form, with everything it depended on.

    benchmarks/results/<experiment>/<commit>/<form>/
        setting.json         machine, versions, seed, the parameters of every run
        runs/<key>.json.gz   what each run found; one that is there is not run again
        figures.json         the table and the ratios
        picture.png          drawn from the runs

Neighbours: experiment.py says what is run, bench.py runs it.
"""

import gzip
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from megaphone.harness.experiment import FORMS, Experiment, Form, Parameters, Ratio, Result, key_of

PACKAGES = ("megaphone-spark", "pyspark", "pyarrow", "numpy", "pandas")
DIRTY = "-dirty"
UNMEASURED = (":!benchmarks/results", ":!docs", ":!*.md")
"""What may differ from the commit without changing what is measured."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The results of one experiment at one commit in one form."""

    path: Path

    @property
    def experiment(self) -> str:
        """Whose they are."""
        return self.path.parts[-3]

    @property
    def commit(self) -> str:
        """Of which commit."""
        return self.path.parts[-2]

    @property
    def is_dirty(self) -> bool:
        """Did the tree differ from its commit?"""
        return self.commit.endswith(DIRTY)

    @property
    def form(self) -> str:
        """In which form."""
        return self.path.parts[-1]

    @property
    def picture(self) -> Path:
        """Where it is drawn."""
        return self.path / "picture.png"

    def begin(self, runs: Sequence[Parameters]) -> None:
        """Say what it depends on."""
        write(self.path / "setting.json", {**setting(), "form": self.form, "commit": self.commit, "runs": list(runs)})

    def has(self, parameters: Parameters) -> bool:
        """Was this run done?"""
        return self._run(parameters).exists()

    def save(self, parameters: Parameters, found: Mapping[str, Any], seconds: float) -> None:
        """Keep what a run found."""
        took = {"took_s": round(seconds, 1), "ended": now()}
        write_compressed(self._run(parameters), {"parameters": dict(parameters), **took, **found})

    def results(self, runs: Sequence[Parameters]) -> list[Result]:
        """What those runs found that were done, in their order."""
        return [json.loads(gzip.decompress(self._run(run).read_bytes())) for run in runs if self.has(run)]

    def asked(self) -> list[Parameters]:
        """The runs that were asked for when it began."""
        runs: list[Parameters] = json.loads((self.path / "setting.json").read_text())["runs"]
        return runs

    def figures(self) -> dict[str, Any] | None:
        """The table and the ratios, if they were written."""
        path = self.path / "figures.json"
        return json.loads(path.read_text()) if path.exists() else None

    def _run(self, parameters: Parameters) -> Path:
        return self.path / "runs" / f"{key_of(parameters)}.json.gz"


def write_figures(folder: Folder, experiment: Experiment) -> None:
    """Table, ratios and picture, from the runs that were saved."""
    asked = folder.asked()
    results = folder.results(asked)
    table = experiment.table(results)
    about = json.loads((folder.path / "setting.json").read_text())
    figures = {
        "experiment": experiment.name,
        **{name: about[name] for name in ("commit", "form", "began", "machine", "versions", "seed")},
        "runs": len(results),
        "runs_asked": len(asked),
        "heads": list(table.heads),
        "rows": [list(row) for row in table.rows],
        "ratios": [asdict(ratio) for ratio in experiment.ratios(results)],
    }
    write(folder.path / "figures.json", figures)
    if results:
        experiment.draw(results, folder.picture)


def ratios_of(figures: Mapping[str, Any]) -> list[Ratio]:
    """The ratios of saved figures."""
    return [Ratio(**ratio) for ratio in figures["ratios"]]


def folders(root: Path, experiment: str) -> Iterator[Folder]:
    """All results of an experiment, the newest first."""
    found = [Folder(path.parent) for path in (root / experiment).glob("*/*/setting.json")]
    yield from sorted(found, key=lambda folder: json.loads((folder.path / "setting.json").read_text())["began"])[::-1]


def newest(root: Path, experiment: str, commit: str | None = None, form: str | None = None) -> Folder | None:
    """The newest results of an experiment; a full form before a quick one, and a smoke form only if it is asked for."""
    found = [folder for folder in folders(root, experiment) if commit in (None, folder.commit)]
    return _first(found, (form,) if form else _TELLING)


def newest_clean(root: Path, experiment: str) -> Folder | None:
    """The newest results of an experiment that a commit can answer for."""
    clean = [folder for folder in folders(root, experiment) if not folder.is_dirty]
    return _first(clean, _TELLING)


_TELLING = tuple(reversed(FORMS[1:]))


def _first(found: Sequence[Folder], forms: Sequence[str]) -> Folder | None:
    for choice in forms:
        for folder in found:
            if folder.form == choice:
                return folder
    return None


def folder_for(root: Path, experiment: str, form: Form, checkout: Path) -> Folder:
    """Where results of the present commit go."""
    return Folder(root / experiment / commit_of(checkout) / form)


def commit_of(checkout: Path) -> str:
    """The commit that is checked out, short; `-dirty` if what is measured differs from it."""
    if shutil.which("git") is None or _git(checkout, "rev-parse", "--git-dir") is None:
        return "no-commit"
    commit = _git(checkout, "rev-parse", "--short", "HEAD") or "no-commit"
    changed = _git(checkout, "status", "--porcelain", "--", ".", *UNMEASURED)
    return f"{commit}{DIRTY}" if changed else commit


def _git(checkout: Path, *arguments: str) -> str | None:
    done = subprocess.run(["git", "-C", str(checkout), *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def setting() -> dict[str, Any]:
    """Machine and versions, and when."""
    return {"began": now(), "machine": _machine(), "versions": _versions(), "seed": SEED}


SEED = 1
"""Of every generated stream, unless a run's parameters say otherwise."""


def _machine() -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
    }


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def now() -> str:
    """The time, for people and for sorting."""
    return datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")


def write(path: Path, data: Any) -> None:
    """Write plain data whole or not at all, for people to read."""
    _replace(path, (json.dumps(data, indent=1, sort_keys=False) + "\n").encode())


def write_compressed(path: Path, data: Any) -> None:
    """Write plain data whole or not at all, in few bytes; the same bytes for the same data."""
    _replace(path, gzip.compress(json.dumps(data, separators=(",", ":")).encode(), mtime=0))


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.draft")
    draft.write_bytes(content)
    draft.replace(path)


def say_where(folder: Folder) -> str:
    """The folder as one would type it."""
    try:
        return str(folder.path.relative_to(Path.cwd()))
    except ValueError:
        return str(folder.path)
