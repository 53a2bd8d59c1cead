"""The strings of people and auctions: made in NumPy buffers that Arrow then takes as they are.

Neighbours: generator.py asks for them; draws.py makes them the same every time.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from megaphone.nexmark.draws import Draws

Bytes = npt.NDArray[np.uint8]

LETTERS = b"abcdefghijklmnopqrstuvwxyz"
WORDS = np.frombuffer(b" " * 20 + (LETTERS * 10)[:236], np.uint8)
"""What a byte of text stands for. One in thirteen is a space, as in the standard; letters differ by a tenth at most."""
SOLID = np.frombuffer((LETTERS * 10)[:256], np.uint8)
"""The same without spaces, for addresses."""
DIGITS = np.char.zfill(np.arange(10_000).astype("S4"), 4).view(np.uint8).reshape(-1, 4)
"""Four digits by their value."""
SHORTEST = 3


def picks(choices: tuple[str, ...], draws: Draws, draw: int) -> pa.StringArray:
    """One of the choices."""
    return pa.array(choices).take(pa.array(draws.uniform(draw, len(choices))))


def full_names(draws: Draws, draw: int, first: tuple[str, ...], last: tuple[str, ...]) -> pa.StringArray:
    """A first and a last name."""
    names = pa.array([f"{one} {other}" for one in first for other in last])
    return names.take(pa.array(draws.uniform(draw, len(first)) * len(last) + draws.uniform(draw + 1, len(last))))


def email_addresses(draws: Draws, draw: int) -> pa.StringArray:
    """Seven letters at five letters dot com.

    >>> email_addresses(Draws(1, np.arange(1)), 0)[0].as_py()
    'htprevz@nubme.com'
    """
    return _of_rows(_around(draws.characters(draw, 12, SOLID), b"       @     .com", (0, 7), (8, 13)))


def credit_cards(draws: Draws, draw: int) -> pa.StringArray:
    """Four groups of four digits.

    >>> credit_cards(Draws(1, np.arange(1)), 0)[0].as_py()
    '2558 0883 2904 5662'
    """
    groups = [DIGITS[draws.uniform(draw + group, 10_000)] for group in range(4)]
    return _of_rows(_around(np.hstack(groups), b"0000 0000 0000 0000", (0, 4), (5, 9), (10, 14), (15, 19)))


def texts(draws: Draws, draw: int, longest: int) -> pa.StringArray:
    """Words of random letters, three characters to `longest` in all."""
    lengths = SHORTEST + draws.uniform(draw, longest - SHORTEST + 1)
    characters = draws.characters(draw + 1, longest, WORDS)
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return _strings(offsets, characters[np.arange(longest) < lengths[:, np.newaxis]])


def empty_strings(length: int) -> pa.StringArray:
    """In place of strings nobody asked for."""
    return _strings(np.zeros(length + 1, np.int32), np.empty(0, np.uint8))


def _around(drawn: Bytes, pattern: bytes, *gaps: tuple[int, int]) -> Bytes:
    """The pattern in every row, its gaps filled one after the other with what was drawn."""
    rows, used = np.tile(np.frombuffer(pattern, np.uint8), (len(drawn), 1)), 0
    for start, stop in gaps:
        rows[:, start:stop] = drawn[:, used : used + stop - start]
        used += stop - start
    return rows


def _of_rows(rows: Bytes) -> pa.StringArray:
    """Each row a string."""
    return _strings(np.arange(len(rows) + 1, dtype=np.int32) * np.int32(rows.shape[1]), rows)


def _strings(offsets: npt.NDArray[np.int32], data: Bytes) -> pa.StringArray:
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))
