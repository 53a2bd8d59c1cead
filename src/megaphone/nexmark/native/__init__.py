"""NEXMark's queries, native: hand-written for the same workers, without bins and configuration.

The same questions and answers as in queries/, the same exchange to the same workers; what is missing is what makes
state move. Steps take records as they come, and wait for the frontier only where the answer does.
Neighbours: dataflow/native.py runs them.  Paper: the evaluation's native implementations.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from megaphone.nexmark.native import q0, q1, q2, q3, q4, q5, q6, q7, q8
from megaphone.nexmark.queries.query import Streams, Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from megaphone.engine.spark.control import Control

__all__ = ["NATIVE"]

NATIVE: Mapping[str, "Callable[[Control, Streams, Windows], DataFrame]"] = {
    module.__name__.rsplit(".", 1)[-1]: module.build for module in (q0, q1, q2, q3, q4, q5, q6, q7, q8)
}
"""By name, "q0" to "q8"."""
