"""The frame of the experiments, by one that needs no Spark.

Would catch a run that is done twice or lost when an experiment is interrupted, results of one commit taken for those of
another, a ratio that falls short and is not said to, and a command that starts Spark to print a table.
"""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from megaphone import cli
from megaphone.harness.bench import Bench
from megaphone.harness.experiment import Ratio, find, key_of
from megaphone.harness.results import commit_of, newest, newest_clean

ROOT = Path(__file__).parents[2]
TOY = """
from pathlib import Path
from megaphone.harness.experiment import Experiment, Ratio, Table

def runs(form):
    return [{"name": f"run {n}", "n": n, "form": form} for n in range(3)]

def run(parameters, stage):
    log = Path(__file__).with_name("log")
    log.write_text((log.read_text() if log.exists() else "") + parameters["name"] + "\\n")
    if parameters["n"] == 1 and Path(__file__).with_name("power-cut").exists():
        raise KeyboardInterrupt
    if parameters["n"] == 1 and Path(__file__).with_name("bug").exists():
        raise ValueError("no such luck\\nat all")
    stage.show("halfway")
    return {"square": parameters["n"] ** 2}

def table(results):
    return Table(("n", "square"), [(str(r["parameters"]["n"]), str(r["square"])) for r in results])

def draw(results, path):
    path.write_text(",".join(str(r["square"]) for r in results))

def ratios(results):
    value = max((r["square"] for r in results), default=None)
    return [Ratio("largest square", value, most=MOST), Ratio("for information", value)]

MOST = 4
EXPERIMENT = Experiment("toy", "What is a square?", "figure 0", "it is n times n.", ("A1",), runs, run, table, draw,
                        ratios, seconds=lambda parameters: 1.0, word="Squares grow.")
"""


@pytest.fixture
def bench(tmp_path):
    """A checkout with one experiment, under git."""
    benchmarks = tmp_path / "benchmarks"
    benchmarks.mkdir()
    (benchmarks / "toy.py").write_text(TOY)
    (benchmarks / "script.py").write_text("raise SystemExit('this is no experiment')\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / ".gitignore").write_text("__pycache__/\n")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return Bench(benchmarks, Console(width=200))


def git(checkout, *arguments):
    subprocess.run(["git", "-C", checkout, *arguments], check=True, capture_output=True)


def commit(checkout):
    git(checkout, "add", "--all")
    git(checkout, "-c", "user.name=n", "-c", "user.email=n@example.org", "commit", "--quiet", "--message", "All")


def done(bench):
    """The runs that were begun, in order."""
    return (bench.benchmarks / "log").read_text().splitlines()


def test_experiment_is_run_saved_drawn_and_compared(bench, capsys):
    assert bench.run(["toy"], "quick") == 0
    folder = newest(bench.results, "toy")
    assert folder is not None
    assert folder.picture.read_text() == "0,1,4"
    figures = folder.figures()
    assert figures["rows"] == [["0", "0"], ["1", "1"], ["2", "4"]]
    assert (figures["runs"], figures["runs_asked"], figures["form"]) == (3, 3, "quick")
    setting = json.loads((folder.path / "setting.json").read_text())
    assert setting["machine"]["cores"] >= 1
    assert setting["versions"]["pyspark"]
    assert setting["runs"] == [{"name": f"run {n}", "n": n, "form": "quick"} for n in range(3)]
    capsys.readouterr()
    assert bench.compare() == 0
    assert "every ratio is reached" in capsys.readouterr().out


def test_interrupted_experiment_goes_on_where_it_was(bench):
    cut = bench.benchmarks / "power-cut"
    cut.touch()
    with pytest.raises(KeyboardInterrupt):
        bench.run(["toy"], "quick")
    cut.unlink()
    bench.run(["toy"], "quick")
    assert done(bench) == ["run 0", "run 1", "run 1", "run 2"]
    bench.run(["toy"], "quick")
    assert len(done(bench)) == 4
    bench.run(["toy"], "quick", again=True)
    assert len(done(bench)) == 7


def test_runs_are_kept_in_few_bytes_and_figures_as_text(bench):
    bench.run(["toy"], "quick")
    folder = newest(bench.results, "toy").path
    kept = sorted((folder / "runs").iterdir())
    assert len(kept) == 3
    assert all(json.loads(gzip.decompress(path.read_bytes()))["parameters"]["form"] == "quick" for path in kept)
    assert json.loads((folder / "figures.json").read_text())["runs"] == 3


def test_run_that_fails_does_not_keep_the_others_from_theirs(bench, capsys):
    bug = bench.benchmarks / "bug"
    bug.touch()
    assert bench.run(["toy"], "quick") == 1
    assert "run 1 failed: no such luck; more is in " in capsys.readouterr().out
    folder = newest(bench.results, "toy")
    assert "ValueError: no such luck" in (folder.path / "spark.log").read_text()
    assert (folder.figures()["runs"], folder.figures()["runs_asked"]) == (2, 3)
    bug.unlink()
    assert bench.run(["toy"], "quick") == 0
    assert done(bench) == ["run 0", "run 1", "run 2", "run 1"]


def test_several_experiments_are_run_in_processes_of_their_own(bench):
    toy = (bench.benchmarks / "toy.py").read_text()
    (bench.benchmarks / "other.py").write_text(toy.replace('"toy"', '"other"'))
    assert bench.run([], "quick") == 0
    assert done(bench) == ["run 0", "run 1", "run 2"] * 2
    assert newest(bench.results, "other").figures()["runs"] == 3
    (bench.benchmarks / "power-cut").touch()
    with pytest.raises(KeyboardInterrupt):
        bench.run(["toy", "other"], "quick", again=True)
    assert done(bench)[6:] == ["run 0", "run 1"]


def test_changed_parameters_are_another_run(bench):
    bench.run(["toy"], "quick")
    bench.run(["toy"], "full")
    assert len(done(bench)) == 6
    assert key_of({"name": "a", "n": 1}) != key_of({"name": "a", "n": 2})


def test_ratio_that_falls_short_is_said_to(bench, capsys):
    path = bench.benchmarks / "toy.py"
    path.write_text(TOY.replace("MOST = 4", "MOST = 3"))
    bench.run(["toy"], "quick")
    assert bench.compare() == 1
    assert "falls short" in capsys.readouterr().out


def test_ratio_that_was_not_measured_is_not_reached(bench, capsys):
    assert bench.compare() == 1
    out = capsys.readouterr().out
    assert out.count("not measured") == 2
    assert "not every ratio is reached" in out


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (Ratio("r", 10.0, least=10), "pass"),
        (Ratio("r", 9.99, least=10), "falls short"),
        (Ratio("r", 1.5, most=1.5), "pass"),
        (Ratio("r", 1.51, most=1.5), "falls short"),
        (Ratio("r", None, most=1.5), "not measured"),
        (Ratio("r", 3.0), "told"),
    ],
)
def test_verdict_is_by_the_bounds(ratio, verdict):
    assert ratio.verdict == verdict


def test_picture_and_page_are_made_from_saved_results(bench):
    bench.run(["toy"], "full")
    folder = newest(bench.results, "toy")
    folder.picture.unlink()
    (folder.path / "figures.json").unlink()
    assert bench.plot([]) == 0
    assert folder.picture.read_text() == "0,1,4"
    page = (bench.benchmarks.parent / "docs" / "evaluation.md").read_text()
    assert f"(../benchmarks/results/toy/{folder.commit}/full/picture.png)" in page
    assert "| 2 | 4 |" in page
    assert "largest square: 4.00 (at most 4: reached)" in page
    assert "Squares grow." in page


def test_page_says_what_is_not_measured(bench):
    bench.plot([])
    page = (bench.benchmarks.parent / "docs" / "evaluation.md").read_text()
    assert "Not measured yet." in page
    assert "| `toy` | largest square | at most 4 | - | not measured yet |" in page


def test_results_are_those_of_their_commit(bench):
    checkout = bench.benchmarks.parent
    clean = commit_of(checkout)
    bench.run(["toy"], "quick")
    assert commit_of(checkout) == f"{clean}-dirty"  # the log that the toy keeps
    commit(checkout)
    after = commit_of(checkout)
    assert not after.endswith("-dirty")
    (checkout / "docs" / "page.md").touch()
    bench.results.joinpath("new").touch()
    assert commit_of(checkout) == after
    (bench.benchmarks / "log").write_text("changed")
    bench.run(["toy"], "quick")
    assert newest(bench.results, "toy").commit == f"{after}-dirty"
    assert newest_clean(bench.results, "toy").commit == clean


def test_full_form_goes_before_quick_and_smoke_is_not_shown(bench):
    for form in ("full", "quick", "smoke"):
        bench.run(["toy"], form)
    assert newest(bench.results, "toy").form == "full"
    assert newest(bench.results, "toy", form="smoke").form == "smoke"


def test_errors_are_sentences(capsys, tmp_path, bench):
    assert cli.main(["bench", "--benchmarks", f"{tmp_path}/nowhere", "list"]) == 1
    assert capsys.readouterr().err.startswith(f"megaphone: there is no folder {tmp_path}/nowhere; ")
    assert cli.main(["bench", "--benchmarks", str(bench.benchmarks), "run", "tyo"]) == 1
    assert capsys.readouterr().err == "megaphone: no experiment named 'tyo'; choose toy\n"
    assert cli.main(["bench", "--benchmarks", str(bench.benchmarks), "plot", "toy"]) == 1
    assert "toy has no results; run 'megaphone bench run toy'" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["list", "plot", "compare"])
def test_command_does_without_spark(verb, bench):
    bench.run(["toy"], "quick")
    code = (
        "import sys; from megaphone import cli; "
        f"code = cli.main(['bench', '--benchmarks', '{bench.benchmarks}', '{verb}']); "
        "sys.exit(code or any(name in sys.modules for name in ('pyspark', 'py4j')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def test_experiments_are_loaded_without_spark():
    code = (
        "import sys; from pathlib import Path; from megaphone.harness.experiment import find; "
        f"found = find(Path('{ROOT / 'benchmarks'}')); "
        "[experiment.runs(form) for experiment in found.values() for form in ('smoke', 'quick', 'full')]; "
        "sys.exit('pyspark' in sys.modules or not found)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


EXPERIMENTS = find(ROOT / "benchmarks")


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("form", ["smoke", "quick", "full"])
def test_runs_can_be_told_apart_and_kept(name, form):
    experiment = EXPERIMENTS[name]
    runs = experiment.runs(form)
    assert runs
    assert len({run["name"] for run in runs}) == len(runs)
    assert json.loads(json.dumps(runs)) == runs
    assert all(experiment.seconds(run) > 0 for run in runs)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_nothing_was_measured_is_no_error(name):
    experiment = EXPERIMENTS[name]
    assert experiment.table([]).rows == []
    assert all(ratio.value is None for ratio in experiment.ratios([]))
