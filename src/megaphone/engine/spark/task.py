"""What runs in Spark's tasks: F on the map side, S on the reduce side.

A task knows its query and micro-batch from its local properties, asks the coordinator once for the epoch's plan, and
from then on follows it. On a batch DataFrame there is no query: then S hosts the bins itself, for a single epoch.
From: operators.py.  To: worker.py.
"""

import gc
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.flight as flight
from pyspark import TaskContext

from megaphone.bins import Bins, WorkerId
from megaphone.configuration import Assignment, Configuration
from megaphone.control.epochs import OperatorPlan, Report, input_frontier
from megaphone.dataflow import exchange
from megaphone.dataflow.hosting import Host
from megaphone.dataflow.operators import OperatorSpec
from megaphone.dataflow.records import Records
from megaphone.dataflow.routing import address
from megaphone.engine.spark.messages import (
    Address,
    ApplyRequest,
    FrontierQuestion,
    Key,
    PlaceAnswer,
    PlaceQuestion,
    PlanAnswer,
    PlanQuestion,
    ReportMessage,
    dump,
    load,
)
from megaphone.engine.spark.orders import orders_for
from megaphone.engine.spark.rpc import Caller, raise_own
from megaphone.engine.spark.spawn import executor_id, spawn
from megaphone.errors import FoldError, PlanError, ProtocolError, WorkerLost
from megaphone.progress import BEGIN, CLOSED, END, Frontier, Time

GATHER_BYTES = 1 << 20
"""F works on about this much at once: Spark's batches of 10,000 rows are too small to be worth a round of NumPy."""

PAYLOADS = pa.schema([("kind", pa.int32()), ("payload", pa.binary())])


@dataclass(frozen=True, slots=True)
class Binding:
    """An operator's tie to its control, as its tasks carry it."""

    coordinator: Address
    lease: Address
    secret: str
    unix: bool
    control: str
    bins: int
    slots: int
    spec: OperatorSpec
    streaming: bool
    upstream: tuple[tuple[tuple[str, str], ...], ...]
    """For each input, control and name of the operators that tell time as this one does and that it reads from."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch as a task sees it."""

    key: Key
    answer: PlanAnswer
    configuration: Configuration


_epochs: dict[Key, Epoch] = {}
_callers: dict[str, Caller] = {}


def _caller(binding: Binding) -> Caller:
    return _callers.setdefault(binding.secret, Caller(binding.secret, binding.unix))


def _current(binding: Binding) -> Epoch | None:
    """The plan of the epoch this task belongs to; none on a batch DataFrame. Asked for once a process."""
    if not binding.streaming:
        return None
    context = TaskContext.get()
    assert context is not None
    query = context.getLocalProperty("sql.streaming.queryId")
    if query is None:
        raise PlanError(
            f"operator {binding.spec.name} of a streaming query runs in a job that does not know its query; "
            "in foreachBatch, start threads with pyspark.InheritableThread"
        )
    key = Key(query, context.getLocalProperty("spark.jobGroup.id") or "", binding.control)
    number = int(context.getLocalProperty("streaming.sql.batchId") or 0)
    known = _epochs.get(key)
    if known is None or known.answer.epoch != number:
        for old in [other for other in _epochs if other.query == query and other.run != key.run]:
            del _epochs[old]
        known = _epochs[key] = _ask(binding, key, number, known)
    return known


def _ask(binding: Binding, key: Key, number: int, known: Epoch | None) -> Epoch:
    question = PlanQuestion(key, number, known.answer.version if known else -1, executor_id())
    answer = _caller(binding).call(binding.coordinator, "plan", question, PlanAnswer)
    for worker in answer.spawn:
        spawn(binding.coordinator, binding.lease, binding.secret, binding.unix, key, worker)
    if known is not None and known.answer.version == answer.version:
        return Epoch(key, answer, known.configuration)
    return Epoch(key, answer, answer.read_configuration())


def route(binding: Binding, input: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """F: address every record of a partition, and tell every slot the largest time seen."""
    epoch = _current(binding)
    configuration = epoch.configuration if epoch else _single_epoch_configuration(binding)
    read = _Reader(binding, input, epoch.answer.epoch if epoch else 0)
    waiting: dict[WorkerId, list[Records]] = defaultdict(list)
    size: dict[WorkerId, int] = defaultdict(int)
    seen = BEGIN
    for batch in _gather(batches):
        records = read(batch)
        if not records.at_one_time:
            seen = Time(max(seen, int(records.times.max())))
        for worker, routed in address(configuration, records):
            waiting[worker].append(routed)
            size[worker] += routed.data.get_total_buffer_size() // max(1, len(records) // max(1, len(routed)))
            if size[worker] >= exchange.PAYLOAD_BYTES:
                yield exchange.data_row(worker, binding.slots, input, waiting.pop(worker))
                del size[worker]
    for worker, parts in waiting.items():
        yield exchange.data_row(worker, binding.slots, input, parts)
    yield from exchange.frontier_rows(binding.slots, input, seen)


def _single_epoch_configuration(binding: Binding) -> Configuration:
    return Configuration(Assignment.round_robin(binding.bins, binding.slots))


def _gather(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= GATHER_BYTES:
            yield pa.concat_batches(held)
            held, size = [], 0
    if held:
        yield pa.concat_batches(held)


class _Reader:
    """Turns Spark's rows (user columns, hash, time) into records."""

    def __init__(self, binding: Binding, input: int, epoch: int) -> None:
        self._bins = Bins.of_count(binding.bins)
        self._input = binding.spec.inputs[input]
        self._epoch = Time(epoch)

    def __call__(self, batch: pa.RecordBatch) -> Records:
        bins = self._bins.of_hashes(batch.column(exchange.HASH).to_numpy())
        data = pa.record_batch(batch.columns[: len(self._input.schema)], schema=self._input.schema)
        if self._input.time is None:
            return Records.at(self._epoch, bins, data)
        return Records(bins, self._input.times(batch.column(exchange.TIME)), data)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What reached one slot in one epoch: payloads by worker, and the largest time seen on each input."""

    slot: int | None
    """None if nothing came at all, not even a word from an F."""
    payloads: dict[WorkerId, list[tuple[int, pa.Buffer]]]
    seen: tuple[Time, ...]


def _receive(inputs: int, before: tuple[Time, ...], batches: Iterator[pa.RecordBatch]) -> Delivery:
    payloads: dict[WorkerId, list[tuple[int, pa.Buffer]]] = defaultdict(list)
    seen = list(before)
    slot: int | None = None
    for batch in batches:
        slot = batch.column(0)[0].as_py() if batch.num_rows else slot
        workers, kinds = batch.column(1).to_pylist(), batch.column(2).to_pylist()
        for row, (worker, kind) in enumerate(zip(workers, kinds, strict=True)):
            payload = batch.column(3)[row].as_buffer()
            if kind >= exchange.FRONTIER:
                input = kind - exchange.FRONTIER
                seen[input] = max(seen[input], exchange.seen_of(payload.to_pybytes()))
            else:
                payloads[WorkerId(worker)].append((kind, payload))
    return Delivery(slot, payloads, tuple(seen[:inputs]))


def host(binding: Binding, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """S: hand the epoch's records to the workers of this slot, and give their outputs out."""
    epoch = _current(binding)
    if epoch is None:
        yield from _host_here(binding, batches)
        return
    plan = epoch.answer.operators[binding.spec.name]
    delivery = _receive(len(plan.seen), plan.seen, batches)
    frontier = _frontier(binding, epoch, plan, delivery)
    mine = _workers_of_slot(binding, epoch, delivery)
    feed = _Feed(binding, epoch, plan, frontier)
    with ThreadPoolExecutor(max_workers=max(1, len(mine))) as pool:
        fed = list(pool.map(lambda worker: feed(worker, delivery.payloads.get(worker, [])), mine))
    # Before the outputs: who reads them may stop early.
    reports, seen = [report for _, report in fed], [int(time) for time in delivery.seen]
    message = ReportMessage(epoch.key, binding.spec.name, epoch.answer.epoch, reports, seen, frontier.bound)
    _caller(binding).call(binding.coordinator, "report", message, type(None))
    for outputs, _ in fed:
        yield from outputs


def _workers_of_slot(binding: Binding, epoch: Epoch, delivery: Delivery) -> list[WorkerId]:
    """The workers this task feeds. The rows say which slot it is: behind a union or a coalesce, Spark counts anew."""
    slot = delivery.slot
    if slot is None:
        slot = TaskContext.get().partitionId() % binding.slots  # type: ignore[union-attr]
    mine = [WorkerId(worker) for worker in epoch.answer.workers if worker % binding.slots == slot]
    if strangers := delivery.payloads.keys() - set(mine):
        raise ProtocolError(
            f"records for workers {sorted(strangers)} came to slot {slot} of operator {binding.spec.name} "
            f"in epoch {epoch.answer.epoch}"
        )
    return mine


def _frontier(binding: Binding, epoch: Epoch, plan: OperatorPlan, delivery: Delivery) -> Frontier:
    """The input frontier after this epoch: the same in every slot, since all saw what every F sent."""
    answer = epoch.answer
    if binding.spec.by_epoch:
        return input_frontier("epoch", answer.epoch, answer.closing, (), (), plan.frontier)
    promises = (_promise(binding, epoch, input, seen) for input, seen in enumerate(delivery.seen))
    return max(min(promises), Frontier(plan.frontier))


def _promise(binding: Binding, epoch: Epoch, input: int, seen: Time) -> Frontier:
    """What may still come on one input: the operators before it know, if there are any, else its source."""
    closing = epoch.answer.closing
    if binding.upstream[input]:
        # Every task of the operators before this one is done: a shuffle lies between.
        question = FrontierQuestion(epoch.key, list(binding.upstream[input]))
        seen = Time(_caller(binding).call(binding.coordinator, "frontier", question, int))
        closing = seen == END
    lateness = binding.spec.inputs[input].lateness
    return input_frontier("column", epoch.answer.epoch, closing, [seen], [lateness], BEGIN)


class _Feed:
    """Feeds one epoch to a worker, wherever it is."""

    def __init__(self, binding: Binding, epoch: Epoch, plan: OperatorPlan, frontier: Frontier) -> None:
        self._binding = binding
        self._epoch = epoch
        self._plan = plan
        self._frontier = frontier
        self._addresses = dict(epoch.answer.addresses)
        self._caller = _caller(binding)

    def __call__(self, worker: WorkerId, payloads: list[tuple[int, pa.Buffer]]) -> tuple[list[pa.RecordBatch], Report]:
        number = self._epoch.answer.epoch
        orders = orders_for(worker, self._binding.spec.name, number, self._plan, self._address_of)
        request = ApplyRequest(orders, self._frontier.bound, len(payloads))
        descriptor = flight.FlightDescriptor.for_command(dump(request))
        client = self._caller.client(self._address_of(worker))
        try:
            writer, reader = client.do_exchange(descriptor, self._caller.options)
            writer.begin(PAYLOADS)
            for kind, payload in payloads:
                writer.write_batch(_payload_batch(kind, payload))
            writer.done_writing()
            return _read_outputs(reader)
        except flight.FlightError as error:
            raise_own(error)

    def _address_of(self, worker: WorkerId) -> Address:
        if worker not in self._addresses:
            self._addresses[worker] = self._place(worker)
        return self._addresses[worker]

    def _place(self, worker: WorkerId) -> Address:
        binding, key = self._binding, self._epoch.key
        question = PlaceQuestion(key, worker, executor_id())
        for _ in range(2):
            answer = self._caller.call(binding.coordinator, "place", question, PlaceAnswer)
            if answer.address is not None:
                return answer.address
            spawn(binding.coordinator, binding.lease, binding.secret, binding.unix, key, worker)
        raise WorkerLost(f"worker {worker} could not be started here")


def _payload_batch(kind: int, payload: pa.Buffer) -> pa.RecordBatch:
    offsets = pa.py_buffer(np.array([0, payload.size], np.int32))
    binary = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, payload])
    return pa.record_batch([pa.array([kind], pa.int32()), binary], schema=PAYLOADS)


def _read_outputs(reader: Any) -> tuple[list[pa.RecordBatch], Report]:
    outputs, report = [], None
    for chunk in reader:
        if chunk.data is not None and chunk.data.num_rows:
            outputs.append(chunk.data)
        if chunk.app_metadata is not None:
            report = load(chunk.app_metadata.to_pybytes(), Report)
    if report is None:
        raise WorkerLost("a worker ended its answer without a report")
    return outputs, report


def _host_here(binding: Binding, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A batch DataFrame: one epoch, every bin of this slot in this task, and then the inputs are closed."""
    inputs = binding.spec.inputs
    delivery = _receive(len(inputs), (BEGIN,) * len(inputs), batches)
    every: npt.NDArray[np.int64] = np.arange(binding.bins)
    for worker, payloads in delivery.payloads.items():
        bins = Host(worker, binding.spec.fold, binding.bins, every)
        for kind, payload in payloads:
            for part in exchange.decode(payload, inputs[kind].schema):
                bins.receive(part, kind)
        yield bins.advance(CLOSED).output


@cache
def _settle_in() -> None:
    """Take everything this process has loaded out of the garbage collector's sight, once.

    Spark has a Python process collect garbage after every task: 20 ms each time for modules that stay anyway.
    """
    gc.collect()
    gc.freeze()


Partition = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def router(binding: Binding, input: int) -> Partition:
    """F as Spark calls it."""

    def megaphone_F(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _settle_in()
        yield from route(binding, input, batches)

    return megaphone_F


def hoster(binding: Binding) -> Partition:
    """S as Spark calls it; its name marks the operator in Spark's plan."""

    def megaphone_S(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _settle_in()
        try:
            yield from host(binding, batches)
        except FoldError as error:
            # The user's own traceback is in the message; ours would only bury it.
            raise error.with_traceback(None) from None

    megaphone_S.__name__ = mark(binding.control, binding.spec.name)
    return megaphone_S


def mark(control: str, operator: str) -> str:
    """How an operator's S is called in Spark's plan."""
    return f"megaphone_S__{control}__{operator}"


def marks(plan: str) -> set[tuple[str, str]]:
    """Control and name of every operator in a plan of Spark's.

    >>> marks("MapInArrow megaphone_S__c1__my_count(slot#1, worker#2)#3, [k#4L]")
    {('c1', 'my_count')}
    """
    return set(re.findall(r"\bmegaphone_S__(\w+?)__(\w+)\(", plan))
