"""Documents: JSON from outside, read strictly.

A number is a number and not a text that looks like one, and a name that is not known or comes twice is an error.
"""

import json
from math import isfinite
from typing import Annotated, Any, TypeVar

import msgspec

from megaphone.checks import INT64
from megaphone.printing import printable

T = TypeVar("T")
Int64 = Annotated[int, msgspec.Meta(ge=INT64[0], le=INT64[1])]

MAX_SHOWN = 60
"""Characters of a name that an error shows."""


class Malformed(ValueError):
    """A text that is not what it should be; says why, and where."""


def parse(text: str | bytes) -> Any:
    """JSON without names that come twice, and without what JSON does not have.

    >>> parse('{"steps": [{"time": 3, "time": 4}]}')
    Traceback (most recent call last):
    megaphone.control.documents.Malformed: Object contains field `time` twice
    """
    try:
        text = text if isinstance(text, str) else text.decode()
        return json.loads(text, object_pairs_hook=_object, parse_float=_finite, parse_constant=_refuse)
    except RecursionError:
        raise Malformed("nested too deep") from None
    except ValueError as error:
        raise Malformed(printable(str(error))) from None


def convert(raw: Any, kind: type[T]) -> T:
    """What was parsed, as a kind of thing.

    >>> convert({"3": 1}, dict[int, int])
    {3: 1}
    """
    try:
        return msgspec.convert(raw, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise Malformed(printable(str(error))) from None
    except RecursionError:
        raise Malformed("nested too deep") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Malformed(f"Object contains field `{twice[:MAX_SHOWN]}` twice")
    return made


def _finite(digits: str) -> float:
    number = float(digits)
    return number if isfinite(number) else _refuse(digits[:MAX_SHOWN])


def _refuse(constant: str) -> Any:
    raise Malformed(f"{constant} is no number")
