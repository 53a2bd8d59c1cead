"""What travels between tasks, workers and the coordinator, besides records and bins.

Frozen dataclasses as MessagePack: typed, checked when read, and never executed.
"""

from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import numpy as np

from megaphone.configuration import Assignment, Configuration
from megaphone.control.epochs import EpochPlan, OperatorPlan, Report
from megaphone.control.travel import Stuck
from megaphone.durability.ledger import Line
from megaphone.progress import Time


@dataclass(frozen=True, slots=True)
class Address:
    """Where a service listens: a Unix socket on its own machine, and TCP if there are others."""

    unix: str
    tcp: str | None = None
    kernel: str = ""
    """Whose machine that is; if none is told, the socket alone decides."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a worker is, and which of its processes that is: a later one replaces an earlier one."""

    address: Address
    incarnation: int


@dataclass(frozen=True, slots=True)
class Key:
    """Which run of which query, and which control in it."""

    query: str
    run: str
    control: str


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """A task asks what its epoch is to be like."""

    key: Key
    epoch: int
    known: int
    """Version of the configuration the asker has; -1 for none."""
    executor: str
    """Which executor the asker runs on."""


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """The epoch's plan; the configuration only if the asker does not have it."""

    epoch: int
    version: int
    configuration: list[tuple[int, bytes]]
    workers: list[int]
    operators: dict[str, OperatorPlan]
    closing: bool
    seats: dict[int, Seat]
    spawn: "list[Birth]" = field(default_factory=list)
    """Workers the asker is to start on its own machine."""

    @classmethod
    def of(cls, plan: EpochPlan, known: int, seats: dict[int, Seat], spawn: "list[Birth]") -> "PlanAnswer":
        """Answer with a plan."""
        entries = [] if known == plan.version else [(int(time), a.owners.tobytes()) for time, a in plan.configuration]
        workers = [int(worker) for worker in plan.workers]
        return cls(plan.epoch, plan.version, entries, workers, dict(plan.operators), plan.closing, seats, spawn)

    def read_configuration(self) -> Configuration:
        """The configuration that came with this answer."""
        return Configuration.of(
            [(Time(time), Assignment(np.frombuffer(raw, np.int32))) for time, raw in self.configuration]
        )


@dataclass(frozen=True, slots=True)
class ReportMessage:
    """A task of S tells what its workers have done."""

    key: Key
    operator: str
    epoch: int
    reports: list[Report]
    seen: list[int]
    frontier: int


@dataclass(frozen=True, slots=True)
class FrontierQuestion:
    """A task of S asks how far the operators before its own have got in this epoch."""

    key: Key
    operators: list[tuple[str, str]]
    """Control and name of each."""


@dataclass(frozen=True, slots=True)
class PlaceQuestion:
    """A task needs a worker that it could not reach: where is it, or may the task start it?"""

    key: Key
    worker: int
    executor: str
    lost: int
    """The incarnation that did not answer; -1 if none is known."""


@dataclass(frozen=True, slots=True)
class PlaceAnswer:
    """Where it is; or none, and the asker starts it."""

    seat: Seat | None
    birth: "Birth | None" = None


@dataclass(frozen=True, slots=True)
class AliveQuestion:
    """Whoever waits long for a worker asks whether that process is still the worker."""

    key: Key
    worker: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Birth:
    """A worker to be started."""

    worker: int
    incarnation: int
    warm: bool = False
    """Shall it join only when it has imported what epochs need? Nobody waits for it, and the query runs."""


@dataclass(frozen=True, slots=True)
class Safe:
    """Where and how a run keeps what must survive."""

    checkpoint: str
    control: str
    attempt: int
    share: float
    """Of a worker's time, the part that may go into snapshots."""
    trusted: bool = False
    """Does the user vouch for what is there?"""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What a worker process is told at birth, on its standard input."""

    key: Key
    worker: int
    incarnation: int
    coordinator: Address
    lease: Address
    secret: str = field(repr=False)
    unix: bool
    """Whether to use Unix sockets where they are there."""
    executor_pid: int | None
    warm: bool = False


@dataclass(frozen=True, slots=True)
class Join:
    """A worker is there."""

    key: Key
    worker: int
    incarnation: int
    address: Address
    pid: int
    host: str
    executor_pid: int | None


@dataclass(frozen=True, slots=True)
class SpecQuestion:
    """A worker asks for an operator's definition and the bins it starts with."""

    key: Key
    worker: int
    operator: str


@dataclass(frozen=True, slots=True)
class SpecAnswer:
    """A pickled OperatorSpec, the number of bins, those the worker had after an epoch, and where they are kept."""

    spec: bytes
    bins: int
    owned: bytes
    epoch: int
    safe: Safe


@dataclass(frozen=True, slots=True)
class Bell:
    """The control source asks whether an epoch is wanted."""

    control: str
    bounded: bool


@dataclass(frozen=True, slots=True)
class Arrival:
    """Bins to pull from another worker."""

    source: int
    seat: Seat
    bins: list[int]


@dataclass(frozen=True, slots=True)
class Orders:
    """One worker's share of an operator's epoch plan."""

    operator: str
    epoch: int
    frontier: int
    """Input frontier before the epoch: what is earlier is late, to a worker that is new as to the others."""
    arrivals: list[Arrival]
    departures: list[int]
    holds: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """Apply an epoch's records: the records follow as a stream of so many payloads."""

    incarnation: int
    """Who is meant: an earlier process of the same worker refuses."""
    orders: Orders
    frontier: int
    seen: list[int]
    payloads: int


@dataclass(frozen=True, slots=True)
class PullRequest:
    """Serve bins that left at an epoch."""

    operator: str
    epoch: int
    bins: list[int]
    machine: str
    """Where the asker is; empty if it wants no loan."""


@dataclass(frozen=True, slots=True)
class TravelQuestion:
    """The coordinator asks a worker which bins of an operator can travel."""

    operator: str
    bins: list[int]
    within_s: float
    """How long it may take to find out; an epoch never waits for it."""


@dataclass(frozen=True, slots=True)
class TravelAnswer:
    """Bins that cannot travel, and those of which it is not known yet; the others can."""

    stuck: list[Stuck]
    unknown: list[int]


@dataclass(frozen=True, slots=True)
class StuckMessage:
    """A worker tells that a bin cannot leave in an epoch, which must fail for it."""

    key: Key
    operator: str
    epoch: int
    worker: int
    stuck: Stuck


@dataclass(frozen=True, slots=True)
class Loan:
    """Memory of another process on this machine: whose, which file of its, and where in it each buffer is."""

    pid: int
    file: int
    places: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ParcelHead:
    """A bin on the way: the sizes of its parts, which follow in chunks, or a loan of them."""

    bin: int
    sizes: list[int]
    line: Line
    loan: Loan | None


T = TypeVar("T")

dump = msgspec.msgpack.encode


def load(raw: bytes, kind: type[T]) -> T:
    """Read a message of a kind; anything else is refused."""
    return msgspec.msgpack.decode(raw, type=kind)
