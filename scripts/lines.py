"""Lines of code of NEXMark's queries, three ways, as a table for the docs: `python scripts/lines.py`.

Counted is what a query's `build` reaches: the functions and classes of its own file and of the files of other queries,
whichever way they are written; not our operators, nor tools that many queries share (bulk.py, shelves.py, query.py).
Blank lines, comments, docstrings and imports do not count.
"""

import ast
import sys
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
WAYS = {"migrateable": "queries", "native": "native", "Spark's own": "plain"}
TOOLS = ("bulk", "shelves", "query")

Definition = ast.FunctionDef | ast.ClassDef
Name = tuple[str, str]
"""A module, and what it calls something."""


@cache
def tree_of(module: str) -> ast.Module | None:
    """A module that counts, parsed."""
    path = SOURCE / (module.replace(".", "/") + ".py")
    counts = module.startswith("megaphone.nexmark.") and module.rsplit(".", 1)[-1] not in TOOLS
    return ast.parse(path.read_text()) if counts and path.exists() else None


@cache
def names_of(module: str) -> dict[str, Name | Definition]:
    """What each name in a module means, as far as it counts."""
    tree = tree_of(module)
    found: dict[str, Name | Definition] = {}
    for node in tree.body if tree else ():
        if isinstance(node, Definition):
            found[node.name] = node
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
    return found


def reached(name: Name, so_far: dict[Name, Definition]) -> dict[Name, Definition]:
    """Everything that a name leads to."""
    module, own = name
    meaning = names_of(module).get(own)
    if isinstance(meaning, tuple):
        return reached(meaning, so_far)
    if meaning is None or name in so_far:
        return so_far
    so_far[name] = meaning
    for node in ast.walk(meaning):
        if isinstance(node, ast.Name):
            reached((module, node.id), so_far)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            # closing.closed_auctions, where closing is a module.
            owner = names_of(module).get(node.value.id)
            if isinstance(owner, tuple):
                reached((".".join(owner), node.attr), so_far)
    return so_far


def lines_of(definition: Definition, module: str) -> int:
    """Those with code on them."""
    source = (SOURCE / (module.replace(".", "/") + ".py")).read_text().splitlines()
    first = min([definition.lineno, *(decorator.lineno for decorator in definition.decorator_list)])
    told = _texts(definition)
    lines = [source[line - 1].strip() for line in range(first, (definition.end_lineno or 0) + 1) if line not in told]
    return sum(1 for line in lines if line and not line.startswith("#"))


def _texts(definition: Definition) -> set[int]:
    """The lines of docstrings, and of other bare texts."""
    texts = [
        node
        for node in ast.walk(definition)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    return {line for text in texts for line in range(text.lineno, (text.end_lineno or 0) + 1)}


def table() -> str:
    """In Markdown."""
    rows = ["| query | " + " | ".join(WAYS) + " |", "|---|" + "---:|" * len(WAYS)]
    for number in range(9):
        counts = []
        for way in WAYS.values():
            found = reached((f"megaphone.nexmark.{way}.q{number}", "build"), {})
            counts.append(sum(lines_of(definition, module) for (module, _), definition in found.items()))
        rows.append(f"| Q{number} | " + " | ".join(map(str, counts)) + " |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
