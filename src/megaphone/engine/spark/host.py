"""S, on the reduce side: the epoch's records of a slot handed to its workers, their outputs given out.

On a batch DataFrame there is no query: then S hosts the bins itself, for a single epoch.
From: the shuffle.  To: feed.py, and rows to whatever comes after.  Paper: the migration mechanism.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext

from megaphone.bins import WorkerId
from megaphone.control.epochs import OperatorPlan, input_frontier
from megaphone.dataflow import exchange
from megaphone.dataflow.native import host_for
from megaphone.engine.spark.feed import Feed
from megaphone.engine.spark.messages import FrontierQuestion, ReportMessage
from megaphone.engine.spark.process import leave_quietly, settle_in
from megaphone.engine.spark.task import Binding, Epoch, Partition, caller_of, current_epoch, mark
from megaphone.errors import FoldError, ProtocolError
from megaphone.faults import reach
from megaphone.progress import BEGIN, CLOSED, END, Frontier, Time


def hoster(binding: Binding) -> Partition:
    """S as Spark calls it; its name marks the operator in Spark's plan."""

    def megaphone_S(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle_in()
        leave_quietly()
        try:
            yield from host(binding, batches)
        except FoldError as error:
            # The user's own traceback is in the message; ours would only bury it.
            raise error.with_traceback(None) from None

    megaphone_S.__name__ = mark(binding.control, binding.spec.name)
    return megaphone_S


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
    epoch = current_epoch(binding)
    if epoch is None:
        yield from _host_here(binding, batches)
        return
    plan = epoch.answer.operators[binding.spec.name]
    delivery = _receive(len(plan.seen), plan.seen, batches)
    reached = [_reached(binding, epoch, input, seen) for input, seen in enumerate(delivery.seen)]
    # What an operator before this one gives out may be post-dated: such times say nothing of how far the input is.
    seen = tuple(map(min, delivery.seen, reached))
    frontier = _frontier(binding, epoch, plan, reached)
    mine = _workers_of_slot(binding, epoch, delivery)
    if plan.frontier == END and delivery.payloads:
        raise ProtocolError(
            f"records of operator {binding.spec.name} in epoch {epoch.answer.epoch}, after its inputs were closed: "
            f"for workers {sorted(delivery.payloads)}"
        )
    feed = Feed(binding, epoch, plan, frontier, seen)
    reach("before-feed", bool(plan.moves))
    with ThreadPoolExecutor(max_workers=max(1, len(mine))) as pool:
        fed = list(pool.map(lambda worker: feed(worker, delivery.payloads.get(worker, [])), mine))
    reach("after-feed", bool(plan.moves))
    # Before the outputs: who reads them may stop early.
    reports, times = [report for _, report in fed], [int(time) for time in seen]
    message = ReportMessage(epoch.key, binding.spec.name, epoch.answer.epoch, reports, times, frontier.bound)
    caller_of(binding).call(binding.coordinator, "report", message, type(None))
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


def _reached(binding: Binding, epoch: Epoch, input: int, seen: Time) -> Time:
    """How far an input has come: the operators before it know, if there are any, else its newest record says it."""
    if binding.spec.by_epoch or not binding.upstream[input]:
        return seen
    # Every task of the operators before this one is done: a shuffle lies between.
    question = FrontierQuestion(epoch.key, list(binding.upstream[input]))
    return Time(caller_of(binding).call(binding.coordinator, "frontier", question, int))


def _frontier(binding: Binding, epoch: Epoch, plan: OperatorPlan, reached: Sequence[Time]) -> Frontier:
    """The input frontier after this epoch: the same in every slot, since all saw what every F sent."""
    answer = epoch.answer
    if binding.spec.by_epoch:
        return input_frontier("epoch", answer.epoch, answer.closing, (), (), plan.frontier)
    promises = (_promise(binding, epoch, input, time) for input, time in enumerate(reached))
    return max(min(promises), Frontier(plan.frontier))


def _promise(binding: Binding, epoch: Epoch, input: int, reached: Time) -> Frontier:
    """What may still come on one input."""
    closing = reached == END if binding.upstream[input] else epoch.answer.closing
    lateness = binding.spec.inputs[input].lateness
    return input_frontier("column", epoch.answer.epoch, closing, [reached], [lateness], BEGIN)


def _host_here(binding: Binding, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A batch DataFrame: one epoch, every bin of this slot in this task, and then the inputs are closed."""
    inputs = binding.spec.inputs
    delivery = _receive(len(inputs), (BEGIN,) * len(inputs), batches)
    every: npt.NDArray[np.int64] = np.arange(binding.bins)
    for worker, payloads in delivery.payloads.items():
        bins = host_for(worker, binding.spec.fold, binding.bins, every)
        for kind, payload in payloads:
            for part in exchange.decode(payload, inputs[kind].schema):
                bins.receive(part, kind)
        yield bins.advance(CLOSED).output
