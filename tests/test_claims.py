"""Would catch a claim of the paper that nobody shows, and a page that names a test or an experiment that is not there.

That named tests are in the files they link to is seen to in `test_docs.py`.
"""

import re
from pathlib import Path

import pytest

from megaphone.harness.experiment import find
from megaphone.harness.page import evaluation

ROOT = Path(__file__).parents[1]
EXPERIMENTS = find(ROOT / "benchmarks")
CRITERIA = {"A": 7, "B": 6, "C": 4, "D": 7, "E": 7, "F": 7, "G": 2, "H": 9, "I": 2, "J": 6, "K": 1}
UNSHOWN = {"F3", "F4"}
"""What the paper names as possible, and nobody has built here yet."""


def rows():
    """Criterion, and the cells behind it."""
    lines = (ROOT / "docs" / "claims.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if re.match(r"\| [A-K]\d ", line)]
    return {row[0]: row[1:] for row in cells}


def experiments_in(text):
    return re.findall(r"experiment `(\w+)`", text)


def test_every_criterion_is_there_once_and_in_order():
    lines = (ROOT / "docs" / "claims.md").read_text().splitlines()
    named = [match[1] for line in lines if (match := re.match(r"\| ([A-K]\d) ", line))]
    assert named == [f"{letter}{number}" for letter, count in CRITERIA.items() for number in range(1, count + 1)]


@pytest.mark.parametrize("criterion", sorted(rows()))
def test_criterion_is_shown_by_something_that_is_there(criterion):
    _, shown, seen = rows()[criterion]
    tests = re.findall(r"\[`(test_\w+)`\]\(\.\./([\w/]+\.py)\)", shown)
    files = re.findall(r"\[`([\w/]+\.\w+)`\]", shown)
    assert [name for name, path in tests if f"def {name}(" not in (ROOT / path).read_text()] == []
    assert [path for path in files if not (ROOT / path).exists()] == []
    assert [name for name in experiments_in(shown) if name not in EXPERIMENTS] == []
    assert bool(tests or files or experiments_in(shown)) == (criterion not in UNSHOWN)
    assert seen


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_is_named_beside_what_it_answers_for(name):
    assert [
        criterion for criterion in EXPERIMENTS[name].criteria if name not in experiments_in(rows()[criterion][1])
    ] == []


def test_experiment_is_named_beside_nothing_else():
    named = {(name, criterion) for criterion, row in rows().items() for name in experiments_in(row[1])}
    assert named == {(name, criterion) for name, one in EXPERIMENTS.items() for criterion in one.criteria}


def test_evaluation_page_is_what_the_saved_results_say():
    experiments = list(EXPERIMENTS.values())
    assert (ROOT / "docs" / "evaluation.md").read_text() == evaluation(experiments, ROOT / "benchmarks" / "results")
