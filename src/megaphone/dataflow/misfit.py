"""Misfit: what a fold gives out that is no row, or that its column cannot hold as it is."""

from reprlib import Repr
from typing import Any

from megaphone.printing import printable

_short = Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60
_short.maxtuple = _short.maxlist = _short.maxdict = 10


class Misfit(ValueError):
    """The value, what was to be there, and what to do."""

    @classmethod
    def of(cls, value: Any, wanted: Any, remedy: str) -> "Misfit":
        """A value that is not what is wanted.

        >>> str(Misfit.of(1.5, "int64", "give whole numbers"))
        '1.5 of type float is no int64; give whole numbers'
        """
        return cls(f"{shown(value)} of type {type(value).__name__} is no {wanted}; {remedy}")


def shown(value: Any) -> str:
    """A value as an error shows it: short, and harmless for a terminal."""
    return printable(_short.repr(value))
