"""Random numbers from a counter: each event has a splitmix64 sequence of its own.

A draw depends on the seed, the event's id and the draw's number, on nothing else; so any event can be made alone, on
any machine, again. Only integer and correctly rounded operations are used: no machine's `exp` has a say.
Neighbours: generator.py, strings.py.
"""

import decimal
from functools import cached_property

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

GOLDEN = 0x9E3779B97F4A7C15
"""The step of a splitmix64 sequence: 2^64 over the golden ratio, odd."""

WORD = 2**64
PRICE_DIGITS = 12
"""A price is drawn in single precision, 24 bits: two tables of 12 bits each, which fit the nearest cache."""


class Draws:
    """The draws of some events.

    >>> Draws(seed=1, ids=np.arange(3)).uniform(0, 100)
    array([25, 33, 50])
    >>> Draws(seed=1, ids=np.array([2])).uniform(0, 100)
    array([50])
    """

    def __init__(self, seed: int, ids: Int64s) -> None:
        """Say which events; nothing is drawn yet."""
        self._seed = seed
        self._ids = ids

    @cached_property
    def _starts(self) -> Words:
        """Where each event's sequence begins."""
        key = mix(np.array([self._seed % WORD], np.uint64))
        return mix(self._ids.astype(np.uint64) * np.uint64(GOLDEN) + key)

    def words(self, draw: int) -> Words:
        """64 random bits for each event."""
        return mix(self._starts + np.uint64((draw + 1) * GOLDEN % WORD))

    def uniform(self, draw: int, bound: int | Int64s) -> Int64s:
        """A whole number of at least 0 and below a bound (of at most 2^53), for each event."""
        fractions = (self.words(draw) >> np.uint64(11)).view(np.int64)
        # One rounding, and it never reaches the bound: the product is more than half a unit below it.
        return (fractions * (bound * 2.0**-53)).astype(np.int64)

    def prices(self, draw: int) -> Int64s:
        """100 to 100,000,000, log-uniform: 100 * 10^6u, rounded."""
        digits = self.words(draw) >> np.uint64(64 - 2 * PRICE_DIGITS)
        high = (digits >> np.uint64(PRICE_DIGITS)).view(np.int64)
        low = (digits & np.uint64(2**PRICE_DIGITS - 1)).view(np.int64)
        return np.rint(_HIGH[high] * _LOW[low]).astype(np.int64)

    def characters(self, draw: int, width: int, alphabet: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """A row of characters for each event, from an alphabet of 256; it takes a draw for every eight of them."""
        many = -(-width // 8)
        steps = (np.arange(draw + 1, draw + 1 + many, dtype=np.uint64) * np.uint64(GOLDEN))[np.newaxis]
        drawn = mix(self._starts[:, np.newaxis] + steps)
        return alphabet[drawn.astype("<u8", copy=False).view(np.uint8)[:, :width]]


def mix(words: Words) -> Words:
    """The finaliser of splitmix64: every bit of a word depends on every other.

    >>> hex(mix(np.array([GOLDEN], np.uint64))[0])
    '0xe220a8397b1dcdaf'
    """
    words = words ^ (words >> np.uint64(30))
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def _powers(first: int, exponent: decimal.Decimal) -> npt.NDArray[np.float64]:
    """first * 10^(i * exponent) for each i, correctly rounded."""
    with decimal.localcontext(prec=40):
        factor, power, powers = decimal.Decimal(10) ** exponent, decimal.Decimal(first), []
        for _ in range(2**PRICE_DIGITS):
            powers.append(float(power))
            power *= factor
    return np.array(powers)


_HIGH = _powers(100, decimal.Decimal(6) / 2**PRICE_DIGITS)
_LOW = _powers(1, decimal.Decimal(6) / 4**PRICE_DIGITS)
