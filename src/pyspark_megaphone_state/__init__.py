"""`format("megaphone-state")` without a word to Spark: it looks for sources in packages with names like this one.

Spark imports this in every application that has a Python source, so nothing here may cost: what the source needs is
imported when somebody reads from it.
Neighbours: megaphone/engine/spark/reader.py is the source.
"""

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from megaphone.engine.spark.reader import StateReader, StateSource


class DefaultSource(DataSource):
    """The state of a stopped query; the class has the name that Spark looks for."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        from megaphone.engine.spark.process import leave_quietly

        # Spark asks in a process of its own, which it needs no more after that.
        leave_quietly()
        return "megaphone-state"

    def schema(self) -> str:
        """One row for each key, or for each bin."""
        return self._source.schema()

    def reader(self, schema: Any) -> "StateReader":
        """Spark's way of asking for a reader."""
        return self._source.reader(schema)

    @property
    def _source(self) -> "StateSource":
        from megaphone.engine.spark.reader import StateSource

        return StateSource(self.options)
