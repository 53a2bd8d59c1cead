"""The worker process: a Flight server round the bins it owns.

Nobody else applies records to them. It ends when its coordinator lets go of the lease, or is gone, or when the
executor that started it is gone; nothing else keeps it alive.
Neighbours: placement.py starts it, tasks feed it, other workers pull from it.
"""

import contextlib
import os
import pickle
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NoReturn

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.flight as flight

from megaphone.bins import WorkerId
from megaphone.control.travel import Stuck
from megaphone.dataflow.operators import OperatorSpec
from megaphone.durability.store import Store
from megaphone.engine.spark.lease import hold_lease
from megaphone.engine.spark.memory import machine
from megaphone.engine.spark.messages import (
    AliveQuestion,
    ApplyRequest,
    Arrival,
    Join,
    Orders,
    PullRequest,
    SpecAnswer,
    SpecQuestion,
    StuckMessage,
    TravelQuestion,
    WorkerConfig,
    dump,
    load,
)
from megaphone.engine.spark.rpc import Caller, Service, listen
from megaphone.engine.spark.socket_folder import SocketFolder
from megaphone.engine.spark.tenancy import Lot, Means, Tenancy
from megaphone.engine.spark.transfer import pull, serve
from megaphone.errors import MegaphoneError, ProtocolError

OUTPUT_ROWS = 1 << 16
"""Rows in one output batch: what Spark takes in at a time."""


class Worker(Service):
    """Owns bins of every operator of its control, and answers for them."""

    def __init__(self, config: WorkerConfig) -> None:
        """Start with no operator: each is fetched when it is first spoken of."""
        super().__init__()
        self.config = config
        self.caller = Caller(config.secret, config.unix)
        self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="files")
        self._lock = threading.Lock()
        self._opening: dict[str, threading.Lock] = {}
        self._tenancies: dict[str, Tenancy] = {}
        self.actions["prepare"] = self._prepare
        self.actions["travel"] = self._travel

    def warm_up(self) -> None:
        """Import what epochs need, before one waits for it: a third of a second for pandas, as much again for Spark."""
        # PyArrow imports pandas when it first meets NumPy.
        pa.array(np.zeros(1)).to_numpy()
        # The user's modules are those that folds are in. Whoever first needs one that cannot be loaded is told why.
        with contextlib.suppress(Exception):
            for spec in self.caller.call(self.config.coordinator, "specs", self.config.key, list[bytes]):
                _unpickled(spec)

    def get(self, ticket: bytes) -> Any:
        """Serve bins that leave."""
        request = load(ticket, PullRequest)
        tenancy = self._tenancy(request.operator)
        near = request.machine != "" and request.machine == machine()
        return serve(tenancy.serve(request.epoch, request.bins), tenancy.loans if near else None)

    def exchange(self, command: bytes, reader: Any, writer: Any) -> None:
        """Take an epoch's records in, give its outputs back; the report comes with the last batch."""
        request = load(command, ApplyRequest)
        self._check(request)
        tenancy = self._tenancy(request.orders.operator)
        payloads = list(_payloads(reader))
        if len(payloads) != request.payloads:
            # A feeder that dies looks like one that is done: its epoch must not be applied in part.
            raise ProtocolError(
                f"worker {self.config.worker} got {len(payloads)} of {request.payloads} payloads "
                f"of operator {request.orders.operator} in epoch {request.orders.epoch}"
            )
        inputs = len(tenancy.spec.inputs)
        if strange := [kind for kind, _ in payloads if not 0 <= kind < inputs]:
            raise ProtocolError(
                f"records for input {strange[0]} of operator {request.orders.operator}, which has {inputs}"
            )
        outputs, report = tenancy.apply(request, payloads)
        writer.begin(outputs[0].schema)
        for output in outputs:
            for start in range(0, len(output), OUTPUT_ROWS):
                writer.write_batch(output.slice(start, OUTPUT_ROWS))
        writer.write_metadata(dump(report))
        self._pool.submit(tenancy.rest)
        self.caller.close_idle()

    def _check(self, request: ApplyRequest) -> None:
        """Refuse what is meant for another process of this worker: ours may be the one that was given up."""
        if request.incarnation != self.config.incarnation:
            raise ProtocolError(
                f"epoch {request.orders.epoch} of operator {request.orders.operator} is for incarnation "
                f"{request.incarnation} of worker {self.config.worker}, not for {self.config.incarnation}"
            )

    def _prepare(self, message: bytes) -> bytes:
        for orders in load(message, list[Orders]):
            self._tenancy(orders.operator).prepare(orders)
        return dump(None)

    def _travel(self, message: bytes) -> bytes:
        question = load(message, TravelQuestion)
        return dump(self._tenancy(question.operator).find_out(question.bins, question.within_s))

    def _tenancy(self, operator: str) -> Tenancy:
        """An operator's tenancy; one that is not here yet is opened, which may mean to recover it."""
        with self._lock:
            opening = self._opening.setdefault(operator, threading.Lock())
        with opening:
            if operator not in self._tenancies:
                self._tenancies[operator] = self._open(operator)
            return self._tenancies[operator]

    def _open(self, operator: str) -> Tenancy:
        answer = self._ask(operator)
        safe = answer.safe
        means = Means(
            Store(safe.checkpoint, safe.control, safe.trusted),
            safe.attempt,
            self.config.incarnation,
            safe.share,
            self._pool,
            lambda: self._lot(self._ask(operator)),
            lambda arrival, epoch: pull(self.caller, arrival, operator, epoch),
            self._is_alive,
            lambda epoch, stuck: self._tell(operator, epoch, stuck),
        )
        return Tenancy(WorkerId(self.config.worker), operator, means)

    def _ask(self, operator: str) -> SpecAnswer:
        question = SpecQuestion(self.config.key, self.config.worker, operator)
        return self.caller.call(self.config.coordinator, "spec", question, SpecAnswer)

    def _lot(self, answer: SpecAnswer) -> Lot:
        return Lot(_unpickled(answer.spec), answer.bins, np.frombuffer(answer.owned, np.int64), answer.epoch)

    def _tell(self, operator: str, epoch: int, stuck: Stuck) -> None:
        message = StuckMessage(self.config.key, operator, epoch, self.config.worker, stuck)
        # Without the coordinator the query ends all the same: then for this, too.
        with contextlib.suppress(MegaphoneError, OSError, flight.FlightError):
            self.caller.call(self.config.coordinator, "stuck", message, type(None))

    def _is_alive(self, arrival: Arrival) -> bool:
        question = AliveQuestion(self.config.key, arrival.source, arrival.seat.incarnation)
        return self.caller.call(self.config.coordinator, "alive", question, bool)


def _unpickled(spec: bytes) -> OperatorSpec:
    # From the coordinator that holds the same secret; nobody else can have sent it.
    unpickled: OperatorSpec = pickle.loads(spec)
    return unpickled


def _payloads(reader: Any) -> Any:
    for chunk in reader:
        batch: pa.RecordBatch = chunk.data
        kinds = batch.column(0)
        payloads = batch.column(1)
        for row in range(batch.num_rows):
            yield kinds[row].as_py(), payloads[row].as_buffer()


def main() -> None:
    """Run until the lease ends."""
    # A bin that was lent keeps a file open as long as its state lives.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    config = load(sys.stdin.buffer.read(), WorkerConfig)
    # A private folder: only this user can reach the socket in it.
    folder = SocketFolder()
    worker = Worker(config)
    host = _host_towards(config.coordinator.tcp)
    _, address = listen(worker, config.secret, folder.path / "worker.sock", host)
    end = partial(_end, folder)
    threading.Thread(target=_watch_executor, args=(config.executor_pid, end), daemon=True).start()
    if config.warm:
        worker.warm_up()
    join = Join(
        config.key, config.worker, config.incarnation, address, os.getpid(), socket.gethostname(), config.executor_pid
    )
    with contextlib.suppress(OSError):
        hold_lease(config.lease, config.secret, dump(join))
    end()


def _end(folder: SocketFolder) -> NoReturn:
    folder.close()
    # At once: a server thread in the middle of a call must not keep an unwanted worker alive.
    os._exit(0)


def _host_towards(coordinator: str | None) -> str | None:
    """The address of this machine on the way to the coordinator; none if that is on a Unix socket."""
    if coordinator is None:
        return None
    host, port = coordinator.removeprefix("grpc+tcp://").rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as probe:
        return str(probe.getsockname()[0])


def _watch_executor(pid: int | None, end: Callable[[], NoReturn]) -> None:
    if pid is None:
        return
    try:
        executor = psutil.Process(pid)
        while executor.is_running() and executor.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.5)
    except psutil.NoSuchProcess:
        pass
    end()


if __name__ == "__main__":
    main()
