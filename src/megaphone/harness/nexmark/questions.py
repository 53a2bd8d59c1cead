"""What each query asks: the first line of its file, where the question stands.

Neighbours: nexmark/queries.
"""

from importlib import import_module

from megaphone.nexmark.queries import QUERIES


def question(query: str) -> str:
    """In words.

    >>> question("q1")
    'currency conversion: what is each bid in euros?'
    """
    told = (import_module(QUERIES[query].build.__module__).__doc__ or "").strip().splitlines()
    return told[0].partition(", ")[2] if told else ""


def listed() -> str:
    """All of them, a line each."""
    return "".join(f"{query}  {question(query)}\n" for query in QUERIES)
