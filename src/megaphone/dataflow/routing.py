"""F, the router.

A record goes to the worker that the configuration names for its bin at its time. Nothing is held back here, because
the configuration of an epoch is complete when it begins (decisions/0003).  Paper: the migration mechanism.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from megaphone.bins import BinArray, WorkerId
from megaphone.configuration import Configuration
from megaphone.dataflow.records import Records, argsort, runs


def address(configuration: Configuration, records: Records) -> Iterator[tuple[WorkerId, Records]]:
    """The records of each worker, in their order of arrival."""
    if not len(records):
        return
    times = records.times[0] if records.at_one_time else records.times
    yield from _split(configuration.owners(times, records.bins), records)


def worker_of_hashes(workers: int, hashes: npt.NDArray[np.int64]) -> BinArray:
    """The worker of each hash, of a native operator: it takes the place of a bin."""
    return (hashes.view(np.uint64) % np.uint64(workers)).astype(np.uint32)


def by_worker(records: Records) -> Iterator[tuple[WorkerId, Records]]:
    """The records of each worker, of a native operator: what would be their bin says who it is."""
    for worker, part in _split(records.bins, records):
        yield worker, replace(part, bins=np.broadcast_to(np.uint32(worker), len(part)))


def _split(owners: npt.NDArray[Any], records: Records) -> Iterator[tuple[WorkerId, Records]]:
    if (owners == owners[0]).all():
        yield WorkerId(int(owners[0])), records
        return
    order = argsort(owners)
    routed, owners = records.take(order), owners.take(order)
    for start, stop in runs(owners):
        yield WorkerId(int(owners[start])), routed.slice(start, stop)
