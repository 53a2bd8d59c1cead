"""The local engine: every worker in this process, one epoch after another, nothing left to chance.

The same router, host, controller and epochs as on Spark, without Spark: for trying a fold, and as the ground on which
the one rule is tested.  Neighbours: engine/spark does the same with processes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from megaphone.bins import Bins, WorkerId
from megaphone.checks import worker_count
from megaphone.configuration import Assignment, Configuration, Move
from megaphone.control.controller import Migration
from megaphone.control.epochs import Clock, EpochPlan, Epochs, Report, input_frontier
from megaphone.control.load import Tally
from megaphone.control.plan import Plan
from megaphone.dataflow.exchange import decode, encode
from megaphone.dataflow.hashing import hash_columns
from megaphone.dataflow.hosting import Host
from megaphone.dataflow.operators import OperatorSpec, check_alike
from megaphone.dataflow.records import Records
from megaphone.dataflow.routing import address
from megaphone.dataflow.rows import columns_to_rows, rows_to_batch
from megaphone.dataflow.state import pack, unpack
from megaphone.progress import Time


class LocalEngine:
    """One operator on some workers, all in this process.

    >>> import pyarrow as pa
    >>> from megaphone.dataflow.operators import Input, key_operator
    >>> words = Input(pa.schema([("word", pa.string())]), keys=("word",))
    >>> count = lambda word, _, n: ((n or 0) + 1, [(word, (n or 0) + 1)])
    >>> output = pa.schema([("word", pa.string()), ("n", pa.int64())])
    >>> engine = LocalEngine(key_operator("count", words, count, output, dict), workers=2, bins=4)
    >>> engine.epoch([("a",), ("b",)]), engine.epoch([("a",)])
    ([Row(word='a', n=1), Row(word='b', n=1)], [Row(word='a', n=2)])
    """

    def __init__(self, spec: OperatorSpec, workers: int, bins: int) -> None:
        """Start with bins dealt round."""
        check_alike(spec.name, spec.inputs)
        self.spec = spec
        self.bins = Bins.of_count(bins)
        bins = self.bins.count
        workers = worker_count(workers, bins)
        initial = Assignment.round_robin(bins, workers)
        self._clock: Clock = "epoch" if spec.by_epoch else "column"
        self.epochs = Epochs(initial, workers, {spec.name: (self._clock, len(spec.inputs))})
        self.hosts = {
            WorkerId(worker): Host(WorkerId(worker), spec.fold, bins, initial.bins_of(WorkerId(worker)))
            for worker in range(workers)
        }

    def migrate(self, plan: Plan) -> Migration:
        """Follow a plan from the next epoch on."""
        return self.epochs.submit(plan)

    def epoch(self, *inputs: Sequence[Sequence[Any]]) -> list[Any]:
        """Run one epoch over the rows of each input; the output rows, by worker."""
        return self._run(inputs, closing=False)

    def close(self) -> list[Any]:
        """End the inputs: everything pending falls due, and migrations under way come to their end."""
        return self._run([[] for _ in self.spec.inputs], closing=True) + self.settle()

    def settle(self, most: int = 10_000) -> list[Any]:
        """Run empty epochs until nothing is left to migrate."""
        output: list[Any] = []
        for _ in range(most):
            if not self.epochs.wants_epoch:
                return output
            output += self.epoch(*([] for _ in self.spec.inputs))
        raise TimeoutError(f"migration not complete after {most} epochs")

    def _run(self, inputs: Sequence[Sequence[Sequence[Any]]], closing: bool) -> list[Any]:
        plan = self.epochs.open(self.epochs.epoch + 1, closing)
        mine = plan.operators[self.spec.name]
        self._move(mine.moves)
        seen = list(mine.seen)
        for number, rows in enumerate(inputs):
            records = self._records(number, rows, plan.epoch)
            seen[number] = Time(max([seen[number], *records.times.tolist()]))
            for worker, routed in address(_configuration(plan), records):
                for part in decode(encode([routed], self.spec.inputs[number].time), self.spec.inputs[number].schema):
                    self.hosts[worker].receive(part, number)
        lateness = [input.lateness for input in self.spec.inputs]
        frontier = input_frontier(self._clock, plan.epoch, plan.closing, seen, lateness, mine.frontier)
        output: list[Any] = []
        reports = []
        for worker, host in self.hosts.items():
            host.unhold()
            host.applied[:] = 0
            host.watch.spent[:] = 0
            for bin, time in mine.holds:
                host.hold(bin, time)
            outcome = host.advance(frontier)
            output += columns_to_rows(outcome.output)
            by_bin, spent = Tally.of_all(host.applied), Tally.of_all(host.watch.spent)
            bound = host.output_frontier.bound
            reports.append(Report(worker, bound, outcome.applied, outcome.late, by_bin=by_bin, spent=spent))
        self.epochs.report(self.spec.name, plan.epoch, reports, seen, frontier.bound)
        return output

    def _records(self, number: int, rows: Sequence[Sequence[Any]], epoch: int) -> Records:
        input = self.spec.inputs[number]
        data = rows_to_batch(rows, input.schema)
        hashes = hash_columns([data.column(name) for name in input.keys])
        bins = self.bins.of_hashes(hashes)
        if input.time is None:
            return Records.at(Time(epoch), bins, data)
        return Records(bins, input.times(data.column(input.time)), data)

    def _move(self, moves: Iterable[Move]) -> None:
        for parcel in list(self._released(moves)):
            target, packed = parcel
            self.hosts[target].install(unpack(packed.bin, [bytearray(part) for part in packed.parts]))

    def _released(self, moves: Iterable[Move]) -> Iterator[tuple[WorkerId, Any]]:
        for move in moves:
            yield move.target, pack(self.hosts[move.source].release(move.bin))


def _configuration(plan: EpochPlan) -> Configuration:
    return Configuration.of(plan.configuration)
