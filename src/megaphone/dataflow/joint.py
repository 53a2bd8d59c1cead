"""Joint states: the states of all of a worker's bins in one object, for folds that work on many bins at once.

A fold that goes from bin to bin pays for each of them; one that has them all in one table does not. A bin's own rows
are cut out when it leaves, put in when it comes, and travel as those of any other bin.
Neighbours: hosting.py hosts them like states that are apart; folds.py hands them to a vectorised fold.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from megaphone.bins import BinId
from megaphone.progress import END


class Joint(ABC):
    """What a host asks of such an object; a subclass has the rows, and is what `state=` of an operator is told."""

    def __init__(self, bins: int) -> None:
        """No bin has anything; there are so many of them, here or elsewhere."""
        self.due: npt.NDArray[np.int64] = np.full(bins, END)
        """For each bin, when its state has something to do by itself: then the fold is called, records or not."""

    @abstractmethod
    def get(self, bin: BinId) -> Any:
        """A bin's own part, in memory of its own; None if there is nothing."""

    @abstractmethod
    def _drop(self, bin: BinId) -> None:
        """Forget a bin's part."""

    @abstractmethod
    def _put(self, bin: BinId, state: Any) -> None:
        """Take in a bin's part: the bin has none here."""

    def pop(self, bin: BinId, default: Any = None) -> Any:
        """Cut out a bin's part."""
        state = self.get(bin)
        self.due[bin] = END
        if state is None:
            return default
        self._drop(bin)
        return state

    def __setitem__(self, bin: BinId, state: Any) -> None:
        self._put(bin, state)


def is_joint(state: Any) -> bool:
    """Is this class, or a partial of it, one of joint states?"""
    kind = getattr(state, "func", state)
    return isinstance(kind, type) and issubclass(kind, Joint)
