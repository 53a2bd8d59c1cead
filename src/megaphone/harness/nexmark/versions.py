"""The versions of a query: migrateable, the same on operators that cannot migrate, and Spark's own.

The one place that knows where each is built.  Neighbours: nexmark/queries has the first.  To: job.py.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from megaphone.errors import PlanError
from megaphone.nexmark.queries import QUERIES, Windows
from megaphone.nexmark.queries.query import Streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from megaphone.engine.spark.control import Control

Builder = Callable[["Control", Streams, Windows], "DataFrame"]

VERSIONS = ("migrateable", "native", "spark")


def builder(version: str, query: str) -> Builder:
    """How a version of a query is built."""
    if query not in QUERIES:
        raise PlanError(f"no query named '{query}'; choose q0 to q8, or list to see what they ask")
    if version == "migrateable":
        migrateable: Builder = QUERIES[query].build
        return migrateable
    if version == "native":
        native: Builder = _of(version, query, "megaphone.nexmark.native", "NATIVE")
        return native
    if version == "spark":
        plain = _of(version, query, "megaphone.nexmark.plain", "PLAIN")
        return lambda control, streams, windows: plain(streams, windows)
    raise PlanError(f"no version named '{version}'; choose migrateable, native or spark")


def _of(version: str, query: str, module: str, table: str) -> Any:
    try:
        known: Mapping[str, Any] = getattr(import_module(module), table)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise PlanError(f"--version {version} is not there yet; choose migrateable") from None
    if query not in known:
        raise PlanError(f"{query} has no version {version}; choose migrateable")
    return known[query]
