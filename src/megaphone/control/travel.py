"""Whether the bins of a migration can travel, by what their workers say."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stuck:
    """A bin that cannot travel, and why: its state cannot be turned into bytes."""

    bin: int
    reason: str
