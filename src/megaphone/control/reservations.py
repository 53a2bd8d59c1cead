"""Reservations: workers that are wanted before the plan that needs them has been accepted.

A rescale waits until its new workers have started, and holds a reservation while it waits. Other rescales that are
done, refused or given up meanwhile leave its workers alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class Reservations:
    """Numbers of workers, each wanted until it is released.

    >>> reservations = Reservations()
    >>> with reservations.of(3):
    ...     with reservations.of(2):
    ...         pass
    ...     reservations.most
    3
    >>> reservations.most
    0
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._held: dict[object, int] = {}

    @property
    def most(self) -> int:
        """The largest that is held."""
        # A copy: each rescale waits in a thread of its own.
        return max(tuple(self._held.values()), default=0)

    @contextmanager
    def of(self, workers: int) -> Iterator[None]:
        """Hold a number of workers until the block ends, in whatever way."""
        mine = object()
        try:
            self._held[mine] = workers
            yield
        finally:
            self._held.pop(mine, None)
