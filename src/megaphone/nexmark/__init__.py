"""NEXMark: an auction site's people, auctions and bids, as a generator, a Spark source and queries.

    events       the three kinds of events, and the wide one a mixed stream carries, as Arrow schemas
    parameters   what can be set, with the standard's defaults
    draws        random numbers that depend on nothing but the seed, the event and the draw
    strings      names, e-mail addresses, descriptions: optional, since they cost
    kinds, wide  the columns of each kind, and of all together
    generator    any event from its number alone
    options      what a user says of a source
    source       `format("nexmark")`, as a stream and as a batch; Spark finds it through the package pyspark_nexmark

Paper: the evaluation, NEXMark.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from megaphone.nexmark.generator import Nexmark

__all__ = ["Nexmark"]


def __getattr__(name: str) -> Any:
    """Import the generator when it is first used: the name alone must not cost NumPy and Arrow."""
    if name == "Nexmark":
        from megaphone.nexmark.generator import Nexmark

        return Nexmark
    raise AttributeError(f"module 'megaphone.nexmark' has no attribute {name!r}")
