"""Views: statuses, bins, plans and migrations as JSON shows them.

Neighbours: the engine's desk answers with them, console.py prints them.
"""

import json
from typing import Any

from megaphone.control.controller import Migration, MigrationSummary
from megaphone.control.plan import Estimate, Plan
from megaphone.service.status import BinsStatus, Status, WorkerStatus

View = dict[str, Any]


def of_migration(migration: Migration | MigrationSummary, left: Estimate | None = None) -> View:
    """A migration, and what is left of it."""
    migration = migration.summary
    return {
        "number": migration.number,
        "phase": migration.phase,
        "strategy": migration.strategy,
        "latency_target": migration.latency_target,
        "gap": migration.gap,
        "steps": migration.steps,
        "steps_completed": migration.completed,
        "bins": migration.bins,
        "bins_moved": migration.bins_moved,
        "bytes_moved": migration.bytes_moved,
        "bytes_left": left.bytes if left else 0,
        "seconds": round(migration.duration_s, 3),
        "seconds_left": _seconds(left) if left else 0.0,
        "not_before": left.not_before if left else None,
        "asked_s": migration.asked_s,
        "began_s": migration.began_s,
        "ended_s": migration.ended_s,
        "reason": migration.reason,
        "text": str(migration),
    }


def of_plan(plan: Plan) -> View:
    """A plan that was only thought through."""
    estimate = plan.estimate
    return {
        "strategy": plan.strategy,
        "bins": len(plan.moves),
        "steps": estimate.steps if estimate else len(plan.steps),
        "bytes": estimate.bytes if estimate else None,
        "bytes_measured": estimate.measured if estimate else None,
        "seconds": _seconds(estimate) if estimate else None,
        "not_before": estimate.not_before if estimate else None,
        "obstacle": estimate.obstacle if estimate else None,
        "text": str(plan),
        "plan": json.loads(plan.to_json()),
    }


def of_status(status: Status, left: Estimate | None = None) -> View:
    """A running query."""
    return {
        "query": status.query,
        "name": status.name,
        "run": status.run,
        "control": status.control,
        "epoch": status.epoch,
        "last_epoch_s": round(status.last_epoch_s, 3),
        "operators": {
            name: {
                "frontier": frontier,
                "applied": status.applied[name],
                "late": status.late[name],
                "state_bytes": status.state_bytes.get(name, 0),
                "lag": status.lags.get(name),
                "unit": status.units.get(name),
            }
            for name, frontier in status.frontiers.items()
        },
        "bins": len(status.assignment),
        "owners": status.assignment.owners.tolist(),
        "imbalance": round(status.imbalance, 3),
        "sizes_measured": round(status.measured, 3),
        "bytes_moved": status.bytes_moved,
        "bytes_per_s": round(status.bytes_per_s),
        "workers": list(map(_worker, status.workers)),
        "migrations": dict(status.migrations),
        "migration": of_migration(status.migration, left) if status.migration else None,
        "recoveries": len(status.recoveries),
    }


def _worker(worker: WorkerStatus) -> View:
    return {
        "worker": worker.worker,
        "host": worker.host,
        "pid": worker.pid,
        "bins": worker.bins,
        "records_per_s": round(worker.records_per_s, 1),
        "busy": round(worker.busy, 4),
        "state_bytes": worker.state_bytes,
        "memory_bytes": worker.memory_bytes,
    }


def of_bins(bins: BinsStatus) -> View:
    """Every bin: where it is and where it will be, its records a second, and its bytes if they were measured."""
    reading = bins.reading
    sizes = zip(reading.sizes.tolist(), reading.known.tolist(), strict=True)
    return {
        "epoch": bins.epoch,
        "owners": bins.whereabouts.owners.tolist(),
        "expected": bins.expected.owners.tolist(),
        "records_per_s": reading.rates.round(1).tolist(),
        "bytes": [size if known else None for size, known in sizes],
    }


def _seconds(estimate: Estimate) -> float | None:
    return None if estimate.seconds is None else round(estimate.seconds, 3)
