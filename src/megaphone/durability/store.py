"""The store: what one control of one query keeps under the query's checkpoint location, and where.

    manifest              what must not change between two runs: bins, operators, their keys and columns
    attempts/             one for each time the query was started
    operators/            each attempt's operators, with their folds
    plans/                the plan of every epoch, and what the control side knew before it
    configurations/       who owns what, referred to by plans
    commands/             what the user asked for: plans of migrations, pauses, cancellations
    history               the last migrations that have ended, without their plans
    log/                  what each worker was fed in each epoch
    bins/<operator>/      snapshots of bins, small ones together

An epoch that was planned and not committed is planned anew by the next attempt; what the attempt before wrote of it
is never read again, since names carry the attempt.  Neighbours: files.py reads and writes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from megaphone import checks
from megaphone.configuration import Assignment, Configuration
from megaphone.control.controller import MigrationSummary
from megaphone.control.epochs import OperatorPlan
from megaphone.control.saved import Saved
from megaphone.durability.files import Folder
from megaphone.durability.manifest import Manifest
from megaphone.errors import CheckpointError, PlanError
from megaphone.printing import LOGGER
from megaphone.progress import Time

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """The plan of an epoch, who made it, and what it was made from."""

    epoch: int
    attempt: int
    version: int
    workers: tuple[int, ...]
    operators: dict[str, OperatorPlan]
    closing: bool
    before: Saved
    before_attempt: int
    """Which attempt wrote the configuration that was in force before."""
    commands: int
    """How many commands had been given before."""


@dataclass(frozen=True, slots=True)
class Command:
    """One wish of the user's, or a migration that has failed, in the order in which they came."""

    verb: str
    plan: str | None = None
    workers: int | None = None
    migration: int | None = None
    """Of `fail`, the migration that has failed."""
    reason: str | None = None
    epoch: int | None = None
    """Of `fail`, the epoch whose moves have failed, if it was not before one."""


REACH = 64
"""How far apart the bins in one file may be: its name has a bit for each of so many."""


@dataclass(frozen=True, slots=True)
class BinFile:
    """The name of a file of snapshots: one bin as it was after an epoch, or several that are close to each other.

    >>> str(BinFile(5, (3,))), str(BinFile(5, (3, 4, 7)))
    ('0000003-000000000005', '0000003-000000000005-0000000000000013')
    """

    epoch: int
    bins: tuple[int, ...]
    """In order."""

    def __str__(self) -> str:
        first = self.bins[0]
        name = f"{first:07}-{self.epoch:012}"
        return name if len(self.bins) == 1 else f"{name}-{sum(1 << (bin - first) for bin in self.bins):016x}"

    @classmethod
    def of(cls, name: str) -> "BinFile":
        """Read a name back."""
        if name.count("-") < 2:
            bin, epoch = name.split("-")
            return cls(int(epoch), (int(bin),))
        first, epoch, bits = name.split("-")
        there = int(bits, 16)
        if not there & 1:
            raise ValueError(name)
        return cls(int(epoch), tuple(int(first) + place for place in range(REACH) if there >> place & 1))


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log entry's name: what one worker was fed of one operator in one epoch."""

    epoch: int
    attempt: int
    operator: str
    worker: int
    incarnation: int
    """Which process of that worker: the later one is right."""

    def __str__(self) -> str:
        return f"{self.epoch:012}-{self.attempt:04}-{self.operator}-{self.worker}-{self.incarnation:04}"

    @classmethod
    def of(cls, name: str) -> "LogFile":
        """Read a name back."""
        epoch, attempt, operator, worker, incarnation = name.split("-")
        return cls(int(epoch), int(attempt), operator, int(worker), int(incarnation))


class Store:
    """One control's part of a checkpoint location."""

    def __init__(self, checkpoint: str, control: str, trusted: bool = False) -> None:
        """Find it; nothing is created yet.

        What others could have put there is refused, unless it is `trusted`: since the user vouches for it, or since
        nothing of it will be unpickled.
        """
        self.checkpoint = checkpoint
        self.control = _name(control, "control", f"{checkpoint}/megaphone")
        self.folder = Folder(f"{checkpoint}/megaphone/{control}", None if trusted else checkpoint)

    def judge(self) -> None:
        """Refuse it if others could change what is in it; tell the user once what cannot be judged."""
        self.folder.judge()

    def create(self) -> None:
        """Make the folders: only their user may enter."""
        self.folder.make()

    def controls(self) -> list[str]:
        """The controls that have something in this checkpoint."""
        return Folder(f"{self.checkpoint}/megaphone").folders("")

    # -- small things -------------------------------------------------------------------------------------------

    def put(self, name: str, kind: str, message: Any) -> None:
        """Write a message."""
        self.folder.write(name, kind, [msgspec.msgpack.encode(message)])

    def get(self, name: str, kind: str, type: type[T]) -> T:
        """Read a message."""
        (raw,) = self.folder.read(name, kind)
        try:
            return msgspec.msgpack.decode(raw, type=type)
        except msgspec.MsgspecError as error:
            raise CheckpointError(f"{self.folder.uri}/{name} is not a {kind} this Megaphone knows: {error}") from None

    def read_manifest(self) -> Manifest:
        """What must not change between two runs; names in it are part of names of files."""
        manifest = self.get("manifest", "manifest", Manifest)
        for operator in manifest.operators:
            _name(operator, "operator", f"{self.folder.uri}/manifest")
        return manifest

    def numbers(self, folder: str) -> list[int]:
        """The numbers in a folder whose files are called by them: attempts, commands."""
        return [number for number, _ in self._sizes(folder, int)]

    def begin_attempt(self) -> int:
        """The number of this start of the query: larger than any before."""
        attempt = max(self.numbers("attempts"), default=0) + 1
        self.put(f"attempts/{attempt:04}", "attempt", attempt)
        return attempt

    def write_spec(self, attempt: int, operator: str, pickled: bytes) -> None:
        """Keep an operator with its fold."""
        self.folder.write(f"operators/{attempt:04}-{operator}", "operator", [pickled])

    def read_spec(self, attempt: int, operator: str) -> bytes:
        """An operator as it was in an attempt."""
        (raw,) = self.folder.read(f"operators/{attempt:04}-{operator}", "operator")
        return bytes(raw)

    def write_command(self, number: int, command: Command | bytes) -> None:
        """Keep a command, which may be in the bytes of its file already."""
        raw = command if isinstance(command, bytes) else msgspec.msgpack.encode(command)
        self.folder.write(_command(number), "command", [raw])

    def read_command(self, number: int) -> Command:
        """A command by its number."""
        return self.get(_command(number), "command", Command)

    def write_history(self, past: Sequence[MigrationSummary]) -> None:
        """Keep what is remembered of migrations that have ended."""
        self.put("history", "history", tuple(past))

    def read_history(self) -> tuple[MigrationSummary, ...]:
        """What is remembered of migrations that have ended: nothing if it was damaged, since nothing depends on it."""
        try:
            return self.get("history", "history", tuple[MigrationSummary, ...])
        except FileNotFoundError:
            return ()
        except CheckpointError as error:
            LOGGER.warning("the migrations that ended before are forgotten: %s", error)
            return ()

    # -- plans --------------------------------------------------------------------------------------------------

    def write_plan(self, stored: StoredPlan) -> None:
        """Keep the plan of an epoch."""
        self.put(f"plans/{stored.epoch:012}-{stored.attempt:04}", "plan", stored)

    def plans(self) -> dict[int, int]:
        """The epochs that have a plan, and the attempt whose plan it is: the last one."""
        return dict(sorted(plan for plan, _ in self._sizes("plans", _plan_name)))

    def read_plan(self, epoch: int, attempt: int) -> StoredPlan:
        """The plan an attempt made for an epoch."""
        return self.get(f"plans/{epoch:012}-{attempt:04}", "plan", StoredPlan)

    def keep_configuration(self, attempt: int, version: int, configuration: Configuration) -> None:
        """Keep a configuration under its version."""
        times = np.array([time for time, _ in configuration.entries], np.int64)
        owners = [assignment.owners for _, assignment in configuration.entries]
        self.folder.write(_configuration(attempt, version), "configuration", [times, *owners])

    def read_configuration(self, attempt: int, version: int) -> Configuration:
        """A configuration by the attempt that wrote it and its version."""
        times, *owners = self.folder.read(_configuration(attempt, version), "configuration")
        assignments = [Assignment(np.frombuffer(raw, np.int32)) for raw in owners]
        entries = zip(np.frombuffer(times, np.int64).tolist(), assignments, strict=True)
        return Configuration.of([(Time(time), assignment) for time, assignment in entries])

    # -- bins and logs ------------------------------------------------------------------------------------------

    def snapshots(self, operator: str) -> Iterator[tuple[BinFile, int]]:
        """Every file of snapshots of an operator's bins, and its bytes."""
        yield from self._sizes(f"bins/{operator}", BinFile.of)

    def write_snapshot(self, operator: str, epoch: int, bins: Mapping[int, Sequence[Any]]) -> int:
        """Keep the parts of some bins, in the order of their numbers, as they were after an epoch."""
        file = BinFile(epoch, tuple(bins))
        parts = [part for parts in bins.values() for part in parts]
        if len(bins) == 1:
            return self.folder.write(f"bins/{operator}/{file}", "bin", parts)
        counts = np.array([len(parts) for parts in bins.values()], np.int64)
        return self.folder.write(f"bins/{operator}/{file}", "bins", [counts, *parts])

    def read_snapshot(self, operator: str, file: BinFile) -> dict[int, list[pa.Buffer]]:
        """The parts of each bin in a file."""
        name = f"bins/{operator}/{file}"
        if len(file.bins) == 1:
            return {file.bins[0]: self.folder.read(name, "bin")}
        counts, *parts = self.folder.read(name, "bins")
        found = iter(parts)
        return {
            bin: list(islice(found, count))
            for bin, count in zip(file.bins, np.frombuffer(counts, np.int64).tolist(), strict=True)
        }

    def log(self) -> list[tuple[LogFile, int]]:
        """Every entry of the log, and its bytes."""
        return list(self._sizes("log", LogFile.of))

    def _sizes(self, folder: str, of: Callable[[str], T]) -> Iterator[tuple[T, int]]:
        """What the names in a folder say, and the files' bytes."""
        for name, size in self.folder.sizes(folder):
            try:
                yield of(name), size
            except ValueError:
                raise CheckpointError(
                    f"{self.folder.uri}/{folder}/{name} is not one of Megaphone's files; move it elsewhere"
                ) from None

    # -- cutting ------------------------------------------------------------------------------------------------

    def cut(self, needed_from: int, commands: Sequence[int]) -> None:
        """Forget the epochs before one, and what only they referred to; of the commands, keep these and later ones."""
        plans = self.plans()
        kept = min((epoch for epoch in plans if epoch >= needed_from), default=None)
        if kept is None:
            return
        oldest = self.read_plan(kept, plans[kept])
        told = [migration.number for migration in oldest.before.migrations]
        for folder, first in (
            # The plans first: who finds one, finds the log of its epoch.
            ("plans", (needed_from,)),
            ("log", (needed_from,)),
            ("configurations", (oldest.before_attempt, oldest.before.version)),
            ("operators", (oldest.attempt,)),
            ("attempts", (oldest.attempt,)),
            ("commands", (min([oldest.commands, *told, *commands]),)),
        ):
            for name in self.folder.names(folder) + self.folder.drafts(folder):
                if _leading(name, len(first)) < first:
                    self.folder.remove(f"{folder}/{name}")
        for operator in self.folder.folders("bins"):
            self._sweep(operator, needed_from)

    def _sweep(self, operator: str, needed_from: int) -> None:
        """Forget the snapshots of which there are later ones: those are of committed epochs, and no recovery goes back.

        Here and nowhere else: a worker cannot know who has recovered from a file it would remove.
        """
        files = [file for file, _ in self.snapshots(operator)]
        latest = dict(sorted((bin, file.epoch) for file in files for bin in file.bins))
        for file in files:
            if all(file.epoch < latest[bin] for bin in file.bins):
                self.folder.remove(f"bins/{operator}/{file}")
        for name in self.folder.drafts(f"bins/{operator}"):
            # Whoever writes one of so old an epoch has died over it.
            if _leading(name, 2)[1] < needed_from - 1:
                self.folder.remove(f"bins/{operator}/{name}")


def _name(found: str, of: str, where: str) -> str:
    """A name that was found in a checkpoint, where anybody may have written it."""
    try:
        return checks.name(found, of)
    except PlanError as error:
        raise CheckpointError(f"{where}: {str(error).split(';')[0]}, which is none of Megaphone's") from None


def _leading(name: str, count: int) -> tuple[int, ...]:
    """The numbers a file's name begins with, be the file complete or a draft."""
    return tuple(int(word.partition(".")[0]) for word in name.split("-")[:count])


def _plan_name(name: str) -> tuple[int, int]:
    epoch, attempt = name.split("-")
    return int(epoch), int(attempt)


def _command(number: int) -> str:
    return f"commands/{number:08}"


def _configuration(attempt: int, version: int) -> str:
    return f"configurations/{attempt:04}-{version:012}"
