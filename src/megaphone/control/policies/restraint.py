"""Restraint: what keeps a policy from chasing a load that merely wavers, or swings.

It acts on a need that it has seen several times in a row, and then lets things be for a while. A need that comes back
soon after makes that while twice as long, up to a limit: what swings is followed ever more slowly.
Neighbours: balancer.py and scaler.py.
"""

from megaphone import checks

LONGEST = 16
"""Of the cooldown, how many times as long a pause becomes at most."""

SOON = 4
"""Within so many pauses a need has come back soon; later, it is another one."""


class Restraint:
    """Says when it is time to act.

    >>> restraint = Restraint(patience=2, cooldown=10)
    >>> restraint.why_wait(0, "more"), restraint.why_wait(1, "more")
    ('seen 1 of 2 times', None)
    >>> restraint.acted(1); restraint.why_wait(5, "more")
    'the last change was 4 s ago, and the next comes after 10 s'
    """

    def __init__(self, patience: int, cooldown: float) -> None:
        """Act on what was seen `patience` times in a row, and not within `cooldown` seconds of the last time."""
        self.patience = checks.whole(patience, "a patience of {} times", 1, checks.MAX_PATIENCE)
        self._cooldown = self._pause = checks.not_negative(cooldown, "a cooldown of {} s")
        self._need: str | None = None
        self._seen = 0
        self._acted_s: float | None = None

    def calm(self) -> None:
        """There is no need now."""
        self._need, self._seen = None, 0

    def why_wait(self, at_s: float, need: str) -> str | None:
        """There is a need: why nothing is to be done about it yet, unless it is time."""
        self._seen = self._seen + 1 if need == self._need else 1
        self._need = need
        if self._acted_s is not None and at_s < self._acted_s + self._pause:
            ago = at_s - self._acted_s
            return f"the last change was {ago:.0f} s ago, and the next comes after {self._pause:g} s"
        return f"seen {self._seen} of {self.patience} times" if self._seen < self.patience else None

    def acted(self, at_s: float) -> None:
        """Something was done about it."""
        soon = self._acted_s is not None and at_s < self._acted_s + SOON * self._pause
        self._pause = min(2 * self._pause, LONGEST * self._cooldown) if soon else self._cooldown
        self._acted_s = at_s
        self.calm()
