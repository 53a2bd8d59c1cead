"""Observation: what a policy sees of a running query, as plain data.

Rates fade (load.py), and fade on when no epoch comes. The bins are where they will be when all that was accepted is
done.  From: epochs.py and meter.py.  To: the policies, and those outside who read it as JSON.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from megaphone.configuration import Assignment
from megaphone.control.epochs import Epochs
from megaphone.control.load import Load, Numbers, Rates


@dataclass(frozen=True, slots=True)
class Flow:
    """What one operator gets to do, and what that takes.

    >>> flow = Flow(arrived=3000, applied=2000, work=0.5)
    >>> flow.true_rate, flow.demand
    (4000.0, 0.75)
    """

    arrived: float
    """Records a second that come in."""
    applied: float
    """Records a second that are applied: fewer, while the operator falls behind."""
    work: float
    """Seconds of workers' time in a second; above 1 if it keeps more than one busy."""

    @property
    def true_rate(self) -> float:
        """Records that a worker applies in a second of its own time, without what it waits."""
        return self.applied / self.work if self.work else math.inf

    @property
    def demand(self) -> float:
        """Seconds of workers' time in a second that it would take to apply all that comes in."""
        return self.arrived / self.true_rate if self.true_rate else 0.0


@dataclass(frozen=True, slots=True)
class Observation:
    """A running query at a moment, by a clock that never goes back."""

    at_s: float
    epoch: int
    workers: int
    moving: bool
    """Is a migration under way?"""
    assignment: Assignment
    records: Rates
    """Records a second of each bin, over all operators."""
    work: Rates
    """Seconds of a worker's time that each bin takes in a second, over all operators."""
    sizes: Numbers
    """Bytes of each bin, as far as measured; the others are assumed to be as large."""
    flows: Mapping[str, Flow]
    """By operator."""

    @classmethod
    def of(cls, epochs: Epochs, at_s: float) -> "Observation":
        """What is known now."""
        meter, controller = epochs.meter, epochs.controller
        left = min((load.faded(meter.idle_s) for load in meter.loads.values()), default=0.0)
        return cls(
            at_s,
            epochs.epoch,
            epochs.workers,
            controller.current is not None,
            controller.expected,
            meter.rates * left,
            meter.work * left,
            meter.sizes,
            {name: _flow(load, left) for name, load in meter.loads.items()},
        )

    def to_json(self) -> str:
        """As text, for programs: a list has a number for each bin."""
        told = {
            "megaphone_observation": 1,
            "epoch": self.epoch,
            "workers": self.workers,
            "moving": self.moving,
            "owners": self.assignment.owners.tolist(),
            "records_per_s": self.records.round(3).tolist(),
            "busy": self.work.round(6).tolist(),
            "bytes": self.sizes.tolist(),
            "operators": {
                name: {
                    "arrived_per_s": round(flow.arrived, 3),
                    "applied_per_s": round(flow.applied, 3),
                    "busy": round(flow.work, 6),
                }
                for name, flow in self.flows.items()
            },
        }
        return json.dumps(told)


def _flow(load: Load, left: float) -> Flow:
    return Flow(load.arrived * left, float(load.rates.sum()) * left, float(load.work.sum()) * left)
