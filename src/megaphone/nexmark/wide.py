"""Events of all kinds in one batch: every column once, null where a kind lacks it.

A column is made for the events that have it, and then spread.
Neighbours: kinds.py makes columns, events.py says which there are.  To: generator.py.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from megaphone.nexmark.draws import Int64s
from megaphone.nexmark.events import NARROW
from megaphone.nexmark.kinds import KINDS, Kind, kinds_of, times
from megaphone.nexmark.parameters import Parameters


class Wide:
    """Events of all kinds, by their ids."""

    def __init__(self, parameters: Parameters, ids: Int64s) -> None:
        """Say which events."""
        self._parameters = parameters
        self._ids = ids
        self._kinds = kinds_of(parameters, ids)
        self._shares = [_Share(parameters, ids, self._kinds, kind) for kind in range(len(KINDS))]

    def column(self, field: pa.Field) -> pa.Array:
        """One column, for all events."""
        if field.name == "kind":
            return pa.array(self._kinds)
        if field.name == "date_time":
            return pa.array(times(self._parameters, self._ids)).view(field.type)
        shares = [share for share, schema in zip(self._shares, NARROW, strict=True) if field.name in schema.names]
        if field.type == pa.string():
            (share,) = shares
            return share.spread_strings(field.name)
        return self._numbers(shares, field)

    def _numbers(self, shares: Sequence["_Share"], field: pa.Field) -> pa.Array:
        values = np.zeros(len(self._ids), np.int64)
        for share in shares:
            values[share.places] = getattr(share.events, field.name)
        valid = np.logical_or.reduce([share.mask for share in shares]) if len(shares) > 1 else shares[0].mask
        return pa.Array.from_buffers(field.type, len(values), [_bits(valid), pa.py_buffer(values)])


class _Share:
    """The events of one kind among all."""

    def __init__(self, parameters: Parameters, ids: Int64s, kinds: npt.NDArray[np.int8], kind: int) -> None:
        self._parameters = parameters
        self._ids = ids
        self._kind = kind
        self.mask = kinds == kind

    @cached_property
    def places(self) -> npt.NDArray[np.intp]:
        return np.flatnonzero(self.mask)

    @cached_property
    def events(self) -> Kind:
        return KINDS[self._kind](self._parameters, self._ids[self.places])

    def spread_strings(self, name: str) -> pa.Array:
        """The others take no characters: only the offsets are stretched."""
        if not len(self.places):
            return pa.nulls(len(self.mask), pa.string())
        strings: pa.StringArray = getattr(self.events, name)
        _, offsets, data = strings.buffers()
        stretched = np.frombuffer(offsets, np.int32)[self._ranks]
        buffers = [self._bits, pa.py_buffer(stretched), data or pa.py_buffer(b"")]
        return pa.Array.from_buffers(pa.string(), len(self.mask), buffers)

    @cached_property
    def _ranks(self) -> npt.NDArray[np.int32]:
        """How many of the kind come before each event, and before the end."""
        ranks = np.zeros(len(self.mask) + 1, np.int32)
        np.cumsum(self.mask, out=ranks[1:])
        return ranks

    @cached_property
    def _bits(self) -> pa.Buffer:
        return _bits(self.mask)


def _bits(valid: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
