"""State as text: JSON where it can be, so that Spark's own functions and people can read it.

Neighbours: contents.py finds the state.
"""

import base64
import dataclasses
import datetime
import decimal
import enum
import json
import math
import uuid
from collections import deque
from functools import singledispatch
from typing import Any

import numpy as np
import pyarrow as pa

from megaphone.dataflow.row import names_of


def text_of(value: Any) -> str:
    """A value as JSON; what is a string in JSON stands without its quotes.

    >>> from collections import namedtuple
    >>> text_of({"n": np.int64(3), "when": datetime.date(2019, 8, 20)}), text_of("to be")
    ('{"n":3,"when":"2019-08-20"}', 'to be')
    >>> text_of(namedtuple("Pair", "word n")("to", [1, 2])), text_of(np.eye(2)), text_of(1j)
    ('{"word":"to","n":[1,2]}', '[[1.0,0.0],[0.0,1.0]]', '1j')
    """
    try:
        plain = _plain(value)
        text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    except (RecursionError, ValueError):
        text = repr(value)
    # Half a surrogate pair has no place in a column of text.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


@singledispatch
def _plain(value: Any) -> Any:
    """A value as what JSON has."""
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if getattr(type(value), "__repr__", None) is object.__repr__ and hasattr(value, "__dict__"):
        # Its address would tell nobody anything.
        return _plain(vars(value))
    return repr(value)


@_plain.register(type(None))
@_plain.register(bool)
@_plain.register(int)
@_plain.register(str)
def _same(value: Any) -> Any:
    return value


@_plain.register
def _float(value: float) -> Any:
    # As Spark reads and writes them, since JSON has none.
    return value if math.isfinite(value) else {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(float(value))]


@_plain.register
def _dict(value: dict) -> Any:  # type: ignore[type-arg]
    named = {text_of(key): _plain(entry) for key, entry in value.items()}
    # 1 and "1" are two keys, but not in JSON.
    return named if len(named) == len(value) else [[_plain(key), _plain(entry)] for key, entry in value.items()]


@_plain.register
def _tuple(value: tuple) -> Any:  # type: ignore[type-arg]
    names = names_of(value)
    return dict(zip(names, map(_plain, value), strict=True)) if names else [_plain(entry) for entry in value]


@_plain.register(list)
@_plain.register(deque)
def _list(value: Any) -> Any:
    return [_plain(entry) for entry in value]


@_plain.register(set)
@_plain.register(frozenset)
def _set(value: Any) -> Any:
    return sorted((_plain(entry) for entry in value), key=json.dumps)


@_plain.register
def _array(value: np.ndarray) -> Any:
    if value.dtype.names:
        return [dict(zip(value.dtype.names, map(_plain, row.tolist()), strict=True)) for row in value.ravel()]
    if value.dtype.kind in "mM":
        return value.astype(str).tolist()
    if value.dtype.kind in "biu" or (value.dtype.kind == "f" and np.isfinite(value).all()):
        return value.tolist()
    return _plain(value.tolist())


@_plain.register
def _scalar(value: np.generic) -> Any:
    return str(value) if value.dtype.kind in "mM" else _plain(value.item())


@_plain.register(pa.Table)
@_plain.register(pa.RecordBatch)
@_plain.register(pa.Array)
@_plain.register(pa.ChunkedArray)
def _arrow(value: Any) -> Any:
    return _plain(value.to_pylist())


@_plain.register(pa.Scalar)
def _arrow_scalar(value: Any) -> Any:
    return _plain(value.as_py())


@_plain.register(datetime.date)
@_plain.register(datetime.time)
def _time(value: Any) -> Any:
    return value.isoformat()


@_plain.register(datetime.timedelta)
@_plain.register(decimal.Decimal)
@_plain.register(uuid.UUID)
def _str(value: Any) -> Any:
    return str(value)


@_plain.register
def _enum(value: enum.Enum) -> Any:
    return _plain(value.value)


@_plain.register(bytes)
@_plain.register(bytearray)
@_plain.register(memoryview)
def _bytes(value: Any) -> Any:
    return base64.b64encode(value).decode()
