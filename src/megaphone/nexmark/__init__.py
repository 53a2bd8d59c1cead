"""NEXMark: an auction site's people, auctions and bids, as a generator, a Spark source and queries.

    events       the three kinds of events, and the wide one a mixed stream carries, as Arrow schemas
    parameters   what can be set, with the standard's defaults
    draws        random numbers that depend on nothing but the seed, the event and the draw
    strings      names, e-mail addresses, descriptions: optional, since they cost
    kinds, wide  the columns of each kind, and of all together
    generator    any event from its number alone
    options      what a user says of a source
    source       `format("nexmark")`, as a stream and as a batch

Paper: the evaluation, NEXMark.
"""

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from megaphone.nexmark.generator import Nexmark

__all__ = ["Nexmark", "register"]

_REGISTERED: "WeakSet[SparkSession]" = WeakSet()


def register(spark: "SparkSession") -> None:
    """Let a session read `format("nexmark")`; to do it again does nothing, since Spark would warn of it."""
    if spark not in _REGISTERED:
        from megaphone.nexmark.source import NexmarkSource

        spark.dataSource.register(NexmarkSource)
        _REGISTERED.add(spark)


def __getattr__(name: str) -> Any:
    """Import the generator when it is first used: the name alone must not cost NumPy and Arrow."""
    if name == "Nexmark":
        from megaphone.nexmark.generator import Nexmark

        return Nexmark
    raise AttributeError(f"module 'megaphone.nexmark' has no attribute {name!r}")
