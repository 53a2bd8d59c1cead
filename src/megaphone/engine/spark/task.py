"""What a task of ours knows: its operator's tie to the control, its query, its epoch and the epoch's plan.

A task knows its query and micro-batch from its local properties, asks the coordinator once for the epoch's plan, and
from then on follows it.  Neighbours: router.py and host.py are what tasks do.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext

from megaphone.configuration import Configuration
from megaphone.dataflow.operators import OperatorSpec
from megaphone.engine.spark.messages import Address, Birth, Key, PlanAnswer, PlanQuestion
from megaphone.engine.spark.rpc import Caller
from megaphone.engine.spark.spawn import executor_id, spawn
from megaphone.errors import PlanError

Partition = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What Spark calls for each partition."""


@dataclass(frozen=True, slots=True)
class Binding:
    """An operator's tie to its control, as its tasks carry it."""

    coordinator: Address
    lease: Address
    secret: str = field(repr=False)
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


KEPT = 16
"""Runs whose last epoch a process of Spark's remembers: it outlives many queries. What it forgets, it asks for."""

_epochs: dict[Key, Epoch] = {}
"""Those asked for last at the end."""

_callers: dict[str, Caller] = {}


def caller_of(binding: Binding) -> Caller:
    return _callers.setdefault(binding.secret, Caller(binding.secret, binding.unix))


def current_epoch(binding: Binding) -> Epoch | None:
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
        known = _ask(binding, key, number, known)
        remember(key, known)
    return known


def remember(key: Key, epoch: Epoch) -> None:
    """Remember the last epoch of a run, but of no earlier run of its query, and of no run that was long ago."""
    for old in [other for other in _epochs if other.query == key.query and other.run != key.run]:
        del _epochs[old]
    _epochs.pop(key, None)
    _epochs[key] = epoch
    while len(_epochs) > KEPT:
        del _epochs[next(iter(_epochs))]


def _ask(binding: Binding, key: Key, number: int, known: Epoch | None) -> Epoch:
    question = PlanQuestion(key, number, known.answer.version if known else -1, executor_id())
    answer = caller_of(binding).call(binding.coordinator, "plan", question, PlanAnswer)
    for birth in answer.spawn:
        start_worker(binding, key, birth)
    if known is not None and known.answer.version == answer.version:
        return Epoch(key, answer, known.configuration)
    return Epoch(key, answer, answer.read_configuration())


def start_worker(binding: Binding, key: Key, birth: Birth) -> None:
    """Start a worker here, on the machine this task runs on."""
    spawn(binding.coordinator, binding.lease, binding.secret, binding.unix, key, birth)


def mark(control: str, operator: str) -> str:
    """How an operator's S is called in Spark's plan."""
    return f"megaphone_S__{control}__{operator}"


def marks(plan: str) -> list[tuple[str, str]]:
    """Control and name of every operator in a plan of Spark's, the last operator first.

    >>> marks("MapInArrow megaphone_S__c1__my_count(slot#1, worker#2)#3, [k#4L]")
    [('c1', 'my_count')]
    """
    return list(dict.fromkeys(re.findall(r"\bmegaphone_S__(\w+?)__(\w+)\(", plan)))
