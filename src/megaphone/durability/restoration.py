"""Restoration: what the control side knew before an epoch, from the plans, commands and reports that were written down.

A plan tells what was known before its epoch; the log tells what the workers said of an epoch that was committed.
Neighbours: control/saved.py is what a plan carries; the engine goes on from it, inspection.py shows it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from megaphone.configuration import Assignment
from megaphone.control.controller import Migration, MigrationSummary
from megaphone.control.epochs import Clock, Epochs
from megaphone.control.plan import Plan, step_to
from megaphone.control.saved import restore
from megaphone.durability.log import read_entry
from megaphone.durability.store import Command, LogFile, Store, StoredPlan
from megaphone.durability.unread import unread
from megaphone.errors import CheckpointError, PlanError
from megaphone.progress import Time

Keep = Callable[[int, Command], None]
"""Writes a command down under a number."""

Clocks = Mapping[str, tuple[Clock, int]]
"""How each operator tells time, and the number of its inputs."""


def restored(store: Store, epoch: int, clocks: Clocks, keep: Keep = lambda number, command: None) -> Epochs:
    """What the control side knew before an epoch, which may have been planned or not, but was not committed.

    A command that had to be refitted is given to `keep`, which who goes on from here must write down.
    """
    plans = store.plans()
    last = max(plans, default=-1)
    if epoch > last + 1:
        fact = f"the last plan in {store.folder.uri} is of epoch {last}: no worker has applied epoch {last + 1}"
        raise unread(store.checkpoint, last + 1, fact)
    if epoch < last:
        raise CheckpointError(
            f"the query goes on at epoch {epoch}, but the last plan in {store.folder.uri} is of epoch {last}"
        )
    stored = _read_last(store, epoch, plans)
    configuration = store.read_configuration(stored.before_attempt, stored.before.version)
    epochs = restore(stored.before, configuration, clocks, lambda number: _plan_of(store, number))
    epochs.controller.remember(_past(store, stored))
    if stored.epoch < epoch:
        # It was committed: what its workers said of it is in the log.
        epochs.open(stored.epoch, stored.closing)
    obey_all(epochs, store.commands_from(stored.commands), keep)
    if stored.epoch < epoch:
        _hear_reports(store, epochs, stored)
    return epochs


def obey_all(epochs: Epochs, commands: Iterable[tuple[int, Command]], keep: Keep) -> None:
    """Do what was asked for since the last plan, while an epoch was open that is now planned anew."""
    for number, command in commands:
        try:
            obey(epochs, command, number)
        except PlanError:
            # There may be nothing left to pause or cancel. A migration goes on from where the bins are now.
            if command.verb == "submit":
                fitting = _refit(command, epochs.controller.expected)
                keep(number, fitting)
                obey(epochs, fitting, number)


def _refit(command: Command, current: Assignment) -> Command:
    """The same steps to the same targets, now, from where the bins are."""
    assert command.plan is not None
    plan = Plan.from_json(command.plan)
    steps = []
    for step in plan.steps:
        steps.append(step_to(current, [(move.bin, move.target) for move in step.moves]))
        current = current.after((move.bin, move.target) for move in step.moves)
    return replace(command, plan=replace(plan, steps=tuple(steps)).to_json())


def obey(epochs: Epochs, command: Command, number: int) -> Migration | None:
    """Do what a command says; refuse it as it would have been refused."""
    controller = epochs.controller
    if command.verb == "submit":
        assert command.plan is not None
        return epochs.submit(Plan.from_json(command.plan), command.workers, number)
    if command.verb == "cancel":
        return controller.cancel(epochs.configuration.last)
    return controller.pause() if command.verb == "pause" else controller.resume()


def _read_last(store: Store, epoch: int, plans: dict[int, int]) -> StoredPlan:
    """The plan to go on from: of the epoch itself, which was not committed, or of the one before."""
    if epoch in plans:
        try:
            return store.read_plan(epoch, plans[epoch])
        except CheckpointError:
            # Torn as the machine died: nobody followed it to the end, and the one before is as good.
            if epoch - 1 not in plans:
                raise
    return store.read_plan(epoch - 1, plans[epoch - 1])


def _past(store: Store, stored: StoredPlan) -> list[MigrationSummary]:
    """The migrations that had ended before an epoch was planned; later ones end once more."""
    under_way = {migration.number for migration in stored.before.migrations}
    return [past for past in store.read_history() if past.number < stored.commands and past.number not in under_way]


def _plan_of(store: Store, number: int) -> Plan:
    text = store.read_command(number).plan
    assert text is not None
    return Plan.from_json(text)


def _hear_reports(store: Store, epochs: Epochs, stored: StoredPlan) -> None:
    files = [file for file, _ in store.log() if (file.epoch, file.attempt) == (stored.epoch, stored.attempt)]
    in_order = sorted(files, key=lambda file: file.incarnation)
    latest: dict[tuple[str, int], LogFile] = {(file.operator, file.worker): file for file in in_order}
    for (operator, _), file in latest.items():
        entry = read_entry(store, file)
        seen = [Time(time) for time in entry.head.seen]
        epochs.report(operator, stored.epoch, [entry.report], seen, Time(entry.head.frontier))
    if epochs.silent:
        fact = f"workers {sorted(epochs.silent)} have no entry in {store.folder.uri}/log for epoch {stored.epoch}"
        raise unread(store.checkpoint, stored.epoch, fact)
