"""Status: a running query as its control shows it, as plain data.

Neighbours: the engine fills it in; views.py and prometheus.py put it in words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from megaphone.bins import WorkerId
from megaphone.configuration import Assignment
from megaphone.control.controller import Migration
from megaphone.control.epochs import Epochs, Recovery
from megaphone.control.meter import Reading


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One worker: where it is, what it owns and what it has to do."""

    worker: WorkerId
    host: str
    pid: int
    executor_pid: int | None
    bins: int
    records_per_s: float = 0.0
    """Over all operators, lately."""
    busy: float = 0.0
    """The part of its time that goes into applying records, lately."""
    state_bytes: int = 0
    """Of its bins, as far as measured; the others are assumed to be as large."""
    applied: int = 0
    """Records, over all operators, since the query was started."""
    busy_s: float = 0.0
    """Seconds that went into its epochs since then."""
    memory_bytes: int | None = None
    """That its process has, when it last reported; none if it has not."""


@dataclass(frozen=True, slots=True)
class Status:
    """A running query as its control sees it."""

    query: str
    epoch: int
    frontiers: Mapping[str, str]
    """Output frontier of each operator."""
    late: Mapping[str, int]
    """Records of each operator that came behind the frontier, and were not applied."""
    applied: Mapping[str, int]
    assignment: Assignment
    """Where each bin is; an update for a time that is still to come has not moved it."""
    workers: tuple[WorkerStatus, ...]
    migration: Migration | None
    recoveries: tuple[Recovery, ...] = ()
    """Bins taken from the checkpoint since the query was started, worker by worker."""
    name: str | None = None
    """What the user calls the query."""
    run: str = ""
    control: str = ""
    last_epoch_s: float = 0.0
    """From the beginning of the last epoch to that of this one."""
    imbalance: float = 1.0
    """The busiest worker's records over the mean of all workers."""
    bytes_moved: int = 0
    """Since the query was started."""
    bytes_per_s: float = 0.0
    """How fast bins have travelled lately, or are assumed to."""
    state_bytes: Mapping[str, int] = field(default_factory=dict)
    """Of each operator, as far as measured; the others are assumed to be as large."""
    measured: float = 0.0
    """The part of the bins whose size was measured."""
    migrations: Mapping[str, int] = field(default_factory=dict)
    """How many have ended since the query was first started, by how, and how many have not, by phase."""
    lags: Mapping[str, int] = field(default_factory=dict)
    """How far each operator's output frontier is behind the newest time it has seen; by epochs there is none."""
    units: Mapping[str, str] = field(default_factory=dict)
    """What a step of each operator's time is: an epoch, a microsecond, or whatever its numbers mean."""


@dataclass(frozen=True, slots=True, eq=False)
class BinsStatus:
    """The bins of a running query at one moment."""

    epoch: int
    whereabouts: Assignment
    expected: Assignment
    reading: Reading

    @classmethod
    def of(cls, epochs: Epochs) -> "BinsStatus":
        """How they are now: nothing is put in form yet, since no epoch is opened meanwhile."""
        return cls(epochs.epoch, epochs.whereabouts, epochs.controller.expected, epochs.meter.reading)
