"""A query as everybody needs it: what it reads, what it gives, how it is built, and the SQL that says what is right.

Neighbours: q0.py to q8.py are the queries.  From: source.py.  Paper: the evaluation, NEXMark.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from megaphone.errors import PlanError
from megaphone.nexmark.parameters import SECOND_US

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from megaphone.engine.spark.control import Control

Streams = Mapping[str, "DataFrame"]
"""By kind: person, auction, bid, event."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Lengths of time that queries go by: all are event time, in microseconds.

    >>> Windows().divided(60).slice, Windows(slices=3).slices
    (16666, 3)
    """

    slice: int = SECOND_US
    """Q5 tells the hottest auction at the end of every slice."""
    slices: int = 60
    """How many slices Q5 looks back on."""
    highest: int = 10 * SECOND_US
    """Q7 tells the highest bid of every such window."""
    newcomers: int = 12 * 60 * 60 * SECOND_US
    """Q8 joins within every such window."""
    lateness: int = 0
    """How far behind the latest time events may come: with shuffled groups, as long as a group lasts."""

    def __post_init__(self) -> None:
        """Refuse what no query could follow."""
        for field in fields(self):
            least, value = int(field.name != "lateness"), getattr(self, field.name)
            if value < least:
                raise PlanError(f"{field.name} is {value}; choose {least} or more")

    def divided(self, by: float) -> "Windows":
        """Windows shorter by a factor: what a dilated stream does to long ones, for a stream that is not dilated."""
        lengths = {name: max(1, int(getattr(self, name) / by)) for name in ("slice", "highest", "newcomers")}
        return replace(self, **lengths)


@dataclass(frozen=True, slots=True)
class Query:
    """One of NEXMark's questions, and our answer to it."""

    name: str
    inputs: Mapping[str, tuple[str, ...]]
    """The kinds of streams it reads, and of each the columns it needs."""
    output: str
    """Its columns, as Spark writes them."""
    sql: str
    """The right answer, over tables named as the kinds are; `$name` is a length from `Windows`."""
    departs: str
    """Where we depart from the authors' code, and why."""
    build: Callable[["Control", Streams, Windows], "DataFrame"]
    """Migrateable, on a stream or a batch."""
    stateful: bool = True

    def read(self, reader: "DataFrameReader | DataStreamReader", **options: Any) -> dict[str, "DataFrame"]:
        """Its streams from the source: all with the same options, so that they keep in step."""
        source = reader.format("nexmark").options(**options)
        return {
            kind: source.options(kind=kind, columns=",".join(columns)).load() for kind, columns in self.inputs.items()
        }

    def parameters(self, windows: Windows) -> dict[str, int]:
        """The lengths that its SQL asks for."""
        return {name: getattr(windows, name) for name in set(re.findall(r"\$(\w+)", self.sql))}
