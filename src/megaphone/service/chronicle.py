"""The chronicle: a line for every epoch, in the manner of Spark's StreamingQueryProgress.

Nothing in it grows with the state. docs/operations.md has it name by name.
Neighbours: the engine notes every epoch that is over; served under /progress, and told to logs.py.
"""

import json
import logging
import time
from collections import deque
from typing import Any

from megaphone.control.balance import imbalance
from megaphone.control.epochs import Epochs
from megaphone.service.logs import PROGRESS, iso

LINES = 1000
"""Epochs that are remembered."""


class Chronicle:
    """The last epochs of one run."""

    def __init__(self, query: str, run: str, name: str | None, control: str) -> None:
        """Begin with none."""
        self._head = {"id": query, "runId": run, "name": name}
        self._control = control
        self._lines: deque[dict[str, Any]] = deque(maxlen=LINES)
        self._before: dict[str, tuple[int, int]] = {}
        self._began_s: float | None = None

    def since(self, epoch: int) -> list[dict[str, Any]]:
        """The epochs after one, oldest first."""
        return [line for line in list(self._lines) if line["batchId"] > epoch]

    def note(self, epochs: Epochs, workers: int) -> None:
        """An epoch was opened, so the one before is over."""
        totals = {name: (operator.applied, operator.late) for name, operator in epochs.operators.items()}
        if self._began_s is not None:
            line = self._line(epochs, totals, workers, time.time() - self._began_s)
            self._lines.append(line)
            if PROGRESS.isEnabledFor(logging.INFO):
                PROGRESS.info("%s", json.dumps(line), extra={"fields": line})
        self._before, self._began_s = totals, time.time()

    def _line(self, epochs: Epochs, totals: dict[str, tuple[int, int]], workers: int, seconds: float) -> dict[str, Any]:
        new = {
            name: (applied - self._before[name][0], late - self._before[name][1])
            for name, (applied, late) in totals.items()
        }
        rows = sum(applied + late for applied, late in new.values())
        migration, meter = epochs.controller.current, epochs.meter
        assert self._began_s is not None
        return {
            **self._head,
            "timestamp": iso(self._began_s),
            "batchId": epochs.epoch - 1,
            "numInputRows": rows,
            "processedRowsPerSecond": round(rows / seconds, 1) if seconds else 0.0,
            "durationMs": {"triggerExecution": round(seconds * 1000)},
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
                "workers": workers,
                "imbalance": round(imbalance(epochs.configuration.last, meter.rates, epochs.workers), 3),
                "bytesMoved": meter.bytes_moved,
                "migration": None if migration is None else str(migration),
            },
        }
