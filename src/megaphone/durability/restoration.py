"""Restoration: what the control side knew before an epoch, from the plans, commands and reports that were written down.

A plan tells what was known before its epoch; the log tells what the workers said of an epoch that was committed.
Neighbours: control/saved.py is what a plan carries; the engine goes on from it, inspection.py shows it.
"""

import contextlib
from collections.abc import Iterable, Mapping

from megaphone.control.controller import Migration
from megaphone.control.epochs import Clock, Epochs
from megaphone.control.plan import Plan
from megaphone.control.saved import restore
from megaphone.durability.log import read_entry
from megaphone.durability.store import Command, LogFile, Store, StoredPlan
from megaphone.errors import CheckpointError, PlanError
from megaphone.progress import Time

Clocks = Mapping[str, tuple[Clock, int]]
"""How each operator tells time, and the number of its inputs."""


def restored(store: Store, epoch: int, clocks: Clocks) -> Epochs:
    """What the control side knew before an epoch, which may have been planned or not, but was not committed."""
    plans = store.plans()
    last = max(plans, default=-1)
    if epoch not in (last, last + 1):
        raise CheckpointError(
            f"the query goes on at epoch {epoch}, but the last plan in {store.folder.uri} is of epoch {last}"
        )
    stored = _read_last(store, epoch, plans)
    configuration = store.read_configuration(stored.before_attempt, stored.before.version)
    epochs = restore(stored.before, configuration, clocks, lambda number: _plan_of(store, number))
    if stored.epoch < epoch:
        # It was committed: what its workers said of it is in the log.
        epochs.open(stored.epoch, stored.closing)
    obey_all(epochs, store.commands_from(stored.commands))
    if stored.epoch < epoch:
        _hear_reports(store, epochs, stored)
    return epochs


def obey_all(epochs: Epochs, commands: Iterable[tuple[int, Command]]) -> None:
    """Do what was asked for since the last plan."""
    for number, command in commands:
        # Given while an epoch was open that is now planned anew: there may be nothing left to pause or cancel.
        with contextlib.suppress(PlanError):
            obey(epochs, command, number)


def obey(epochs: Epochs, command: Command, number: int) -> Migration | None:
    """Do what a command says; refuse it as it would have been refused."""
    controller = epochs.controller
    if command.workers is not None:
        epochs.workers = max(epochs.workers, command.workers)
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
        raise CheckpointError(
            f"workers {sorted(epochs.silent)} have no entry for epoch {stored.epoch} in {store.folder.uri}/log"
        )
