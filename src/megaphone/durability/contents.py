"""Contents: the keys and states in the checkpoint of a stopped query, as they were after its last committed epoch.

Bins are recovered as after a crash, a few at a time, wherever that is done. A query that goes on meanwhile takes away
what they are recovered from, so this is noticed and refused.
Neighbours: inspection.py finds the bins, recovery.py recovers them, text.py writes them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from megaphone.bins import BinId, WorkerId
from megaphone.dataflow.folds import Fold, KeyFold
from megaphone.durability.inspection import View, last_planned, look, missing
from megaphone.durability.recovery import Recovered, Request, read_spec, recover_bins
from megaphone.durability.store import Store
from megaphone.durability.text import text_of
from megaphone.errors import CheckpointError

Entry = tuple[str, int, str | None, str]
"""An operator, a bin, a key and its state; no key if the state is of the whole bin."""


@dataclass(frozen=True, slots=True)
class Share:
    """Some bins of one worker and operator: enough to read them anywhere."""

    checkpoint: str
    control: str
    operator: str
    name: str
    """What the operator is called in the entries: with its control, if two controls have one of this name."""
    worker: int
    bins: tuple[int, ...]
    of: int
    """How many bins there are in all."""
    epoch: int
    attempt: int
    """Whose fold it is."""
    planned: tuple[int, int]


def shares(checkpoint: str, operator: str | None = None, parts: int = 8) -> list[Share]:
    """The state of all operators, or of one, in about so many parts each."""
    views = look(checkpoint, lambda view: view)
    names = _names(views)
    if operator is not None and operator not in names.values():
        known = ", ".join(sorted(names.values()))
        raise CheckpointError(f"no operator named '{operator}' in {checkpoint}; choose from {known}")
    return [
        share
        for view in views
        for own in view.manifest.operators
        if operator in (None, names[view.store.control, own])
        for share in _shares(view, own, names[view.store.control, own], parts)
    ]


def contents(share: Share, trusted: bool = False) -> Iterator[Entry]:
    """Every key and its state in some bins; of a checkpoint that others could have changed only if it is `trusted`."""
    recovered = _recover(share, trusted)
    for bin in share.bins:
        state = recovered.host.states.get(BinId(bin))
        for key, value in _entries(recovered.host.fold, state):
            yield share.name, bin, key, text_of(value)


def _names(views: list[View]) -> dict[tuple[str, str], str]:
    """What to call each operator of each control."""
    both = [(view.store.control, operator) for view in views for operator in view.manifest.operators]
    times = Counter(operator for _, operator in both)
    return {
        (control, operator): operator if times[operator] == 1 else f"{control}/{operator}" for control, operator in both
    }


def _shares(view: View, operator: str, name: str, parts: int) -> Iterator[Share]:
    if view.committed < 0:
        return
    residence = view.residence(operator)
    most = -(-len(residence) // parts)
    for worker in residence.workers():
        owned = residence.bins_of(worker)
        for bins in np.array_split(owned, -(-len(owned) // most)):
            yield Share(
                view.store.checkpoint,
                view.store.control,
                operator,
                name,
                int(worker),
                tuple(bins.tolist()),
                len(residence),
                view.committed,
                view.plans.get(view.committed, view.planned[1]),
                view.planned,
            )


def judge(found: Iterable[Share]) -> None:
    """Refuse what `contents` would refuse, as far as it can be known before."""
    for checkpoint, control in dict.fromkeys((share.checkpoint, share.control) for share in found):
        Store(checkpoint, control).judge()


def _recover(share: Share, trusted: bool) -> Recovered:
    store = Store(share.checkpoint, share.control, trusted)
    try:
        return _recover_now(store, share)
    except FileNotFoundError as error:
        raise missing(error) from error
    except (ImportError, AttributeError) as error:
        raise CheckpointError(
            f"the state of operator {share.name} in {share.checkpoint} cannot be read here: {error}; "
            "let Python find what the fold and its state are made of"
        ) from error
    finally:
        # What was read may be right or not: a bin whose snapshot has been replaced would seem empty.
        _check_at_rest(store, share)


def _recover_now(store: Store, share: Share) -> Recovered:
    spec = read_spec(store, share.attempt, share.operator)
    wanted = np.array(share.bins, np.int64)
    return recover_bins(store, Request(share.operator, WorkerId(share.worker), spec, share.of, wanted, share.epoch))


def _check_at_rest(store: Store, share: Share) -> None:
    now = last_planned(store.plans())
    if now != share.planned:
        raise CheckpointError(
            f"the query of {share.checkpoint} goes on: it came to epoch {now[0]} while its state after epoch "
            f"{share.epoch} was being read; stop it first"
        )


def _entries(fold: Fold, state: Any) -> Iterator[tuple[str | None, Any]]:
    if isinstance(state, dict):
        key_of = fold.key_of if isinstance(fold, KeyFold) else lambda key: key
        yield from ((text_of(key_of(key)), value) for key, value in state.items())
    elif state is not None:
        yield None, state
