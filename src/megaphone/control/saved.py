"""What the control side must remember through a crash, as plain data.

Taken before an epoch is opened, when everything of the one before has been reported: opening that epoch again from it
gives the same plan. The configuration, the plans of migrations, and what is remembered of those that have ended are
kept apart, since they rarely change.
Neighbours: epochs.py is what is saved, durability/ writes it.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from megaphone.bins import BinId, WorkerId
from megaphone.configuration import Configuration
from megaphone.control.controller import Migration, Phase
from megaphone.control.epochs import Clock, Epochs
from megaphone.control.plan import Plan
from megaphone.control.stream import Reconfiguration
from megaphone.progress import Frontier, Time


@dataclass(frozen=True, slots=True)
class SavedMigration:
    """How far a migration that has not ended has got; its plan is found by its number."""

    number: int
    then_workers: int | None
    phase: Phase
    issued: int
    completed: int
    bytes_moved: int
    asked_s: float
    began_s: float | None
    stride: int = 1
    reason: str | None = None
    cleared: bool = True
    workers_before: int | None = None


@dataclass(frozen=True, slots=True)
class SavedOperator:
    """One operator between two epochs."""

    frontier: Time
    open_frontier: Time
    seen: tuple[Time, ...]
    output: dict[int, Time]
    late: int
    applied: int
    pending: tuple[Reconfiguration, ...]
    freed: tuple[BinId, ...] = ()


@dataclass(frozen=True, slots=True)
class Saved:
    """The control side of a query between two epochs."""

    epoch: int
    workers: int
    version: int
    closed: bool
    bytes_moved: int
    happened: tuple[str, ...]
    in_flight: bool
    resume_at: Time | None
    operators: dict[str, SavedOperator]
    migrations: tuple[SavedMigration, ...]
    """Those that have not ended: what is remembered of the others is written when they end, not in every epoch."""
    ended: dict[Phase, int]
    emptied: tuple[int, ...]


def save(epochs: Epochs) -> Saved:
    """Everything about the epochs so far that the next ones depend on, but for the configuration."""
    operators = {
        name: SavedOperator(
            operator.frontier.bound,
            operator.open_frontier.bound,
            tuple(operator.seen),
            {int(worker): time for worker, time in operator.output.items()},
            operator.late,
            operator.applied,
            tuple(operator.pending),
            tuple(sorted(operator.freed)),
        )
        for name, operator in epochs.operators.items()
    }
    controller = epochs.controller
    return Saved(
        epochs.epoch,
        epochs.workers,
        epochs.version,
        epochs.closed,
        epochs.bytes_moved,
        tuple(sorted(epochs.happened)),
        controller.in_flight,
        controller.resume_at,
        operators,
        tuple(map(_save_migration, controller.under_way)),
        dict(controller.ended),
        tuple(controller.emptied),
    )


def restore(
    saved: Saved,
    configuration: Configuration,
    clocks: Mapping[str, tuple[Clock, int]],
    plan_of: Callable[[int], Plan],
) -> Epochs:
    """Epochs that go on as the saved ones would have."""
    epochs = Epochs(configuration.last, saved.workers, clocks)
    epochs.configuration = configuration
    epochs.epoch, epochs.version, epochs.closed = saved.epoch, saved.version, saved.closed
    epochs.bytes_moved, epochs.happened = saved.bytes_moved, set(saved.happened)
    for name, was in saved.operators.items():
        operator = epochs.operators[name]
        operator.frontier, operator.open_frontier = Frontier(was.frontier), Frontier(was.open_frontier)
        operator.seen, operator.late, operator.applied = list(was.seen), was.late, was.applied
        operator.output = {WorkerId(worker): time for worker, time in was.output.items()}
        operator.freed = set(was.freed)
        for reconfiguration in was.pending:
            operator.pending.add(reconfiguration)
    migrations = [_restore_migration(migration, plan_of(migration.number)) for migration in saved.migrations]
    epochs.controller.take_up(migrations, saved.in_flight, saved.resume_at, configuration.last)
    epochs.controller.ended, epochs.controller.emptied = Counter(saved.ended), list(saved.emptied)
    return epochs


def _save_migration(migration: Migration) -> SavedMigration:
    return SavedMigration(
        migration.number,
        migration.then_workers,
        migration.phase,
        migration.issued,
        migration.completed,
        migration.bytes_moved,
        migration.asked_s,
        migration.began_s,
        migration.stride,
        migration.reason,
        migration.cleared,
        migration.workers_before,
    )


def _restore_migration(saved: SavedMigration, plan: Plan) -> Migration:
    return Migration(
        plan,
        saved.then_workers,
        saved.number,
        saved.phase,
        saved.issued,
        saved.completed,
        saved.bytes_moved,
        saved.stride,
        saved.asked_s,
        saved.began_s,
        reason=saved.reason,
        cleared=saved.cleared,
        workers_before=saved.workers_before,
    )
