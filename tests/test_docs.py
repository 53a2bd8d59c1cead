"""Would catch a page that lies: a program that does not run, a link to nowhere, a function or test that is gone."""

import ast
import doctest
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
PACKAGE = ROOT / "src" / "megaphone"

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)[^)]*\)")
SPAN = re.compile(r"`([^`\n]+)`")


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks(page, language):
    return [text for kind, text in FENCE.findall(page.read_text()) if kind == language]


def prose(page):
    return FENCE.sub("", page.read_text())


def program(page):
    """The Python blocks of a page that are not at the prompt: one program, top to bottom."""
    return "\n".join(block for block in blocks(page, "python") if ">>>" not in block)


def programs():
    for page in PAGES:
        if text := program(page):
            marks = [pytest.mark.spark] if "pyspark" in text else []
            yield pytest.param(page, id=name_of(page), marks=marks)


@pytest.mark.parametrize("page", list(programs()))
def test_program_gives_the_output_beside_it(page, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(program(page))
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout) == lines("".join(blocks(page, "text")))


def lines(text):
    return [line.rstrip() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("page", [page for page in PAGES if ">>>" in page.read_text()], ids=name_of)
def test_prompt_gives_the_answers_beside_it(page):
    session = "\n".join(block for block in blocks(page, "python") if ">>>" in block)
    examples = doctest.DocTestParser().get_doctest(session, {}, name_of(page), str(page), 0)
    told = []
    failed, _ = doctest.DocTestRunner().run(examples, out=told.append)
    assert not failed, "".join(told)


@pytest.mark.parametrize("name", ["plain_count.py", "rescaled_count.py"])
def test_tutorial_shows_the_program_as_it_is(name):
    source = (ROOT / "examples" / name).read_text()
    docstring = ast.parse(source).body[0].end_lineno
    code = "".join(source.splitlines(keepends=True)[docstring:]).lstrip()
    assert code in blocks(ROOT / "docs" / "tutorial.md", "py")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_link_leads_somewhere(page):
    targets = [target for _, target in LINK.findall(prose(page)) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_named_test_is_in_the_file_it_links_to(page):
    named = [(text.strip("`"), target) for text, target in LINK.findall(prose(page)) if text.startswith("`test_")]
    assert [name for name, target in named if name not in functions(page.parent / target)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_named_test_exists(page):
    named = re.findall(r"`(test_\w+)`", prose(page))
    known = {name for path in (ROOT / "tests").rglob("test_*.py") for name in functions(path)}
    assert sorted(set(named) - known) == []


def test_every_claim_has_a_test_beside_it():
    claims = [line for line in prose(ROOT / "docs" / "correctness.md").splitlines() if line.startswith("| ")]
    assert [claim for claim in claims if "`test_" not in claim and claim != "| claim | test |"] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_named_file_exists(page):
    named = [span for span in SPAN.findall(prose(page)) if re.fullmatch(r"[\w/]+\.py", span)]
    files = [
        path.as_posix()
        for folder in (PACKAGE, *(ROOT / name for name in ("tests", "scripts", "benchmarks", "examples")))
        for path in folder.rglob("*.py")
    ]
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in files)] == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("journey-*.md")), ids=name_of)
def test_named_function_exists(page):
    spans = SPAN.findall(prose(page))
    methods = [span for span in spans if re.fullmatch(r"[A-Z]\w+\.\w+", span)]
    calls = [span.removesuffix("()") for span in spans if re.fullmatch(r"\w+\(\)", span)]
    known = {name for path in PACKAGE.rglob("*.py") for name in functions(path)}
    assert [name for name in (*methods, *calls) if name not in known] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "decisions"], ids=name_of)
def test_decision_has_its_parts(page):
    parts = ("Problem", "Success criteria", "Out of scope", "Decision", "Alternatives")
    assert [part for part in parts if f"**{part}.**" not in page.read_text()] == []
    assert page.read_text().startswith(f"# {page.name[:4]} ")


def test_decisions_cited_in_the_code_are_written():
    cited = {number for path in PACKAGE.rglob("*.py") for number in re.findall(r"decisions/(\d{4})", path.read_text())}
    assert cited <= {page.name[:4] for page in PAGES}


def test_lines_of_code_are_what_the_script_counts():
    counted = subprocess.run(
        [sys.executable, ROOT / "scripts" / "lines.py"], capture_output=True, text=True, check=True
    )
    assert counted.stdout in (ROOT / "docs" / "nexmark.md").read_text()


@cache
def functions(path):
    """Names of the functions of a file, of methods as `Class.method`."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        before = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        names |= {before + child.name for child in inside if isinstance(child, ast.FunctionDef)}
    return frozenset(names)
