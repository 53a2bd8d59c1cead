"""Metrics in the text form of Prometheus, from a status. docs/operations.md has them name by name.

Neighbours: status.py is what there is to tell; the engine's desk serves it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from megaphone.service.status import Status

KIND = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of one metric."""

    metric: str
    value: float
    labels: Labels


METRICS = {
    "megaphone_epoch": ("gauge", "The epoch that is open: Spark's batch id."),
    "megaphone_epoch_seconds": ("gauge", "From the beginning of the last epoch to that of this one."),
    "megaphone_records_applied_total": ("counter", "Records applied, by operator."),
    "megaphone_records_late_total": ("counter", "Records that came behind the frontier and were not applied."),
    "megaphone_output_frontier": ("gauge", "Everything earlier is applied; absent while open or closed."),
    "megaphone_frontier_lag": ("gauge", "The newest time seen less the output frontier; absent by epochs."),
    "megaphone_state_bytes": ("gauge", "Bytes of state, measured or assumed, by operator."),
    "megaphone_state_measured_ratio": ("gauge", "The part of the bins whose size was measured, from 0 to 1."),
    "megaphone_workers": ("gauge", "Workers that are there."),
    "megaphone_worker_bins": ("gauge", "Bins that a worker owns."),
    "megaphone_worker_records_per_second": ("gauge", "Records a second that a worker applies, lately."),
    "megaphone_worker_busy_ratio": ("gauge", "The part of its time that a worker applies records, from 0 to 1."),
    "megaphone_worker_state_bytes": ("gauge", "Bytes of state of a worker, measured or assumed."),
    "megaphone_worker_memory_bytes": ("gauge", "Bytes of memory that a worker's process has."),
    "megaphone_imbalance_ratio": ("gauge", "The busiest worker's records over the mean of all; 1 is even."),
    "megaphone_moved_bytes_total": ("counter", "Bytes of state that have moved between workers."),
    "megaphone_move_bytes_per_second": ("gauge", "How fast bins have travelled lately, or are assumed to."),
    "megaphone_migrations_total": ("counter", "Migrations that have ended, by how: done, cancelled or failed."),
    "megaphone_migration_bins": ("gauge", "Bins of the migration under way; 0 if there is none."),
    "megaphone_migration_bins_moved": ("gauge", "Bins of it that have arrived."),
    "megaphone_migration_paused": ("gauge", "1 while the migration under way is paused, else 0."),
    "megaphone_recoveries_total": ("counter", "How often a worker took bins from the checkpoint."),
}


def exposition(statuses: Iterable[Status]) -> str:
    """All metrics of some queries."""
    samples = [sample for status in statuses for sample in _samples(status)]
    return "".join(_family(metric, [s for s in samples if s.metric == metric]) for metric in METRICS)


def _family(metric: str, samples: Iterable[Sample]) -> str:
    kind, about = METRICS[metric]
    lines = [f"{metric}{_labels(sample.labels)} {sample.value!r}\n" for sample in samples]
    return f"# HELP {metric} {about}\n# TYPE {metric} {kind}\n{''.join(lines)}" if lines else ""


def _labels(labels: Labels) -> str:
    told = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{told}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _samples(status: Status) -> Iterator[Sample]:
    query = {"query": status.query, "name": status.name or "", "control": status.control}
    for metric, value in _of_query(status).items():
        yield Sample(metric, value, query)
    for operator, frontier in status.frontiers.items():
        labels = {**query, "operator": operator}
        yield Sample("megaphone_records_applied_total", status.applied[operator], labels)
        yield Sample("megaphone_records_late_total", status.late[operator], labels)
        yield Sample("megaphone_state_bytes", status.state_bytes.get(operator, 0), labels)
        if frontier.lstrip("-").isdecimal():
            yield Sample("megaphone_output_frontier", int(frontier), labels)
        if operator in status.lags:
            yield Sample("megaphone_frontier_lag", status.lags[operator], labels)
    for worker in status.workers:
        labels = {**query, "worker": str(worker.worker), "host": worker.host}
        yield Sample("megaphone_worker_bins", worker.bins, labels)
        yield Sample("megaphone_worker_records_per_second", worker.records_per_s, labels)
        yield Sample("megaphone_worker_busy_ratio", worker.busy, labels)
        yield Sample("megaphone_worker_state_bytes", worker.state_bytes, labels)
        if worker.memory_bytes is not None:
            yield Sample("megaphone_worker_memory_bytes", worker.memory_bytes, labels)
    for phase in ("done", "cancelled", "failed"):
        ended = status.migrations.get(phase, 0)
        yield Sample("megaphone_migrations_total", ended, {**query, "phase": phase})


def _of_query(status: Status) -> dict[str, float]:
    migration = status.migration
    return {
        "megaphone_epoch": status.epoch,
        "megaphone_epoch_seconds": status.last_epoch_s,
        "megaphone_state_measured_ratio": status.measured,
        "megaphone_workers": len(status.workers),
        "megaphone_imbalance_ratio": status.imbalance,
        "megaphone_moved_bytes_total": status.bytes_moved,
        "megaphone_move_bytes_per_second": status.bytes_per_s,
        "megaphone_migration_bins": migration.bins if migration else 0,
        "megaphone_migration_bins_moved": migration.bins_moved if migration else 0,
        "megaphone_migration_paused": int(migration is not None and migration.phase == "paused"),
        "megaphone_recoveries_total": len(status.recoveries),
    }
