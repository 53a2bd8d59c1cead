"""`format("nexmark")` without a word to Spark: it looks for sources in packages with names like this one.

Spark imports this in every application that has a Python source, so nothing here may cost: what the source needs is
imported when somebody reads from it.
Neighbours: megaphone/nexmark/source.py is the source.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from megaphone.nexmark.source import NexmarkReader, NexmarkSource, NexmarkStreamReader


class DefaultSource(DataSource):
    """NEXMark's people, auctions and bids; the class has the name that Spark looks for."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "nexmark"

    def schema(self) -> "StructType":
        """By the options."""
        return self._source.schema()

    def reader(self, schema: "StructType") -> "NexmarkReader":
        """Of a batch."""
        return self._source.reader(schema)

    def streamReader(self, schema: "StructType") -> "NexmarkStreamReader":
        """Of a stream."""
        return self._source.streamReader(schema)

    @property
    def _source(self) -> "NexmarkSource":
        from megaphone.nexmark.source import NexmarkSource

        return NexmarkSource(self.options)
