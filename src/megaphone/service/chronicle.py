"""The chronicle: a line for every epoch, in the manner of Spark's StreamingQueryProgress.

The log has a line a minute, over all epochs of that minute: ten lines a second would be gigabytes a week.
Nothing in it grows with the state. docs/operations.md has it name by name.
Neighbours: the engine notes every epoch that is over; served under /progress, and told to logs.py.
"""

import json
import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from megaphone.control.balance import imbalance
from megaphone.control.epochs import Epochs
from megaphone.service.logs import MINUTE_S, PROGRESS, iso

LINES = 1000
"""Epochs that are remembered."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a query was when an epoch began."""

    epoch: int
    began_s: float
    totals: dict[str, tuple[int, int]]
    """Records applied and late so far, by operator."""


class Chronicle:
    """The last epochs of one run."""

    def __init__(self, query: str, run: str, name: str | None, control: str) -> None:
        """Begin with none."""
        self._head = {"id": query, "runId": run, "name": name}
        self._control = control
        self._lines: deque[dict[str, Any]] = deque(maxlen=LINES)
        self._before: Mark | None = None
        self._logged: Mark | None = None
        """Where the next line in the log begins."""

    def since(self, epoch: int) -> list[dict[str, Any]]:
        """The epochs after one, oldest first."""
        return [line for line in list(self._lines) if line["batchId"] > epoch]

    def note(self, epochs: Epochs, workers: int) -> None:
        """An epoch was opened, so the one before is over."""
        totals = {name: (operator.applied, operator.late) for name, operator in epochs.operators.items()}
        now = Mark(epochs.epoch, time.time(), totals)
        if self._before is not None:
            line = self._line(epochs, self._before, now, workers)
            self._lines.append(line)
            _log(logging.DEBUG, line)
        self._before = now
        self._logged = self._logged or now
        if now.began_s - self._logged.began_s >= MINUTE_S:
            _log(logging.INFO, self._line(epochs, self._logged, now, workers))
            self._logged = now

    def _line(self, epochs: Epochs, before: Mark, now: Mark, workers: int) -> dict[str, Any]:
        """What happened between two marks."""
        new = {
            name: (applied - before.totals[name][0], late - before.totals[name][1])
            for name, (applied, late) in now.totals.items()
        }
        rows = sum(applied + late for applied, late in new.values())
        seconds, count = now.began_s - before.began_s, now.epoch - before.epoch
        migration, meter = epochs.controller.current, epochs.meter
        return {
            **self._head,
            "timestamp": iso(before.began_s),
            "batchId": now.epoch - 1,
            "numInputRows": rows,
            "processedRowsPerSecond": round(rows / seconds, 1) if seconds else 0.0,
            "durationMs": {"triggerExecution": round(seconds * 1000 / count)},
            "stateOperators": [
                {
                    "operatorName": name,
                    "numRowsDroppedByWatermark": late,
                    "memoryUsedBytes": int(meter.loads[name].sizes.sum()),
                    "customMetrics": {
                        "recordsApplied": applied,
                        "outputFrontier": str(epochs.operators[name].output_frontier),
                    },
                }
                for name, (applied, late) in new.items()
            ],
            "megaphone": {
                "control": self._control,
                "epochs": count,
                "workers": workers,
                "imbalance": round(imbalance(epochs.whereabouts, meter.rates, epochs.workers), 3),
                "bytesMoved": meter.bytes_moved,
                "migration": None if migration is None else str(migration),
            },
        }


def _log(level: int, line: dict[str, Any]) -> None:
    if PROGRESS.isEnabledFor(level):
        PROGRESS.log(level, "%s", json.dumps(line), extra={"fields": line})
