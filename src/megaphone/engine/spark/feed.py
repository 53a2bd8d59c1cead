"""Feeding a worker its records of an epoch, wherever it is, and whoever has taken its place.

From: host.py.  To: worker.py, over Flight.  Neighbours: attention.py waits, placement.py says who is the worker.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from megaphone.bins import WorkerId
from megaphone.control.epochs import OperatorPlan, Report
from megaphone.engine.spark.attention import Attended
from megaphone.engine.spark.messages import (
    AliveQuestion,
    ApplyRequest,
    Orders,
    PlaceAnswer,
    PlaceQuestion,
    Seat,
    dump,
    load,
)
from megaphone.engine.spark.orders import orders_for
from megaphone.engine.spark.rpc import PAYLOADS, Caller, raise_own
from megaphone.engine.spark.spawn import executor_id
from megaphone.engine.spark.task import Binding, Epoch, caller_of, start_worker
from megaphone.errors import WorkerLost
from megaphone.progress import Frontier, Time

TRIES = 5
"""How often a worker may be lost in one epoch before the query fails for it: a fold may be what kills it."""


class Feed:
    """Feeds one epoch to a worker, wherever it is; if it is lost, to the one that takes its place."""

    def __init__(
        self, binding: Binding, epoch: Epoch, plan: OperatorPlan, frontier: Frontier, seen: tuple[Time, ...]
    ) -> None:
        self._binding = binding
        self._epoch = epoch
        self._plan = plan
        self._frontier = frontier
        self._seen = [int(time) for time in seen]
        self._seats = dict(epoch.answer.seats)
        self._caller = caller_of(binding)

    def __call__(self, worker: WorkerId, payloads: list[tuple[int, pa.Buffer]]) -> tuple[list[pa.RecordBatch], Report]:
        for _ in range(TRIES - 1):
            seat, orders = self._seat_of(worker), self._orders(worker)
            try:
                return self._feed(worker, seat, orders, payloads)
            except WorkerLost:
                self._seats[worker] = self._place(worker, seat.incarnation)
        return self._feed(worker, self._seat_of(worker), self._orders(worker), payloads)

    def _orders(self, worker: WorkerId) -> Orders:
        return orders_for(worker, self._binding.spec.name, self._epoch.answer.epoch, self._plan, self._seat_of)

    def _feed(
        self, worker: WorkerId, seat: Seat, orders: Orders, payloads: list[tuple[int, pa.Buffer]]
    ) -> tuple[list[pa.RecordBatch], Report]:
        request = ApplyRequest(seat.incarnation, orders, self._frontier.bound, self._seen, len(payloads))
        call = Attended(lambda: _exchange(self._caller, seat, request, payloads))
        question = AliveQuestion(self._epoch.key, worker, seat.incarnation)
        return call.result(lambda: self._caller.call(self._binding.coordinator, "alive", question, bool))

    def _seat_of(self, worker: WorkerId) -> Seat:
        if worker not in self._seats:
            self._seats[worker] = self._place(worker)
        return self._seats[worker]

    def _place(self, worker: WorkerId, lost: int = -1) -> Seat:
        binding, key = self._binding, self._epoch.key
        question = PlaceQuestion(key, worker, executor_id(), lost)
        for _ in range(TRIES):
            answer = self._caller.call(binding.coordinator, "place", question, PlaceAnswer)
            if answer.seat is not None:
                return answer.seat
            assert answer.birth is not None
            start_worker(binding, key, answer.birth)
        raise WorkerLost(f"worker {worker} could not be started here")


def _exchange(
    caller: Caller, seat: Seat, request: ApplyRequest, payloads: list[tuple[int, pa.Buffer]]
) -> tuple[list[pa.RecordBatch], Report]:
    descriptor = flight.FlightDescriptor.for_command(dump(request))
    try:
        with caller.client(seat.address) as client:
            writer, reader = client.do_exchange(descriptor, caller.options)
            writer.begin(PAYLOADS)
            for kind, payload in payloads:
                writer.write_batch(payload_batch(kind, payload))
            writer.done_writing()
            return read_outputs(reader)
    except flight.FlightError as error:
        raise_own(error)


def payload_batch(kind: int, payload: pa.Buffer) -> pa.RecordBatch:
    """A payload as it crosses to a worker, without a copy."""
    offsets = pa.py_buffer(np.array([0, payload.size], np.int32))
    binary = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, payload])
    return pa.record_batch([pa.array([kind], pa.int32()), binary], schema=PAYLOADS)


def read_outputs(reader: Any) -> tuple[list[pa.RecordBatch], Report]:
    """A worker's answer: output rows, and its report at the end."""
    outputs, report = [], None
    for chunk in reader:
        if chunk.data is not None and chunk.data.num_rows:
            outputs.append(chunk.data)
        if chunk.app_metadata is not None:
            report = load(chunk.app_metadata.to_pybytes(), Report)
    if report is None:
        raise WorkerLost("a worker ended its answer without a report")
    return outputs, report
