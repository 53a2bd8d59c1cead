"""Any input, any plans, any crashes: the committed outputs are those of a run in which nothing ever failed.

Would catch an epoch redone otherwise than it was done, a record lost or doubled on its way through a checkpoint, a log
that is cut too early or never, and a driver that forgets what it was asked for. Everything but Spark and the sockets is
real: epochs, memoir, tenancies, and files. What is drawn is who dies where, and who is slow.
"""

import contextlib
import copy
import errno
import pickle
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heapify, heappop, heappush
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from megaphone.bins import BinId, Bins, WorkerId
from megaphone.configuration import Assignment, Configuration
from megaphone.control import targets
from megaphone.control.controller import GIVEN_UP
from megaphone.control.epochs import input_frontier
from megaphone.control.plan import Plan, Step
from megaphone.control.strategies import make_plan
from megaphone.dataflow.exchange import encode
from megaphone.dataflow.folds import vectorised
from megaphone.dataflow.hashing import hash_columns
from megaphone.dataflow.hosting import Host
from megaphone.dataflow.joint import Joint
from megaphone.dataflow.operators import Input, bin_operator, key_operator
from megaphone.dataflow.records import Records, runs
from megaphone.dataflow.routing import address
from megaphone.dataflow.rows import columns_to_rows, make_row, rows_to_batch
from megaphone.dataflow.state import unpack
from megaphone.durability import snapshots
from megaphone.durability.manifest import Manifest, shape_of
from megaphone.durability.recovery import Request, recover
from megaphone.durability.store import Command, Store
from megaphone.engine.local import LocalEngine
from megaphone.engine.spark import memoir as memoirs
from megaphone.engine.spark import tenancy as tenancies
from megaphone.engine.spark import transfer
from megaphone.engine.spark.memoir import Memoir, obey
from megaphone.engine.spark.messages import Address, ApplyRequest, Seat
from megaphone.engine.spark.orders import orders_for
from megaphone.engine.spark.tenancy import Lot, Means, Tenancy
from megaphone.errors import FoldError, WorkerLost
from megaphone.progress import BEGIN, CLOSED, END, Time
from megaphone.testing import make_records, recompute, recompute_machine

WORKERS, BINS = 3, 8
SCHEMA = pa.schema([("key", pa.string()), ("time", pa.int64()), ("n", pa.int64())])
OUTPUT = pa.schema([("time", pa.int64()), ("key", pa.string()), ("n", pa.int64())])
KEYS = "abcdefgh"

# -- folds: as in tests/test_oracle.py, but for what they mix ---------------------------------------------------------


def chained(digest, n):
    """Tells in which order records came."""
    return (digest * 31 + n + 1) % 1_000_003


def added(digest, n):
    """Does not mind in which order records came."""
    return digest + n + 1


def counted(digest, n):
    """Does not mind even if every record is told of."""
    return digest + 1


def machine(mix, key, value, state):
    """Mix three values, then forget the key."""
    time, n = value
    count, digest = state or (0, 0)
    digest = mix(digest, n)
    return None if count == 2 else (count + 1, digest), [(time, key, digest)]


def unary(mix, time, data, state, notificator):
    """Mix; a record with n > 0 comes back n later, with n - 1."""
    for key, _, n in data:
        state[key] = mix(state.get(key, 0), n)
        if n > 0:
            notificator.notify_at(time + n, (key, time + n, n - 1))
    return [(time, key, state[key]) for key in sorted({key for key, _, _ in data})]


def binary(mix, time, left, right, state, left_later, right_later):
    """Mix what is on either side; each comes back on the other."""
    for data, later, more in ((left, right_later, 0), (right, left_later, 7)):
        for key, _, n in data:
            state[key] = mix(state.get(key, 0), n + more)
            if n > 0:
                later.notify_at(time + n, (key, time + n, n - 1))
    return [(time, key, state[key]) for key in sorted({key for data in (left, right) for key, _, _ in data})]


class Agenda:
    """What a bin has to do, by time, and within a time as it came."""

    def __init__(self, rows):
        self.rows = [(row[0], number, row[1:]) for number, row in enumerate(rows)]
        heapify(self.rows)
        self.number = len(self.rows)

    def notify_at(self, time, record):
        heappush(self.rows, (time, self.number, record))
        self.number += 1


def vector(mix, records, states, notificator):
    """`unary`, a call for many bins."""
    outputs, later = [], []
    for start, stop in runs(records.bins):
        bin, part = int(records.bins[start]), records.slice(start, stop)
        rows = [column.to_pylist() for column in part.data.columns]
        agenda = Agenda(list(zip(part.times.tolist(), *rows, strict=True)))
        while agenda.rows and agenda.rows[0][0] < notificator.bounds[bin]:
            time, data = agenda.rows[0][0], []
            while agenda.rows and agenda.rows[0][0] == time:
                data.append(heappop(agenda.rows)[2])
            outputs += unary(mix, time, data, states[bin], agenda)
        later += [(bin, time, *row) for time, _, row in sorted(agenda.rows)]
    notificator.notify_at(make_records(later, SCHEMA))
    return dict(zip(OUTPUT.names, zip(*outputs, strict=True), strict=True)) if outputs else None


class Diary(Joint):
    """The bins of a worker in one object: the digests of each, and what it has to do, which it keeps itself."""

    def __init__(self, bins):
        super().__init__(bins)
        self.bins = {}

    def get(self, bin):
        return copy.deepcopy(self.bins.get(bin))

    def _drop(self, bin):
        del self.bins[bin]

    def _put(self, bin, state):
        self.bins[bin] = state
        self.due[bin] = min((row[0] for row in state[1]), default=END)


def joint(mix, records, states, notificator):
    """`unary`, with all bins in one object that is woken by itself."""
    outputs, fresh = [], {bin: records.slice(start, stop) for bin, start, stop in records.spans()}
    for bin in sorted({*fresh, *np.flatnonzero(states.due < notificator.bounds).tolist()}):
        digests, waiting = states.bins.get(bin, ({}, []))
        rows = [fresh[bin].times.tolist(), *(c.to_pylist() for c in fresh[bin].data.columns)] if bin in fresh else []
        agenda = Agenda([*waiting, *zip(*rows, strict=True)])
        while agenda.rows and agenda.rows[0][0] < notificator.bounds[bin]:
            time, data = agenda.rows[0][0], []
            while agenda.rows and agenda.rows[0][0] == time:
                data.append(heappop(agenda.rows)[2])
            outputs += unary(mix, time, data, digests, agenda)
        states[bin] = digests, [(time, *row) for time, _, row in sorted(agenda.rows)]
    return dict(zip(OUTPUT.names, zip(*outputs, strict=True), strict=True)) if outputs else None


def build(kind, clock, lateness, mix):
    by_epoch, by_column = Input(SCHEMA, ("key",)), Input(SCHEMA, ("key",), "time", lateness)
    inputs = [by_epoch if clock == "epoch" else by_column] * (2 if kind == "binary" else 1)
    fold = partial({"machine": machine, "unary": unary, "binary": binary, "vector": vector, "joint": joint}[kind], mix)
    if kind == "machine":
        return key_operator(kind, inputs[0], fold, OUTPUT, None)
    fold = vectorised(fold) if kind in ("vector", "joint") else fold
    return bin_operator(kind, inputs, fold, OUTPUT, Diary if kind == "joint" else dict)


# -- the rig ----------------------------------------------------------------------------------------------------------


class Died(BaseException):
    """A process is no more: nothing it might still have done is done."""


class Failed(Exception):
    """Something went wrong in a process that goes on."""


@dataclass(frozen=True)
class Fault:
    """At a point of an epoch, having passed it some times: a worker dies, a worker fails, or everybody dies."""

    point: str
    passes: int = 0
    what: str = "die"
    """die, fail, all, or stuck: a bin that is to leave cannot, and the query ends."""
    workers: int | None = None
    """With how many the query is started again, if all die."""


IN_WORKER = ["pull-old", "pull-new", "installed", "applied", "logged", "snapshot"]
IN_DRIVER = ["before-plan", "after-plan", "before-feed", "after-feed", "reported", "before-commit"]


@dataclass(frozen=True)
class Habits:
    """How an epoch goes, all of it right."""

    ahead: bool = False
    """Orders are sent ahead."""
    rest: bool = True
    """Workers have time to copy bins."""
    write: bool = True
    """What is to be written aside is written at once, not when there is time."""
    prompt: bool = True
    """Bins arrive before records do."""
    twice: bool = False
    """Every worker is fed twice."""
    backwards: bool = False
    """The last worker is fed first."""
    answered: bool = True
    """Before the epoch it became known that bins can travel, if that is asked."""


class Pool(Executor):
    """Does what is waited for at once, and the rest when told to, or never."""

    def __init__(self):
        self.waiting = []
        self.prompt = True

    def submit(self, call, /, *args, **kwargs):
        future = Future()
        if self.prompt or call.__name__ == "_begin_log":
            _do(future, call, args)
        else:
            self.waiting.append((future, call, args))
        return future

    def catch_up(self):
        while self.waiting:
            _do(*self.waiting.pop(0))


def _do(future, call, args):
    try:
        future.set_result(call(*args))
    except Exception as error:
        future.set_exception(error)


class Promptly:
    """A call that is over when it has been made, or one that is made when its result is wanted."""

    prompt = True

    def __init__(self, call):
        self._call, self._made = call, None
        if Promptly.prompt:
            self._make()

    @property
    def done(self):
        return self._made is not None

    def result(self, alive):
        if self._made is None:
            self._make()
        result, error = self._made
        if error is not None:
            raise error
        return result

    def _make(self):
        try:
            self._made = self._call(), None
        except BaseException as error:
            self._made = None, error


@dataclass
class Process:
    """A worker's process."""

    incarnation: int
    tenancy: Tenancy
    pool: Pool


@dataclass
class Happened:
    """A committed epoch, and what was asked for before it."""

    rows: list[Any]
    closing: bool
    commands: list[tuple[int, Command]]
    resizes: list[tuple[int, int]]
    """With the number of the command that it was, if it was one."""
    reopens: bool
    cleared: dict[int, bool]
    """Of each migration, whether its bins were known to be able to travel."""
    output: Counter[Any] = field(default_factory=Counter)


class Rig:
    """A query without Spark: a driver, its workers, and a checkpoint that outlives them."""

    def __init__(self, root, spec, workers=WORKERS, shuffle=None, asks=False):
        self.root, self.spec, self.workers, self.asks = root, spec, workers, asks
        self.clock = "epoch" if spec.by_epoch else "column"
        self.next = 0
        self.history: list[Happened] = []
        self.faults: list[Fault] = []
        self.passed: Counter[str] = Counter()
        self.commands: list[tuple[int, Command]] = []
        self.doom: tuple[int, Command] | None = None
        self.cleared: dict[int, bool] = {}
        self.habits = Habits()
        self.shuffle: Callable[[list[Any]], list[Any]] = shuffle or (lambda payloads: payloads)
        self.current: list[int] = []
        self.everybody_dies: Fault | None = None
        self.durable_resizes: list[tuple[int, int]] = []
        self.reopens = False
        self.live = False
        self.processes: dict[int, Process] = {}
        self.interjections: list[Any] = []

    # -- the driver

    @property
    def name(self):
        return self.spec.name

    @property
    def operator(self):
        return self.epochs.operators[self.name]

    def stop(self, workers=None):
        """Everybody is gone; the next epoch is asked of a new attempt."""
        self.workers = workers or self.workers
        self.processes = {}
        self.live = False

    def start(self):
        """A new attempt, which knows nothing but the checkpoint."""
        workers = self.workers
        self.live = True
        self.incarnations = 0
        self.store = Store(str(self.root), "control")
        exchanges = ("key",) * len(self.spec.inputs)
        self.memoir = Memoir(
            self.store,
            Manifest(BINS, workers, {self.name: shape_of(self.spec, exchanges)}),
            {self.name: pickle.dumps(self.spec)},
            {self.name: (self.clock, len(self.spec.inputs))},
        )
        known, before = self.memoir.known, len(self.store.numbers("commands"))
        self.epochs = self.memoir.begin(self.next, Assignment.round_robin(BINS, workers))
        self.resizes = list(self.durable_resizes)
        if known is None:
            self.first_workers = workers
        elif known is not None and known.workers != workers:
            self.resizes.append((self.memoir._commands - 1, workers))
        # What is journalled while its epoch is open counts for who plans that epoch anew.
        self.commands += [self.doom] if self.doom else []
        self.doom = None
        if self.asks:
            self.epochs.ask_first()
        if len(self.store.numbers("commands")) > before:
            self.durable_resizes = list(self.resizes)

    def tell(self, command):
        """A command of the user's, between two epochs."""
        if command.verb == "submit":
            self.epochs.check(Plan.from_json(command.plan))
        number = self.memoir.command(command)
        self.commands.append((number, command))
        obey(self.epochs, command, number)

    def run(self, rows, faults=(), closing=False):
        """An epoch, until it is committed."""
        self.faults, self.passed = list(faults), Counter()
        for _ in range(40):
            try:
                output = self._try(rows, closing)
                break
            except Died:
                fault, self.everybody_dies = self.everybody_dies, None
                assert fault is not None
                self.stop(fault.workers)
            except FoldError:
                self.stop()
        else:
            raise AssertionError("an epoch that never ends")
        self.faults = []
        happened = Happened(rows, closing, self.commands, self.resizes, self.reopens, self.cleared, output)
        self.history.append(happened)
        self.doom = None
        self.commands, self.resizes, self.durable_resizes, self.reopens = [], [], [], False
        self.next += 1
        return output

    def _try(self, rows, closing):
        if not self.live:
            self.start()
        self.reach("before-plan")
        needed_from = self.epochs.needed_from
        if self.habits.answered and (migration := self.epochs.controller.uncleared) is not None:
            self.epochs.clear(migration.number)
        self.cleared = {migration.number: migration.cleared for migration in self.epochs.controller.under_way}
        plan = self.memoir.open(self.epochs, self.next, closing)
        self.durable_resizes = list(self.resizes)
        self.memoir.cut(self.next, needed_from, [m.number for m in self.epochs.controller.under_way])
        self.reach("after-plan")
        for process in self.processes.values():
            process.pool.prompt = self.habits.write
        Promptly.prompt = self.habits.prompt
        if self.habits.ahead:
            self._send_ahead(plan)
        output = self._feed_all(plan, rows)
        self.reach("before-commit")
        return output

    def _send_ahead(self, plan):
        for worker, process in list(self.processes.items()):
            if worker in self.processes:
                self._in(worker, partial(process.tenancy.prepare, self._orders(worker, plan)))

    def _feed_all(self, plan, rows):
        payloads, seen = self._route(plan, rows)
        mine = plan.operators[self.name]
        lateness = [input.lateness for input in self.spec.inputs]
        frontier = input_frontier(self.clock, plan.epoch, plan.closing, seen, lateness, mine.frontier).bound
        output: Counter[Any] = Counter()
        for worker in reversed(plan.workers) if self.habits.backwards else plan.workers:
            self.current = [int(worker)]
            if self.interjections:
                follow(self, *self.interjections.pop(0))
            self.reach("before-feed")
            told = partial(self._feed, int(worker), plan, payloads.get(worker, []), seen, frontier)
            batches, report = told()
            if self.habits.twice:
                again, _ = told()
                assert Counter(map(repr, rows_of(batches))) == Counter(map(repr, rows_of(again)))
            self.reach("after-feed")
            self.epochs.report(self.name, plan.epoch, [report], seen, frontier)
            self.reach("reported")
            output.update(map(repr, rows_of(batches)))
            if self.habits.rest and int(worker) in self.processes:
                self._in(int(worker), lambda worker=worker: self.processes[int(worker)].tenancy.rest())
        return output

    def _route(self, plan, rows):
        payloads, seen = {}, list(plan.operators[self.name].seen)
        configuration = Configuration.of(plan.configuration)
        for number, input in enumerate(self.spec.inputs):
            half = len(rows[number]) // 2
            for part in self.shuffle([rows[number][:half], rows[number][half:]]):
                records = records_of(input, part, plan.epoch)
                seen[number] = Time(max([seen[number], *records.times.tolist()]))
                for worker, routed in address(configuration, records):
                    payloads.setdefault(worker, []).append((number, encode([routed])))
        return payloads, seen

    def _feed(self, worker, plan, payloads, seen, frontier):
        for _ in range(20):
            process = self.process(worker)
            orders = self._orders(worker, plan)
            request = ApplyRequest(process.incarnation, orders, frontier, list(seen), len(payloads))
            result = self._in(worker, partial(process.tenancy.apply, request, payloads))
            if result is not None:
                return result
        raise AssertionError(f"worker {worker} cannot be fed")

    def _orders(self, worker, plan):
        return orders_for(WorkerId(worker), self.name, plan.epoch, plan.operators[self.name], self._seat)

    def _seat(self, worker):
        return Seat(Address(str(worker)), self.processes[worker].incarnation if worker in self.processes else 0)

    # -- the workers

    def process(self, worker):
        """A worker's process; one that is not there is started."""
        if worker not in self.processes:
            self.incarnations += 1
            pool = Pool()
            pool.prompt = self.habits.write
            means = Means(
                Store(str(self.root), "control"),
                self.memoir.attempt,
                self.incarnations,
                1.0,
                pool,
                lambda: self._lot(worker),
                self._pull,
                lambda arrival: True,
                lambda epoch, stuck: None,
            )
            tenancy = Tenancy(WorkerId(worker), self.name, means)
            self.processes[worker] = Process(self.incarnations, tenancy, pool)
        return self.processes[worker]

    def open(self, worker):
        """Orders that were sent ahead arrive when everything is done, at a process that has just been started."""
        if self.live and self.epochs.epoch >= 0:
            self.process(worker)

    def _lot(self, worker):
        owned = self.epochs.residence(self.name).bins_of(WorkerId(worker))
        return Lot(pickle.loads(pickle.dumps(self.spec)), BINS, owned, self.epochs.epoch - 1)

    def _pull(self, arrival, epoch):
        """Whoever pulls lives on if it is the other one that dies."""
        self.current.append(arrival.source)
        try:
            for packed, line in self.process(arrival.source).tenancy.serve(epoch, arrival.bins):
                yield unpack(packed.bin, [bytearray(part) for part in packed.parts]), line, sum(packed.sizes)
        except (Died, Failed):
            self.kill(arrival.source)
            raise WorkerLost("no more") from None
        finally:
            self.current.pop()

    def _in(self, worker, call):
        """What a worker does, or nothing if it dies or fails."""
        self.current = [worker]
        result = None
        try:
            result = call()
        except Failed:
            result = None
        except Died:
            self.kill(worker)
        if self.everybody_dies:
            raise Died
        return result

    def kill(self, worker):
        """A worker is no more; what it was writing is a heap of bytes."""
        if self.processes.pop(worker, None) is not None:
            stray = Path(self.root) / "megaphone/control/log" / f"999-{worker}.writing"
            stray.parent.mkdir(parents=True, exist_ok=True)
            stray.write_bytes(b"half")

    def catch_up(self):
        """Whatever was to be written aside is written now."""
        for worker in list(self.processes):
            self._in(worker, self.processes[worker].pool.catch_up)

    def reach(self, point, moving=False):
        """A point of the epoch: a fault that is due happens."""
        for fault in self.faults:
            if fault.point == point and fault.passes == self.passed[point]:
                self.faults.remove(fault)
                self._happen(fault)
                break
        self.passed[point] += 1

    def _happen(self, fault):
        if fault.what == "all":
            self.everybody_dies = fault
            raise Died
        if fault.what == "stuck":
            self._doom(fault)
        if fault.point in IN_WORKER:
            raise Died if fault.what == "die" else Failed
        if self.processes:
            self.kill(sorted(self.processes)[fault.passes % len(self.processes)])

    def _doom(self, fault):
        """A bin cannot leave: that is written down before anybody learns of it, and the query ends."""
        self.workers = fault.workers or self.workers
        number = self.epochs.controller.current.number
        command = Command("fail", migration=number, reason="stuck", epoch=self.epochs.epoch)
        self.doom = self.memoir.command(command), command
        raise FoldError("stuck")

    # -- checks

    def states(self):
        """Every bin's state and what waits in it before the epoch that is open, whoever has it."""
        owners = self.epochs.residence(self.name)
        return {bin: contents(self.process(int(owners[BinId(bin)])).tenancy.host, bin) for bin in range(BINS)}

    def residence(self):
        """Who has what, now that an epoch is committed."""
        pending = [move for later in self.operator.pending for move in later.moves]
        return self.epochs.configuration.last.after((move.bin, move.source) for move in reversed(pending))

    def check_recovery(self):
        """What the checkpoint gives is what is in memory."""
        self.catch_up()
        owners = self.residence()
        for worker, process in self.processes.items():
            if process.tenancy.epoch != self.epochs.epoch:
                continue
            owned = owners.bins_of(WorkerId(worker))
            request = Request(self.name, WorkerId(worker), self.spec, BINS, owned, self.epochs.epoch)
            host = recover(self.store, request).host
            mine = process.tenancy.host
            assert host.resident.tolist() == mine.resident.tolist()
            for bin in range(BINS):
                assert contents(host, bin) == contents(mine, bin), f"bin {bin} on worker {worker}"


def rows_of(batches):
    return [row for batch in batches for row in columns_to_rows(batch)]


def contents(host, bin):
    """A bin's state and pending records, to be compared; an empty state is as good as none."""
    queues = [queue.pending() for queue in host._pending.get(BinId(bin), ())]
    waiting = [None if q is None else list(zip(q.times.tolist(), columns_to_rows(q.data), strict=True)) for q in queues]
    return host.states.get(BinId(bin)) or None, waiting if any(waiting) else []


def records_of(input, rows, epoch):
    data = rows_to_batch([tuple(row) for row in rows], SCHEMA)
    bins = Bins.of_count(BINS).of_hashes(hash_columns([data.column("key")]))
    return Records.at(Time(epoch), bins, data) if input.time is None else Records(bins, input.times(data["time"]), data)


# -- what must come out -----------------------------------------------------------------------------------------------


class Reference(LocalEngine):
    """The same epochs without a crash: whatever was written down and read back is simply remembered."""

    def follow(self, happened):
        if happened.reopens:
            self.epochs.reopen()
            for host in self.hosts.values():
                host.frontier = self.epochs.operators[self.spec.name].frontier
        # Commands are obeyed before a new attempt looks how many workers it has, which may be a command itself.
        asked = [(number, False, command) for number, command in happened.commands]
        asked += [(number, True, workers) for number, workers in happened.resizes]
        for number, is_resize, what in sorted(asked, key=lambda one: one[:2]):
            if is_resize:
                self.resize(number, what)
            else:
                obey(self.epochs, what, number)
                self._free()
        for migration in self.epochs.controller.under_way:
            migration.cleared = happened.cleared[migration.number]
        return Counter(map(repr, self._run(happened.rows, happened.closing)))

    def _free(self):
        """What waits for a bin at a worker where it will not go is with the bin."""
        for bin in map(BinId, sorted(self.epochs.operators[self.spec.name].freed)):
            home = self.hosts[self.epochs.configuration.last[bin]]
            for host in self.hosts.values():
                if host is not home and bin in host._pending:
                    host.resident[bin] = True
                    home.queue(bin, host.release(bin).pending)

    def resize(self, number, workers):
        controller = self.epochs.controller
        target = targets.balanced(controller.expected, workers)
        for worker in range(max(workers, self.epochs.workers)):
            self.hosts.setdefault(WorkerId(worker), self._host(worker))
        if controller.current is None:
            for move in controller.expected.moves_to(target):
                self.hosts[move.target].install(self.hosts[move.source].release(move.bin))
            self.epochs.place(target, workers)
            return
        moves = tuple(controller.expected.moves_to(target))
        plan = Plan(BINS, (Step(moves),) if moves else (), strategy="all_at_once")
        obey(self.epochs, Command("submit", plan.to_json(), workers), number)

    def _host(self, worker):
        host = Host(WorkerId(worker), self.spec.fold, BINS)
        host.frontier = self.epochs.operators[self.spec.name].frontier
        return host

    def states(self):
        return {
            bin: contents(host, bin) for host in self.hosts.values() for bin in np.flatnonzero(host.resident).tolist()
        }


def check_against_reference(rig):
    """Epoch by epoch the same outputs; when everything fires because the inputs end, in some epoch or other."""
    reference = Reference(rig.spec, rig.first_workers, BINS)
    open_end: tuple[Counter[Any], Counter[Any]] = Counter(), Counter()
    for epoch, happened in enumerate(rig.history):
        expected = reference.follow(happened)
        if happened.closing:
            open_end[0].update(happened.output)
            open_end[1].update(expected)
        else:
            assert open_end[0] == open_end[1], f"before epoch {epoch}"
            assert happened.output == expected, f"epoch {epoch}"
    assert open_end[0] == open_end[1]
    late = reference.epochs.operators[rig.name].late
    assert rig.operator.late == late
    if not rig.history or not rig.history[-1].closing:
        assert rig.epochs.configuration.entries == reference.epochs.configuration.entries
    rig.processes.clear()
    rig.memoir.open(rig.epochs, rig.next, False)
    assert rig.states() == reference.states()


# -- what is drawn ----------------------------------------------------------------------------------------------------

COMMANDS = ["migrate", "pause", "resume", "cancel", "fail"]
keys = st.sampled_from(KEYS)
times = st.integers(0, 40) | st.just(1000)
rows = st.lists(st.tuples(keys, times, st.integers(0, 4)), max_size=6)
owners = st.lists(st.integers(0, 5), min_size=BINS, max_size=BINS)
strategies = st.sampled_from(["all_at_once", "fluid", "batched", "optimized"])
ahead = st.none() | st.integers(0, 15)
plans = st.tuples(owners, strategies, st.integers(1, 4), st.integers(0, 2), ahead, st.booleans())
workers = st.none() | st.integers(1, 4)
in_worker = st.builds(Fault, st.sampled_from(IN_WORKER), st.integers(0, 2), st.sampled_from(["die", "fail"]))
in_driver = st.builds(Fault, st.sampled_from(IN_DRIVER), st.integers(0, 2))
of_all = st.builds(Fault, st.sampled_from(IN_WORKER + IN_DRIVER), st.integers(0, 1), st.just("all"), workers)
stuck = st.builds(Fault, st.just("pull-old"), st.integers(0, 2), st.just("stuck"), workers)
faults = st.lists(st.one_of(in_worker, in_driver, of_all, stuck), max_size=2)
habits = st.builds(Habits, *[st.booleans()] * 7)
epochs = st.tuples(st.just("epoch"), rows, rows, faults, habits)
actions = st.lists(
    st.one_of(
        epochs,
        epochs,
        st.tuples(st.just("migrate"), plans),
        st.tuples(st.sampled_from(COMMANDS[1:])),
        st.tuples(st.just("catch up")),
        st.tuples(st.just("kill"), st.integers(0, 3)),
        st.tuples(st.just("open"), st.integers(0, 3)),
        st.tuples(st.just("restart"), workers),
        st.tuples(st.just("close"), faults, habits),
    ),
    min_size=1,
    max_size=16,
)


def follow(rig, action, *details):
    """Do what was drawn, as far as it makes sense now."""
    if action in COMMANDS and (not rig.live or rig.doom):
        return
    if action == "epoch":
        *rows, faults, rig.habits = details
        rig.run(timed(rig, rows[: len(rig.spec.inputs)]), faults)
    elif action == "migrate":
        rig.tell(Command("submit", drawn_plan(rig, *details[0]).to_json()))
    elif action == "note":
        rig.memoir.command(*details)
    elif action == "catch up":
        rig.catch_up()
    elif action == "kill":
        rig.kill(details[0])
    elif action == "open":
        rig.open(details[0])
    elif action == "restart":
        rig.stop(details[0])
    elif action == "close":
        close(rig, *details)
    elif (current := rig.epochs.controller.current) is not None and current.phase not in GIVEN_UP:
        rig.tell(Command(action, **({"migration": current.number, "reason": "why"} if action == "fail" else {})))


def timed(rig, inputs):
    now = rig.next
    return [[(key, now if rig.clock == "epoch" else time, n) for key, time, n in rows] for rows in inputs]


def drawn_plan(rig, owners, name, batch, gap, ahead, every_step):
    """A plan for now, or for a time ahead: its first step only, or each step two times after the one before."""
    now = max(rig.epochs.now, 0)
    target = Assignment([owner % rig.workers for owner in owners])
    plan = make_plan(rig.epochs.controller.expected, target, name, batch=batch if name == "batched" else None, gap=gap)
    if ahead is None:
        return plan
    count = len(plan.steps) if every_step else 1
    ats = [Time(now + ahead + 2 * number) for number in range(count)] + [None] * len(plan.steps)
    steps = tuple(Step(step.moves, at) for step, at in zip(plan.steps, ats, strict=False))
    return Plan(plan.bins, steps, gap, name)


def close(rig, faults=(), habits=None):
    """A bounded run comes to its end, and a new one goes on."""
    rig.habits = replace(habits or rig.habits, answered=True)
    nothing = [[] for _ in rig.spec.inputs]
    rig.run(nothing, faults)
    current = rig.epochs.controller.current
    if current is not None and current.phase == "paused":
        rig.tell(Command("resume"))
    rig.run(nothing, faults, closing=True)
    for _ in range(200):
        if not rig.epochs.wants_epoch:
            break
        rig.run(nothing, closing=True)
    assert rig.operator.output_frontier == CLOSED
    for process in rig.processes.values():
        assert process.tenancy.epoch < rig.epochs.epoch or not process.tenancy.host._pending
    rig.stop()
    rig.reopens = True


@pytest.fixture(autouse=True)
def brisk(monkeypatch):
    """Snapshots of whatever has changed, a log that is cut in every epoch, and no threads."""
    monkeypatch.setattr(snapshots, "YOUNG", 0)
    monkeypatch.setattr(memoirs, "CUT_EVERY", 1)
    monkeypatch.setattr(transfer, "Attended", Promptly)


@contextlib.contextmanager
def rig_of(*args, **kwargs):
    """A rig over a new folder, whose processes pass through the points of an epoch."""
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        rig = Rig(root, *args, **kwargs)
        patch.setattr(tenancies, "reach", rig.reach)
        patch.setattr(snapshots, "reach", rig.reach)
        yield rig


kinds = pytest.mark.parametrize("kind", ["machine", "unary", "binary", "vector", "joint"])
clocks = pytest.mark.parametrize("clock", ["epoch", "column"])
thorough = settings(max_examples=25, suppress_health_check=list(HealthCheck))


@clocks
@kinds
@thorough
@given(drawn=actions, lateness=st.integers(0, 10), asks=st.booleans())
def test_any_crashes_give_what_no_crash_gives(kind, clock, drawn, lateness, asks):
    with rig_of(build(kind, clock, lateness, chained), asks=asks) as rig:
        for action in drawn:
            follow(rig, *action)
        rig.run([[] for _ in rig.spec.inputs])
        rig.check_recovery()
        check_against_reference(rig)


meanwhile = st.lists(
    st.one_of(st.tuples(st.just("migrate"), plans), st.tuples(st.sampled_from(COMMANDS[1:]))), max_size=2
)
restless = st.lists(st.tuples(epochs, meanwhile), min_size=1, max_size=8)


@clocks
@kinds
@thorough
@given(drawn=restless, lateness=st.integers(0, 10), seed=st.integers(0, 99))
def test_any_crashes_and_any_order_of_payloads_give_what_a_plain_scan_gives(kind, clock, drawn, lateness, seed):
    """Commands come while an epoch is open, so that what was planned is planned otherwise after a crash."""
    chance = Random(seed)
    spec = build(kind, clock, lateness, counted if kind == "machine" else added)
    with rig_of(spec, shuffle=lambda parts: chance.sample(parts, len(parts))) as rig:
        rows: list[Any] = [[] for _ in rig.spec.inputs]
        late = 0
        for action, rig.interjections in drawn:
            given = timed(rig, action[1 : 1 + len(rows)])
            frontier = rig.operator.frontier.bound if rig.history else BEGIN
            for kept, fresh in zip(rows, given, strict=True):
                in_time = [row for row in fresh if clock == "epoch" or row[1] >= frontier]
                late += len(fresh) - len(in_time)
                kept += in_time
            follow(rig, *action)
        rig.interjections = []
        late_then = rig.operator.late
        close(rig)
    assert late_then == late
    output = sum((happened.output for happened in rig.history), Counter())
    assert output == Counter(repr(make_row(tuple(OUTPUT.names), row)) for _, row in plain_scan(kind, rows))


def plain_scan(kind, inputs):
    """What must come out, by one who knows neither bins nor workers nor frontiers."""
    if kind == "machine":
        return recompute_machine(partial(machine, counted), [(t, key, (t, n)) for key, t, n in inputs[0]])
    fold = partial(binary if kind == "binary" else unary, added)
    return recompute(fold, [[(row[1], row) for row in rows] for rows in inputs], [lambda row: row[0]] * len(inputs))


# -- what once went wrong, and what is drawn too rarely ---------------------------------------------------------------

STEADY = Habits(rest=False)


def epoch_of(*rows, faults=(), habits=STEADY):
    return ("epoch", list(rows), list(rows), list(faults), habits)


def check(kind, clock, *drawn, lateness=0):
    with rig_of(build(kind, clock, lateness, chained)) as rig:
        for action in drawn:
            follow(rig, *action)
        rig.run([[] for _ in rig.spec.inputs])
        rig.check_recovery()
        check_against_reference(rig)


EVERYBODY = [("kill", worker) for worker in range(WORKERS)]
TO_ONE, TO_TWO, ROUND = [1] * BINS, [2] * BINS, [1, 2, 0, 1, 2, 0, 1, 2]


def moving(owners, ahead=None):
    return ("migrate", (owners, "all_at_once", 1, 0, ahead, False))


@kinds
def test_records_that_waited_for_a_bin_are_redone_behind_what_it_brought(kind):
    """The old owner post-dates to a time at which the next one has had records for longer."""
    moved = [epoch_of(("a", 5, 0)), moving(ROUND, ahead=5), epoch_of(("a", 8, 4), ("a", 12, 1), ("a", 9, 0))]
    check(kind, "column", *moved, *[epoch_of(("a", time, 0)) for time in (11, 13, 13)], *EVERYBODY, epoch_of())


@kinds
@pytest.mark.parametrize("point", ["before-feed", "pull-old", "pull-new"])
def test_records_that_wait_for_a_bin_are_not_redone_with_its_old_owner(kind, point):
    """Whoever dies while they wait, or while the bin is on its way: they are with the next owner, once."""
    held = [epoch_of(("a", 5, 0)), moving(ROUND, ahead=5), epoch_of(("a", 12, 1), ("a", 7, 0)), *EVERYBODY]
    passed = [epoch_of(("a", 8, 0), ("a", 12, 2)), epoch_of(("a", 11, 0)), epoch_of(faults=[Fault(point)])]
    check(kind, "column", *held, *passed, epoch_of(("a", 13, 0)), *EVERYBODY, epoch_of())


@kinds
@pytest.mark.parametrize("killed", [[], EVERYBODY], ids=["at once", "redone"])
def test_records_that_went_ahead_of_a_bin_that_cannot_leave_are_with_it_again(kind, killed):
    """They wait at what was to be its next owner, for a move that is taken back, and are redone with it ever after."""
    held = [epoch_of(("a", 5, 0)), moving(ROUND, ahead=10), epoch_of(("a", 12, 1), ("a", 7, 0))]
    fault = Fault("pull-old", 0, "stuck")
    stuck = [epoch_of(("a", 8, 4), ("a", 14, 2)), epoch_of(("a", 15, 0)), epoch_of(faults=[fault])]
    after = [*killed, epoch_of(("a", 25, 3)), moving(TO_TWO), epoch_of(("a", 26, 0)), *killed]
    with rig_of(build(kind, "column", 5, chained)) as rig:
        for action in [*held, *stuck, *after]:
            follow(rig, *action)
        failed, moved = rig.epochs.controller.history
        assert (failed.phase, failed.reason, failed.bins_moved, moved.phase) == ("failed", "stuck", 0, "running")
        rig.run([[] for _ in rig.spec.inputs])
        rig.check_recovery()
        check_against_reference(rig)


def test_epoch_that_was_applied_after_all_has_not_failed():
    """A task is tried again, and this time the state can be pickled."""
    with rig_of(build("unary", "epoch", 0, chained)) as rig:
        rig.run([[("a", 0, 0)]])
        rig.tell(Command("submit", drawn_plan(rig, *moving(TO_ONE)[1]).to_json()))
        fail = Command("fail", migration=0, reason="stuck", epoch=1)
        rig.interjections = [("note", fail)]
        rig.run([[("a", 1, 0)]])
        rig.stop()
        rig.run([[("a", 2, 0)]])
        assert [past.phase for past in rig.epochs.controller.past] == ["done"]
        check_against_reference(rig)


@kinds
def test_process_that_begins_when_its_epoch_is_over_has_not_had_its_records(kind):
    """It owns nothing, but records wait there for the bins to come."""
    prelude = [epoch_of(("a", 1, 0)), moving(TO_TWO), epoch_of(("a", 2, 0)), epoch_of(("a", 3, 0))]
    early = [moving(TO_ONE, ahead=5), epoch_of(("a", 3, 0)), epoch_of(("a", 9, 0), ("a", 4, 0))]
    late = [("kill", 1), ("open", 1), epoch_of(("a", 5, 0)), epoch_of(("a", 12, 0))]
    check(kind, "column", *prelude, *early, *late, lateness=5)


def test_worker_that_is_fed_does_not_wait_for_one_that_would_rest():
    """In a process with many operators, all threads for files might rest, and none write what is waited for."""
    with rig_of(build("unary", "epoch", 0, chained)) as rig:
        rig.run([[("a", 0, 0)]])
        tenancy = rig.process(0).tenancy
        with tenancy._applying:
            resting = threading.Thread(target=tenancy.rest, daemon=True)
            resting.start()
            resting.join(10)
            assert not resting.is_alive()


@kinds
@clocks
def test_bins_moved_at_the_end_of_a_bounded_run_are_found_in_the_next(kind, clock):
    """Steps issued when the inputs have ended bear the time after all times."""
    ended = [epoch_of(("a", 5, 2), ("b", 6, 1)), moving(ROUND), ("close", [], STEADY)]
    check(kind, clock, *ended, epoch_of(("a", 7, 3), ("b", 3, 1)), moving(TO_ONE), epoch_of(("a", 9, 1)), epoch_of())


@kinds
def test_migration_prepared_far_ahead_happens_when_a_bounded_run_ends(kind):
    prepared = [epoch_of(("a", 5, 4)), moving(ROUND, ahead=90), epoch_of(("a", 6, 3)), ("close", [], STEADY)]
    check(kind, "column", *prepared, epoch_of(("a", 7, 3), ("b", 9, 1)), *EVERYBODY, epoch_of(("a", 8, 0)))


@kinds
def test_snapshot_that_a_recovery_has_taken_up_stays(kind):
    """Its writer gave the bin away before it had written it, and used to remove it behind the new owner's back."""
    busy, slow = Habits(rest=True, write=False), Habits(rest=False, write=False)
    drawn = [epoch_of(("a", 1, 2), ("b", 1, 2), habits=busy), epoch_of(("a", 2, 1), habits=busy), moving(TO_ONE)]
    drawn += [epoch_of(("a", 3, 0), habits=slow), ("catch up",), ("kill", 1), epoch_of(("b", 4, 0), habits=slow)]
    drawn += [epoch_of(("a", 5, 0)), epoch_of(("b", 6, 0)), ("kill", 1), epoch_of(("a", 7, 0)), *EVERYBODY, epoch_of()]
    check(kind, "column", *drawn)


@pytest.mark.parametrize("point", IN_DRIVER)
@pytest.mark.parametrize("epoch", [0, 1])
def test_driver_that_dies_anywhere_goes_on(point, epoch):
    drawn = [epoch_of(("a", time, 2), faults=[Fault(point, 0, "all")] if time == epoch else []) for time in range(3)]
    check("unary", "column", *drawn)


def test_number_of_workers_that_was_asked_for_is_not_forgotten_by_who_dies_before_planning():
    with rig_of(build("unary", "epoch", 0, chained)) as rig:
        rig.run([[("a", 0, 0)]])
        rig.stop(workers=2)
        rig.run([[("a", 1, 0)]], [Fault("before-plan", 0, "all")])
        assert rig.epochs.workers == 2
        assert rig.epochs.configuration.last.workers() == [0, 1]
        check_against_reference(rig)


def test_command_that_came_before_the_first_plan_is_obeyed_by_the_next_attempt():
    with rig_of(build("unary", "epoch", 0, chained)) as rig:
        rig.start()
        rig.tell(Command("submit", drawn_plan(rig, *moving(TO_ONE)[1]).to_json()))
        rig.stop()
        rig.run([[("a", 0, 0)]])
        assert rig.epochs.configuration.last == Assignment(TO_ONE)


def test_plan_that_could_not_be_written_is_not_taken_for_written():
    """A disk that is full when the plan is made has room when a task asks again."""
    with rig_of(build("unary", "epoch", 0, chained)) as rig:
        rig.run([[("a", 0, 0)]])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Store, "write_plan", full)
            with pytest.raises(OSError, match="No space left"):
                rig.memoir.open(rig.epochs, 1, False)
            with pytest.raises(OSError, match="No space left"):
                rig.memoir.write(rig.epochs)
        assert list(rig.store.plans()) == [0]
        rig.memoir.write(rig.epochs)
        assert list(rig.store.plans()) == [0, 1]
        assert rig.store.read_plan(1, 1).before.epoch == 0


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_recovery_looks_again_when_the_log_is_cut_meanwhile(monkeypatch):
    """The driver cuts what nobody needs while a worker still believes it must redo it."""
    with rig_of(build("unary", "epoch", 0, chained)) as rig:
        rig.run([[("a", 0, 0)]])
        monkeypatch.setattr(memoirs, "CUT_EVERY", 100)
        rig.habits = Habits()
        for epoch in range(1, 12):
            rig.run([[("a", epoch, 0)] if epoch < 3 else []])
        rig.catch_up()
        owner = next(w for w, process in rig.processes.items() if contents(process.tenancy.host, BIN_OF_A)[0])
        snapshot = [file for file, _ in rig.store.snapshots("unary") if BIN_OF_A in file.bins]
        assert snapshot
        before = contents(rig.process(owner).tenancy.host, BIN_OF_A)
        cutting = Store(str(rig.root), "control")
        listed, cuts = rig.store.log, []

        def log():
            if not cuts:
                cuts.append(None)
                cutting.cut(10, [])
            return listed()

        rig.store.log = log
        owned = rig.residence().bins_of(WorkerId(owner))
        request = Request("unary", WorkerId(owner), rig.spec, BINS, owned, rig.epochs.epoch)
        assert contents(recover(rig.store, request).host, BIN_OF_A) == before
        assert cuts


BIN_OF_A = int(records_of(Input(SCHEMA, ("key",)), [("a", 0, 0)], 0).bins[0])


@clocks
def test_checkpoint_does_not_grow_for_ever(clock):
    """Though workers and drivers die now and then, and bins never rest."""
    sizes = []
    with rig_of(build("unary", clock, 0, chained)) as rig:
        rig.habits = Habits()
        for epoch in range(120):
            faults = [Fault(["applied", "snapshot", "pull-new"][epoch % 3], 1)] if epoch % 5 == 4 else []
            faults += [Fault("reported", 1, "all")] if epoch % 20 == 19 else []
            if epoch % 6 == 5:
                rig.tell(Command("submit", drawn_plan(rig, *moving(ROUND if epoch % 12 == 5 else TO_ONE)[1]).to_json()))
            rig.run([[(key, epoch, 2) for key in KEYS]], faults)
            sizes.append(sum(1 for path in Path(rig.root).rglob("*") if path.is_file()))
        rig.check_recovery()
    assert np.median(sizes[80:]) <= 1.1 * np.median(sizes[30:70])
    assert max(sizes) < 100


@clocks
def test_command_that_cannot_be_followed_changes_nothing_but_what_is_remembered(clock):
    with rig_of(build("unary", clock, 0, chained)) as rig:
        for number in range(4):
            follow(rig, *epoch_of(("a", number, 1), ("b", number, 0)))
            follow(rig, *moving([TO_ONE, TO_TWO, ROUND, TO_ONE][number]))
            rig.memoir.command(Command("submit", "{"))
            rig.stop()
        follow(rig, *epoch_of())
        phases = [migration.phase for migration in rig.epochs.controller.history]
        assert phases[1::2] == ["failed"] * 4
        check_against_reference(rig)
