"""Inspection: what a checkpoint holds of each control, operator, worker and bin. Nothing is changed.

All of it is as of the last epoch that Spark has committed. The query may be running: if it goes on while it is looked
at, and a file is gone, it is looked at once more.
Neighbours: restoration.py says where the bins are; contents.py reads what is in them; cli.py shows it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from megaphone.bins import BinId, WorkerId
from megaphone.configuration import Assignment
from megaphone.control.epochs import Epochs
from megaphone.durability.files import Folder
from megaphone.durability.ledger import NEVER
from megaphone.durability.manifest import Manifest
from megaphone.durability.recovery import first_to_redo
from megaphone.durability.restoration import Clocks, restored
from megaphone.durability.store import LogFile, Store
from megaphone.errors import CheckpointError
from megaphone.progress import Frontier

T = TypeVar("T")

LOOKS = 20
"""How often to look again at a query that goes on: an epoch lasts longer than a look, mostly."""

FOLDERS = ("attempts", "operators", "plans", "configurations", "commands", "log")


@dataclass(frozen=True, slots=True)
class WorkerState:
    """What a checkpoint has of one operator on one worker."""

    worker: int
    bins: int
    snapshot_bytes: int
    oldest_snapshot: int | None
    """The epoch after which it was taken; none if there is no snapshot."""
    newest_snapshot: int | None
    log_bytes: int
    redo: int
    """Epochs that a recovery would do once more."""
    frontier: str


@dataclass(frozen=True, slots=True)
class OperatorState:
    """One operator."""

    operator: str
    state: str
    clock: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    applied: int
    late: int
    workers: tuple[WorkerState, ...]


@dataclass(frozen=True, slots=True)
class ControlState:
    """One control, and the operators that share it."""

    control: str
    attempt: int
    committed: int
    """The last epoch that Spark has committed; -1 before the first."""
    planned: int
    bins: int
    migration: str | None
    """The one under way; a stopped query goes on with it when it is started again."""
    bytes: Mapping[str, int]
    """On disk, by kind."""
    operators: tuple[OperatorState, ...]


@dataclass(frozen=True, slots=True)
class Inspection:
    """A checkpoint."""

    checkpoint: str
    controls: tuple[ControlState, ...]


@dataclass(frozen=True, slots=True)
class BinState:
    """One bin of one operator."""

    control: str
    operator: str
    bin: int
    worker: int
    snapshot: int | None
    snapshot_bytes: int


def inspect(checkpoint: str) -> Inspection:
    """Everything about a checkpoint but the state itself."""
    return Inspection(checkpoint, tuple(look(checkpoint, _control_state)))


def bins(checkpoint: str, operator: str | None = None) -> list[BinState]:
    """Every bin, of all operators or of one: who has it, and its snapshot."""
    return [
        state
        for states in look(checkpoint, lambda view: list(_bin_states(view)))
        for state in states
        if operator in (None, state.operator)
    ]


class View:
    """One control of a query, as it was after the last epoch that Spark has committed."""

    def __init__(self, store: Store) -> None:
        """Look at it now."""
        self.store = store
        # The commits first: an epoch is planned before it is committed, so the plans cannot be behind.
        self.committed = last_committed(store.checkpoint)
        self.plans = store.plans()
        if not self.plans:
            raise CheckpointError(f"{store.folder.uri} has no plan: its query has not come to its first epoch yet")
        self.manifest = store.read_manifest()
        self.epochs: Epochs = restored(store, self.committed + 1, _clocks(self.manifest))
        # Only in memory. With it everything that happened in the last committed epoch counts as done.
        self.epochs.open(self.committed + 1)

    @property
    def planned(self) -> tuple[int, int]:
        """The last epoch that was planned, and by which attempt: it changes as the query goes on."""
        return last_planned(self.plans)

    def residence(self, operator: str) -> Assignment:
        """Where each bin of an operator is."""
        return self.epochs.residence(operator)

    def snapshots(self, operator: str) -> dict[int, tuple[int, int]]:
        """For each bin that has a snapshot, the epoch of the last one and its part of the file's bytes."""
        files = sorted(self.store.snapshots(operator), key=lambda found: found[0].epoch)
        return {bin: (file.epoch, size // len(file.bins)) for file, size in files for bin in file.bins}


def look(checkpoint: str, at: Callable[[View], T]) -> list[T]:
    """Look at every control in a checkpoint; say in one sentence what is wrong with one that cannot be read."""
    try:
        folder = Folder(checkpoint)
        _check(folder)
        # Nothing of it is unpickled, so it may be anybody's.
        return [_look(Store(folder.uri, control, trusted=True), at) for control in folder.folders("megaphone")]
    except (OSError, pa.ArrowException, UnicodeError) as error:
        raise CheckpointError(f"cannot read {checkpoint}: {str(error).splitlines()[0]}") from error


def last_committed(checkpoint: str) -> int:
    """The last epoch in Spark's own commit log; -1 if there is none."""
    return max((int(name) for name in Folder(checkpoint).names("commits") if name.isdecimal()), default=-1)


def last_planned(plans: Mapping[int, int]) -> tuple[int, int]:
    """The last of the epochs that have a plan, and whose it is."""
    return max(plans.items(), default=(-1, 0))


def _look(store: Store, at: Callable[[View], T]) -> T:
    for _ in range(LOOKS):
        before = last_planned(store.plans())
        try:
            return at(View(store))
        except (FileNotFoundError, CheckpointError) as error:
            if last_planned(store.plans()) == before:
                raise missing(error) if isinstance(error, FileNotFoundError) else error from error
    raise CheckpointError(f"the query of {store.checkpoint} goes on faster than it can be looked at; try again")


def missing(error: FileNotFoundError) -> CheckpointError:
    """A file that should be there."""
    return CheckpointError(f"{error.filename} is missing; put it back, or start with a new checkpoint location")


def _check(folder: Folder) -> None:
    if not folder.is_there():
        raise CheckpointError(f"there is no {folder.uri}; give the checkpoint location of a query")
    if not folder.is_folder():
        raise CheckpointError(f"{folder.uri} is a file; give the checkpoint location of a query, a folder")
    if not folder.is_folder("megaphone") and not folder.is_folder("offsets"):
        raise CheckpointError(
            f"{folder.uri} is no checkpoint location: it has neither a folder offsets nor a folder megaphone"
        )
    if not folder.folders("megaphone"):
        raise CheckpointError(
            f"{folder.uri} is the checkpoint of a query that has no operator of Megaphone's, or has not begun yet"
        )


def _clocks(manifest: Manifest) -> Clocks:
    return {
        name: ("epoch" if shape.clock == "epoch" else "column", len(shape.keys))
        for name, shape in manifest.operators.items()
    }


def _control_state(view: View) -> ControlState:
    log: dict[str, list[tuple[LogFile, int]]] = defaultdict(list)
    for file, size in view.store.log():
        log[file.operator].append((file, size))
    planned, _ = view.planned
    return ControlState(
        view.store.control,
        max(view.store.numbers("attempts"), default=0),
        view.committed,
        planned,
        view.manifest.bins,
        str(migration) if (migration := view.epochs.controller.current) else None,
        _bytes(view),
        tuple(_operator_state(view, name, log[name]) for name in view.manifest.operators),
    )


def _operator_state(view: View, name: str, log: list[tuple[LogFile, int]]) -> OperatorState:
    shape, operator = view.manifest.operators[name], view.epochs.operators[name]
    return OperatorState(
        name,
        shape.state,
        shape.clock,
        shape.keys,
        shape.columns,
        operator.applied,
        operator.late,
        tuple(_worker_states(view, name, log)),
    )


def _worker_states(view: View, name: str, log: list[tuple[LogFile, int]]) -> Iterator[WorkerState]:
    residence, snapshots = view.residence(name), view.snapshots(name)
    operator = view.epochs.operators[name]
    everyone = {*residence.workers(), *range(view.epochs.workers), *(file.worker for file, _ in log)}
    for worker in map(WorkerId, sorted(everyone)):
        owned = residence.bins_of(worker).tolist()
        taken = [snapshots[bin] for bin in owned if bin in snapshots]
        stored = [snapshots.get(bin, (NEVER, 0))[0] + 1 for bin in owned]
        yield WorkerState(
            worker,
            len(owned),
            sum(size for _, size in taken),
            min((epoch for epoch, _ in taken), default=None),
            max((epoch for epoch, _ in taken), default=None),
            sum(size for file, size in log if file.worker == worker),
            max(0, view.committed + 1 - first_to_redo(stored, view.plans, view.committed)),
            str(Frontier(operator.output.get(worker, operator.frontier.bound))),
        )


def _bin_states(view: View) -> Iterator[BinState]:
    for name in view.manifest.operators:
        residence, snapshots = view.residence(name), view.snapshots(name)
        for bin in map(BinId, range(len(residence))):
            epoch, size = snapshots.get(bin, (None, 0))
            yield BinState(view.store.control, name, bin, residence[bin], epoch, size)


def _bytes(view: View) -> dict[str, int]:
    folder = view.store.folder
    files = dict(folder.sizes(""))
    found: dict[str, int] = {kind: files[kind] for kind in ("manifest", "history") if kind in files}
    found |= {kind: _total(folder, [kind]) for kind in FOLDERS}
    return found | {"bins": _total(folder, [f"bins/{operator}" for operator in folder.folders("bins")])}


def _total(folder: Folder, names: Iterable[str]) -> int:
    return sum(size for name in names for _, size in folder.sizes(name))
