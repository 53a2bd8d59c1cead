"""Megaphone for Spark: stateful streaming whose state moves while the query runs.

The map:

    progress, bins, configuration, errors    the vocabulary
    dataflow/    data's way: operators, routing (F), exchange, hosting (S), notificator, state
    control/     control's way: controller, strategies, plan, stream, epochs; policies that decide by themselves
    durability/  what survives: log, snapshots, recovery; inspection and contents look inside
    service/     a running query for those outside: status, HTTP, metrics, who runs on this machine
    dashboard/   the live page, as a browser reads it
    engine/      local: one process, deterministic; spark: the real one
    harness/     open loop, latency, timeline, trial, experiment, report
    cli          the command line

The one rule: a record at time t in bin b is applied on the worker that the configuration names for b at t, and only
after everything earlier, records and moved state, has been applied there.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from megaphone.configuration import Assignment, Move
    from megaphone.control.controller import Migration
    from megaphone.control.plan import Plan, Step
    from megaphone.control.policies.balancer import Balancer
    from megaphone.control.policies.scaler import Scaler
    from megaphone.dataflow.folds import States, vectorised
    from megaphone.dataflow.joint import Joint
    from megaphone.dataflow.records import Records
    from megaphone.engine.local import LocalEngine
    from megaphone.engine.spark.control import Control
    from megaphone.engine.spark.exchanges import Bits
    from megaphone.engine.spark.operators import binary, state_machine, unary
    from megaphone.engine.spark.reader import read_state
    from megaphone.engine.spark.session import tuned
    from megaphone.errors import CheckpointError, FoldError, MegaphoneError, PlanError, ProtocolError, WorkerLost
    from megaphone.service.status import Status

_HOMES = {
    "configuration": ("Assignment", "Move"),
    "control.controller": ("Migration",),
    "control.plan": ("Plan", "Step"),
    "control.policies.balancer": ("Balancer",),
    "control.policies.scaler": ("Scaler",),
    "dataflow.folds": ("States", "vectorised"),
    "dataflow.joint": ("Joint",),
    "dataflow.records": ("Records",),
    "engine.local": ("LocalEngine",),
    "engine.spark.control": ("Control",),
    "engine.spark.exchanges": ("Bits",),
    "engine.spark.operators": ("binary", "state_machine", "unary"),
    "engine.spark.reader": ("read_state",),
    "engine.spark.session": ("tuned",),
    "service.status": ("Status",),
    "errors": ("CheckpointError", "FoldError", "MegaphoneError", "PlanError", "ProtocolError", "WorkerLost"),
}

__all__ = [
    "Assignment",
    "Balancer",
    "Bits",
    "CheckpointError",
    "Control",
    "FoldError",
    "Joint",
    "LocalEngine",
    "MegaphoneError",
    "Migration",
    "Move",
    "Plan",
    "PlanError",
    "ProtocolError",
    "Records",
    "Scaler",
    "States",
    "Status",
    "Step",
    "WorkerLost",
    "binary",
    "read_state",
    "state_machine",
    "tuned",
    "unary",
    "vectorised",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a worker process must not pay for Spark's own modules."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"megaphone.{home}"), name)
    raise AttributeError(f"module 'megaphone' has no attribute {name!r}")
