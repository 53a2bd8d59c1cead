"""A run's memoir: what it writes down as it goes, and how the next attempt takes it up.

Every epoch's plan is written before it is answered, every command before it is obeyed. A new attempt restores what the
control side knew before the epoch that Spark asks for next, and plans that epoch anew.
Neighbours: run.py goes by it; control/saved.py is what is written, durability/store.py where; restoration.py reads it.
"""

from collections.abc import Mapping, Sequence

from megaphone.configuration import Assignment, Configuration
from megaphone.control import targets
from megaphone.control.controller import Controller
from megaphone.control.epochs import EpochPlan, Epochs
from megaphone.control.plan import Plan, Step
from megaphone.control.saved import save
from megaphone.durability.manifest import Manifest, check
from megaphone.durability.restoration import Clocks, obey_all, restored
from megaphone.durability.restoration import obey as obey
from megaphone.durability.store import Command, Store, StoredPlan
from megaphone.errors import CheckpointError

CUT_EVERY = 16
"""Epochs from one cutting of the log to the next: listing what is there has its price."""


class Memoir:
    """The durable side of one run."""

    def __init__(self, store: Store, manifest: Manifest, specs: Mapping[str, bytes], clocks: Clocks) -> None:
        """Open a checkpoint, new or old; refuse one that does not fit."""
        store.judge()
        self.store = store
        self._manifest = manifest
        self._clocks = clocks
        self.known = self._read_manifest()
        if self.known is not None:
            check(self.known, manifest, store.folder.uri)
        store.create()
        self.attempt = store.begin_attempt()
        for name, pickled in specs.items():
            store.write_spec(self.attempt, name, pickled)
        self._commands = max(store.numbers("commands"), default=-1) + 1
        self._kept: set[tuple[int, int]] = set()
        self._owed: StoredPlan | None = None
        self._cut = 0
        self._ended = -1

    def begin(self, epoch: int, initial: Assignment) -> Epochs:
        """The epochs, ready to open one: fresh, or as an attempt before had them."""
        if self.known is None or not self.store.plans():
            epochs = self._fresh(epoch, initial)
        else:
            epochs = restored(self.store, epoch, self._clocks, self.store.write_command)
            epochs.reopen()
            if self.known.workers != self._manifest.workers:
                self._resize(epochs, self._manifest.workers)
        return epochs

    def open(self, epochs: Epochs, epoch: int, closing: bool) -> EpochPlan:
        """Open an epoch, and write its plan down before anybody learns of it."""
        before = save(epochs)
        self._keep(before.version, epochs.configuration)
        plan = epochs.open(epoch, closing)
        self._owed = StoredPlan(
            epoch,
            self.attempt,
            plan.version,
            tuple(int(worker) for worker in plan.workers),
            dict(plan.operators),
            closing,
            before,
            self.attempt,
            self._commands,
        )
        self.write(epochs)
        return plan

    def write(self, epochs: Epochs) -> None:
        """Write the plan of the epoch that is open down, if that has failed: nobody may learn of it before."""
        if self._owed is None:
            return
        self._keep(self._owed.version, epochs.configuration)
        self._remember(epochs.controller)
        self.store.write_plan(self._owed)
        if self.known != self._manifest:
            # Not before: the next attempt compares itself with the one that made the last plan.
            self.store.put("manifest", "manifest", self._manifest)
            self.known = self._manifest
        self._owed = None

    def command(self, command: Command | bytes) -> int:
        """Write a command down, which may be in the bytes of its file already; its number."""
        number = self._commands
        self.store.write_command(number, command)
        self._commands += 1
        return number

    def cut(self, epoch: int, needed_from: int, under_way: Sequence[int]) -> None:
        """Forget what no recovery can ask for any more, now and then; all epochs before `epoch` are committed.

        The plans of migrations that have not ended stay; they are told by their numbers.
        """
        if epoch >= self._cut + CUT_EVERY:
            self._cut = epoch
            # The plan before this one stays: whoever restarts may have to begin with it.
            self.store.cut(min(needed_from, epoch - 1), under_way)

    def _remember(self, controller: Controller) -> None:
        """Write down what ended, before a plan that does not have it under way any more."""
        ended = controller.ended.total()
        if ended not in (self._ended, 0):
            self.store.write_history(controller.past)
        self._ended = ended

    def _keep(self, version: int, configuration: Configuration) -> None:
        if (self.attempt, version) not in self._kept:
            self.store.keep_configuration(self.attempt, version, configuration)
            self._kept = {(self.attempt, version)}

    def _read_manifest(self) -> Manifest | None:
        try:
            return self.store.read_manifest()
        except FileNotFoundError:
            return None

    def _fresh(self, epoch: int, initial: Assignment) -> Epochs:
        if epoch > 0:
            raise CheckpointError(
                f"the query goes on at epoch {epoch}, but {self.store.folder.uri} has no state of its operators; "
                f"{self._remedy()}start with a new checkpoint location"
            )
        epochs = Epochs(initial, self._manifest.workers, self._clocks)
        obey_all(epochs, self.store, 0, self.store.write_command)
        return epochs

    def _remedy(self) -> str:
        """What to do where the state may be under another control's name."""
        others = [control for control in self.store.controls() if control != self.store.control]
        if not others:
            return ""
        return (
            f"there is state of {' and '.join(others)}: name the control as it was, or leave the name out if it had "
            "none, since one without a name is called control0, control1 and so on; or, without that state, "
        )

    def _resize(self, epochs: Epochs, workers: int) -> None:
        """Go on with another number of workers than before."""
        target = targets.balanced(epochs.controller.expected, workers)
        if epochs.controller.current is None:
            epochs.place(target, workers)
            return
        # A migration is under way: first it ends, then the bins go where they are wanted.
        moves = tuple(epochs.controller.expected.moves_to(target))
        plan = Plan(len(target), (Step(moves),) if moves else (), strategy="all_at_once")
        command = Command("submit", plan.to_json(), workers)
        obey(epochs, command, self.command(command))
