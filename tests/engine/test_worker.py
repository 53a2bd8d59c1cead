"""Would catch an epoch applied in part, a worker that exists twice, and an error that does not arrive."""

import pickle
import socket

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from megaphone.bins import WorkerId
from megaphone.dataflow.exchange import encode
from megaphone.dataflow.operators import Input, key_operator
from megaphone.dataflow.records import Records
from megaphone.engine.spark.messages import (
    Address,
    ApplyRequest,
    Join,
    Key,
    Orders,
    SpecAnswer,
    SpecQuestion,
    WorkerConfig,
    dump,
    load,
)
from megaphone.engine.spark.placement import Placement
from megaphone.engine.spark.rpc import Caller, Service, listen, raise_own
from megaphone.engine.spark.task import PAYLOADS, _payload_batch, _read_outputs
from megaphone.engine.spark.worker import Worker
from megaphone.errors import FoldError, ProtocolError
from megaphone.progress import END, Time

KEY = Key("query", "run", "control")
WORD = pa.schema([("word", pa.string())])


def count(word, _, n):
    if word == "bad":
        raise RuntimeError("x" * 50_000)
    return (n or 0) + 1, [(word, (n or 0) + 1)]


class FakeCoordinator(Service):
    """Knows one operator, all of whose bins are on one worker."""

    def __init__(self):
        super().__init__()
        spec = key_operator("op", Input(WORD, ("word",)), count, pa.schema([("word", pa.string()), ("n", pa.int64())]))
        answer = SpecAnswer(pickle.dumps(spec), 4, np.arange(4).tobytes(), -1)
        self.actions["spec"] = lambda message: dump(load(message, SpecQuestion) and answer)


@pytest.fixture
def worker(tmp_path):
    listeners, coordinator = listen(FakeCoordinator(), "secret", tmp_path / "c.sock", None)
    config = WorkerConfig(KEY, 0, coordinator, coordinator, "secret", True, None)
    more, address = listen(Worker(config), "secret", tmp_path / "w.sock", None)
    yield address
    for listener in listeners + more:
        listener.shutdown()


def feed(address, words, promised=None, epoch=0):
    """Feed one payload for each word to a worker, having promised some number of them."""
    caller = Caller("secret")
    orders = Orders("op", epoch, -(2**63), [], [], [])
    request = ApplyRequest(orders, epoch + 1, len(words) if promised is None else promised)
    writer, reader = caller.client(address).do_exchange(
        flight.FlightDescriptor.for_command(dump(request)), caller.options
    )
    try:
        writer.begin(PAYLOADS)
        for word in words:
            records = Records.at(Time(epoch), np.zeros(1, np.uint32), pa.record_batch({"word": [word]}))
            writer.write_batch(_payload_batch(0, encode([records])))
        writer.done_writing()
        outputs, report = _read_outputs(reader)
    except flight.FlightError as error:
        raise_own(error)
    return [row for batch in outputs for row in batch.to_pylist()], report


def test_feeder_that_dies_half_way_leaves_the_epoch_unapplied(worker):
    with pytest.raises(ProtocolError, match="worker 0 got 1 of 2 payloads of operator op in epoch 0"):
        feed(worker, ["a"], promised=2)
    assert feed(worker, ["a", "b"])[0] == [{"word": "a", "n": 1}, {"word": "b", "n": 1}]


def test_epoch_fed_twice_is_applied_once(worker):
    once = feed(worker, ["a", "a"])
    assert feed(worker, ["a", "a"]) == once
    assert feed(worker, ["a"], epoch=1)[0] == [{"word": "a", "n": 3}]


def test_epoch_out_of_turn_is_refused(worker):
    feed(worker, ["a"])
    with pytest.raises(ProtocolError, match="is at epoch 0 and cannot apply epoch 2"):
        feed(worker, ["a"], epoch=2)


def test_long_error_of_a_fold_arrives_with_its_first_line(worker):
    with pytest.raises(FoldError, match=r"\Afold of operator op failed in bin 0 at time 0 on worker 0"):
        feed(worker, ["bad"])


def test_stranger_is_refused(worker):
    with pytest.raises(flight.FlightUnauthenticatedError):
        Caller("guess").call(worker, "prepare", [], type(None))


def join(worker, pid):
    return Join(KEY, worker, Address(f"{pid}.sock"), pid, "host", None)


def test_second_process_for_a_worker_is_turned_away():
    placement = Placement(lambda: 1)
    assert placement.claim("executor", [WorkerId(0)]) == [0]
    ours, theirs = socket.socketpair()
    placement.joined(join(0, 1), ours)
    with pytest.raises(OSError, match="worker 0 is not wanted"):
        placement.joined(join(0, 2), ours)
    assert placement.residents[WorkerId(0)].pid == 1
    placement.close()
    assert theirs.recv(1) == b""
    theirs.close()
    ours.close()


def test_worker_nobody_asked_for_is_turned_away():
    with socket.socket() as connection, pytest.raises(OSError, match="worker 3 is not wanted"):
        Placement(lambda: 1).joined(join(3, 1), connection)


def test_no_record_can_be_post_dated_past_every_time():
    from megaphone.dataflow.operators import bin_operator
    from megaphone.engine.local import LocalEngine

    def late(time, data, state, notificator):
        notificator.notify_at(END, data[0])

    spec = bin_operator("late", [Input(WORD, ("word",))], late, WORD, dict)
    with pytest.raises(FoldError, match="no time is that late"):
        LocalEngine(spec, workers=1, bins=2).epoch([("a",)])
