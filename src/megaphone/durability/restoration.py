"""Restoration: what the control side knew before an epoch, from the plans, commands and reports that were written down.

A plan tells what was known before its epoch; the log tells what the workers said of an epoch that was committed.
Neighbours: control/saved.py is what a plan carries; the engine goes on from it, inspection.py shows it.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from megaphone import checks
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

LOGGER = logging.getLogger("megaphone")

TOLD = ("pause", "resume", "cancel")
"""Commands to the migration under way."""

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
    obey_all(epochs, store, stored.commands, keep)
    if stored.epoch < epoch:
        _hear_reports(store, epochs, stored)
    return epochs


def obey_all(epochs: Epochs, store: Store, first: int, keep: Keep) -> None:
    """Do what was asked for since the last plan, from a number on, while an epoch was open that is now planned anew.

    No epoch that counts has followed any of it, so what cannot be followed ends as failed, and the query goes on.
    """
    for number in store.numbers("commands"):
        if number >= first:
            command = None
            try:
                command = store.read_command(number)
                _obey_again(epochs, command, number, keep)
            except (PlanError, CheckpointError) as error:
                LOGGER.warning("command %s of %s ends as failed: %s", number, store.folder.uri, error)
                epochs.controller.reject(number, str(error), _outline(command, epochs))


def _obey_again(epochs: Epochs, command: Command, number: int, keep: Keep) -> None:
    try:
        obey(epochs, command, number)
    except PlanError:
        if command.verb == "submit":
            # A migration goes on from where the bins are now.
            fitting = _refit(command, epochs.controller.expected)
            epochs.check(_plan_in(fitting), fitting.workers)
            keep(number, fitting)
            obey(epochs, fitting, number)
        elif command.verb not in TOLD:
            raise
        # There may be nothing left to pause or cancel.


def _outline(command: Command | None, epochs: Epochs) -> Plan:
    """What can be shown of a command that cannot be followed."""
    try:
        if command is not None:
            plan = _plan_in(command)
            checks.label(plan.strategy, "a strategy called")
            return plan
    except PlanError:
        pass
    return Plan(epochs.configuration.bins, (), strategy="unreadable")


def _refit(command: Command, current: Assignment) -> Command:
    """The same steps to the same targets, now, from where the bins are."""
    plan = _plan_in(command)
    steps = []
    for step in plan.steps:
        steps.append(step_to(current, [(move.bin, move.target) for move in step.moves]))
        current = current.after((move.bin, move.target) for move in step.moves)
    return replace(command, plan=replace(plan, steps=tuple(steps)).to_json())


def obey(epochs: Epochs, command: Command, number: int) -> Migration | None:
    """Do what a command says, or refuse it as it would have been refused; None if it means nothing any more."""
    controller = epochs.controller
    if command.verb == "submit":
        return epochs.submit(_plan_in(command), command.workers, number)
    if command.verb == "fail":
        if command.migration is None or command.reason is None:
            raise PlanError("a failure of no migration, or for no reason")
        return epochs.fail(command.migration, command.reason, command.epoch)
    if command.verb == "cancel":
        return controller.cancel(epochs.configuration.last)
    if command.verb in TOLD:
        return controller.pause() if command.verb == "pause" else controller.resume()
    raise PlanError(f"no command named {checks.shown(command.verb)}")


def _plan_in(command: Command) -> Plan:
    if command.plan is None:
        raise PlanError("a migration without a plan")
    return Plan.from_json(command.plan)


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
    return _plan_in(store.read_command(number))


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
