"""Would catch a state that is said to travel and does not, or that is held back though it could.

And an epoch that waits until a large state has been looked at.
"""

import socket
import threading
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megaphone.bins import BinId
from megaphone.dataflow.state import Parcel, pack
from megaphone.dataflow.travel import MAX_REASON, Paused, obstacle


@dataclass
class Holder:
    """A user's own class."""

    held: object


class Refuses:
    """Says so itself."""

    def __reduce__(self):
        raise ValueError("not\nme \ud800 " + "x" * 1000)


def lines():
    yield from "ab"


CANNOT = {
    "lock": threading.Lock,
    "generator": lines,
    "socket": socket.socket,
    "own class": lambda: Holder([threading.RLock()]),
    "objects": lambda: np.array([threading.Lock(), 1], object),
    "refuses": Refuses,
}

PLACES = {"bare": lambda x: x, "dict": lambda x: {"a": 1, "b": [x]}, "tuple": lambda x: (1, {"b": Holder(x)})}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", CANNOT)
def test_state_that_cannot_be_packed_cannot_travel(kind, place):
    value = CANNOT[kind]()
    state = PLACES[place](value)
    with pytest.raises(Exception, match=r".*"):
        pack(Parcel(BinId(0), state, ()))
    assert obstacle(state)
    if isinstance(value, socket.socket):
        value.close()


CAN = st.recursive(
    st.none() | st.integers() | st.floats() | st.text() | st.binary() | st.dates() | st.decimals() | st.uuids(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner) | st.builds(Holder, inner)
    ),
    max_leaves=20,
)


@given(CAN)
def test_state_that_can_be_packed_can_travel(state):
    assert obstacle(state) is None


def test_reason_is_one_short_line():
    reason = obstacle(Refuses())
    assert reason.startswith("ValueError: not me \\ud800 xxx")
    assert len(reason) <= MAX_REASON + 3


@pytest.mark.parametrize(
    "state",
    [np.zeros(1 << 28, np.uint8), pa.table({"n": np.zeros(1 << 24)}), {"parts": [pa.array(np.zeros(1 << 24))]}],
    ids=["array", "table", "inside"],
)
def test_memory_of_arrays_and_tables_is_neither_copied_nor_written(state):
    before = pa.total_allocated_bytes()
    # Whatever is written asks for a pause.
    asked = []
    assert obstacle(state, lambda: bool(asked.append(1))) is None
    assert len(asked) == 1
    assert pa.total_allocated_bytes() == before


def test_large_state_is_given_up_soon_after_a_pause_is_wanted():
    asked = []

    def pause():
        asked.append(1)
        return len(asked) == 3

    with pytest.raises(Paused):
        obstacle({number: str(number) for number in range(300_000)}, pause)
    assert len(asked) == 3
