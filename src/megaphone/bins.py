"""Bins: groups of keys that move as one.

A key's bin is the most significant bits of its 64-bit hash, for ever: the low bits stay free for hash maps inside
the bin. Neighbours: routing.py asks for bins, configuration.py says who owns them.  Paper: state organisation.
"""

from dataclasses import dataclass
from typing import NewType

import numpy as np
import numpy.typing as npt

from megaphone.checks import integer, shown
from megaphone.errors import PlanError

BinId = NewType("BinId", int)
WorkerId = NewType("WorkerId", int)

BinArray = npt.NDArray[np.uint32]

MAX_SHIFT = 20
"""A million bins: a routing table of four megabytes is the most an epoch should look at."""


@dataclass(frozen=True, slots=True)
class Bins:
    """How many bins there are (a power of two), and which one a hash falls in.

    >>> bins = Bins.of_count(4)
    >>> bins.of_hashes(np.array([0, 1 << 62, -1], dtype=np.int64)).tolist()
    [0, 1, 3]
    """

    shift: int

    def __post_init__(self) -> None:
        if not 1 <= self.shift <= MAX_SHIFT:
            raise PlanError(f"2^{self.shift} bins asked for; choose 2^1 to 2^{MAX_SHIFT}")

    @classmethod
    def of_count(cls, count: int) -> "Bins":
        """The bins whose number is `count`."""
        found = integer(count)
        if found is None or not 2 <= found <= 2**MAX_SHIFT or found & (found - 1):
            raise PlanError(f"{shown(count)} bins asked for; choose a power of two from 2 to {2**MAX_SHIFT}")
        return cls(found.bit_length() - 1)

    @property
    def count(self) -> int:
        """The number of bins."""
        return 1 << self.shift

    def of_hashes(self, hashes: npt.NDArray[np.int64]) -> BinArray:
        """The bin of each hash: its most significant bits."""
        return (hashes.view(np.uint64) >> np.uint64(64 - self.shift)).astype(np.uint32)
