"""The input log: what a worker was fed in an epoch, and what it said of it.

An operator is deterministic, so its inputs are enough to redo it. An entry is complete before the epoch's outputs are
given out, so every epoch that Spark has committed can be redone.
Neighbours: store.py says where, recovery.py redoes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from megaphone.control.epochs import Report
from megaphone.durability.files import Draft
from megaphone.durability.store import LogFile, Store
from megaphone.errors import CheckpointError

KIND = "log"

Payloads = Sequence[tuple[int, pa.Buffer]]
"""What was fed: for each payload the number of its input, and an Arrow stream of records."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a worker was told along with its records."""

    frontier: int
    """The input frontier after the epoch."""
    seen: list[int]
    """The largest time seen on each input."""
    inputs: list[int]
    """Which input each payload is of."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One epoch of one operator on one worker."""

    head: Head
    payloads: Payloads
    report: Report


class Writing:
    """An entry on its way to the log: its payloads are written while they are being applied."""

    def __init__(self, store: Store, file: LogFile, head: Head, payloads: Payloads) -> None:
        """Write everything but the report."""
        self._draft: Draft = store.folder.draft(f"log/{file}", KIND)
        try:
            self._draft.add(msgspec.msgpack.encode(head))
            for _, payload in payloads:
                self._draft.add(payload)
        except BaseException:
            self._draft.discard()
            raise

    def finish(self, report: Report) -> int:
        """Add the report, and let the entry appear; its bytes."""
        try:
            self._draft.add(msgspec.msgpack.encode(report))
            self._draft.finish()
        except BaseException:
            self._draft.discard()
            raise
        return self._draft.size

    def discard(self) -> None:
        """The epoch was not applied after all."""
        self._draft.discard()


def read_entry(store: Store, file: LogFile) -> Entry:
    """An entry of the log."""
    parts = store.folder.read(f"log/{file}", KIND)
    try:
        head, *payloads, report = parts
        told = msgspec.msgpack.decode(head, type=Head)
        return Entry(told, list(zip(told.inputs, payloads, strict=True)), msgspec.msgpack.decode(report, type=Report))
    except (msgspec.MsgspecError, ValueError) as error:
        raise CheckpointError(f"{store.folder.uri}/log/{file} is not an entry this Megaphone knows: {error}") from None
