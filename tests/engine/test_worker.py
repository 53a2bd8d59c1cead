"""Would catch an epoch applied in part, a worker that exists twice, and an error that does not arrive.

And a process that answers for a worker it no longer is, an epoch that is given out and not logged, and a lost worker
that nobody may replace.
"""

import errno
import pickle
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from megaphone.bins import WorkerId
from megaphone.configuration import Assignment
from megaphone.control.travel import Stuck
from megaphone.dataflow.exchange import encode
from megaphone.dataflow.operators import Input, key_operator
from megaphone.dataflow.records import Records
from megaphone.durability.files import Draft
from megaphone.durability.manifest import Manifest, shape_of
from megaphone.durability.store import Store
from megaphone.engine.spark import placement as placement_module
from megaphone.engine.spark.feed import payload_batch, read_outputs
from megaphone.engine.spark.memoir import Memoir
from megaphone.engine.spark.messages import (
    Address,
    ApplyRequest,
    Birth,
    Join,
    Key,
    Orders,
    PlaceAnswer,
    Safe,
    Seat,
    SpecAnswer,
    SpecQuestion,
    TravelAnswer,
    TravelQuestion,
    WorkerConfig,
    dump,
    load,
)
from megaphone.engine.spark.placement import Placement
from megaphone.engine.spark.rpc import PAYLOADS, Caller, Service, listen, raise_own
from megaphone.engine.spark.worker import Worker
from megaphone.errors import CheckpointError, FoldError, ProtocolError
from megaphone.progress import END, Time

KEY = Key("query", "run", "control")
WORD = pa.schema([("word", pa.string())])


def count(word, _, n):
    if word == "bad":
        raise RuntimeError("x" * 50_000)
    if word == "hoard":
        # The second time it lets go.
        return (None if n else (letter for letter in word)), []
    return (n or 0) + 1, [(word, (n or 0) + 1)]


class FakeCoordinator(Service):
    """Knows one operator, all of whose bins are on one worker, and from which epoch on it is to go."""

    def __init__(self, checkpoint):
        super().__init__()
        spec = key_operator("op", Input(WORD, ("word",)), count, pa.schema([("word", pa.string()), ("n", pa.int64())]))
        memoir = Memoir(
            Store(str(checkpoint), "control"),
            Manifest(4, 1, {"op": shape_of(spec, ("word",))}),
            {"op": pickle.dumps(spec)},
            {"op": ("epoch", 1)},
        )
        self.epochs = memoir.begin(0, Assignment([0] * 4))
        self.answer = SpecAnswer(
            pickle.dumps(spec), 4, np.arange(4).tobytes(), -1, Safe(str(checkpoint), "control", memoir.attempt, 0.0)
        )
        self.actions["spec"] = lambda message: dump(load(message, SpecQuestion) and self.answer)
        self._memoir = memoir

    def plan(self, epoch):
        """The epochs up to this one are planned; a worker that begins now begins before it."""
        self._memoir.open(self.epochs, epoch, False)
        self.answer = replace(self.answer, epoch=epoch - 1)


@pytest.fixture
def coordinator(tmp_path):
    return FakeCoordinator(tmp_path / "checkpoint")


@pytest.fixture
def start(tmp_path, coordinator):
    """Starts a process of worker 0."""
    listeners, address = listen(coordinator, "secret", tmp_path / "c.sock", None)

    def start(incarnation):
        config = WorkerConfig(KEY, 0, incarnation, address, address, "secret", True, None)
        more, seat = listen(Worker(config), "secret", tmp_path / f"w{incarnation}.sock", None)
        listeners.extend(more)
        return seat

    yield start
    for listener in listeners:
        listener.shutdown()


@pytest.fixture
def worker(start):
    return start(1)


def feed(address, words, promised=None, epoch=0, incarnation=1):
    """Feed one payload for each word to a worker, having promised some number of them."""
    caller = Caller("secret")
    orders = Orders("op", epoch, -(2**63), [], [], [])
    promised = len(words) if promised is None else promised
    request = ApplyRequest(incarnation, orders, epoch + 1, [-(2**63)], promised)
    descriptor = flight.FlightDescriptor.for_command(dump(request))
    try:
        with caller.client(address) as client:
            writer, reader = client.do_exchange(descriptor, caller.options)
            writer.begin(PAYLOADS)
            for word in words:
                records = Records.at(Time(epoch), np.zeros(1, np.uint32), pa.record_batch({"word": [word]}))
                writer.write_batch(payload_batch(0, encode([records])))
            writer.done_writing()
            outputs, report = read_outputs(reader)
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
    with pytest.raises(ProtocolError, match=r"operator op on worker 0 is at epoch -?\d and cannot apply epoch 2"):
        feed(worker, ["a"], epoch=2)


def test_long_error_of_a_fold_arrives_with_its_first_line(worker):
    with pytest.raises(FoldError, match=r"\Afold of operator op failed in bin 0 at time 0 on worker 0"):
        feed(worker, ["bad"])


def test_stranger_is_refused(worker):
    with pytest.raises(flight.FlightUnauthenticatedError):
        Caller("guess").call(worker, "prepare", [], type(None))


def test_epoch_is_in_the_log_before_its_outputs_are_given_out(worker, coordinator):
    feed(worker, ["a"])
    ((file, _),) = coordinator._memoir.store.log()
    assert (file.epoch, file.operator, file.worker, file.incarnation) == (0, "op", 0, 1)


def test_epoch_that_cannot_be_logged_is_not_given_out_and_logged_when_it_is_fed_again(worker, monkeypatch, tmp_path):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Draft, "finish", full)
        for _ in range(2):
            with pytest.raises(CheckpointError, match=r"worker 0 cannot log epoch 0 of operator op: .*No space left"):
                feed(worker, ["a"])
    assert not list((tmp_path / "checkpoint").rglob("log/*"))
    assert feed(worker, ["a"])[0] == [{"word": "a", "n": 1}]
    assert len(list((tmp_path / "checkpoint").rglob("log/*"))) == 1


def test_process_that_takes_a_lost_ones_place_goes_on_from_the_log(start, coordinator):
    coordinator.plan(0)
    feed(start(1), ["a", "a"])
    coordinator.plan(1)
    assert feed(start(2), ["a"], epoch=1, incarnation=2)[0] == [{"word": "a", "n": 3}]


def test_process_that_takes_a_lost_ones_place_keeps_the_order_it_has_given_out(start, coordinator):
    coordinator.plan(0)
    first = feed(start(1), ["a", "b"])
    # The task was run again, and the shuffle brought its rows in another order.
    assert feed(start(2), ["b", "a"], incarnation=2)[0] == first[0] == [{"word": "a", "n": 1}, {"word": "b", "n": 1}]


def test_process_that_failed_in_an_epoch_begins_it_anew(worker, coordinator):
    coordinator.plan(0)
    with pytest.raises(FoldError):
        feed(worker, ["a", "bad"])
    assert feed(worker, ["a"])[0] == [{"word": "a", "n": 1}]


def travel(address, *bins):
    """Ask a worker which bins can travel."""
    return Caller("secret").call(address, "travel", TravelQuestion("op", list(bins), 2.0), TravelAnswer)


def test_worker_knows_which_bins_cannot_travel_and_why(worker):
    feed(worker, ["a"])
    assert travel(worker, 0, 1) == TravelAnswer([], [])
    feed(worker, ["hoard"], epoch=1)
    stuck = Stuck(0, "TypeError: cannot pickle 'generator' object")
    assert travel(worker, 0, 1, 2, 3) == TravelAnswer([stuck], [])
    assert feed(worker, ["b"], epoch=2)[1].stuck == (stuck,)
    assert feed(worker, ["b"], epoch=3)[1].stuck is None


def test_bin_can_travel_again_when_its_state_can_be_pickled_again(worker):
    feed(worker, ["hoard"])
    assert travel(worker, 0).stuck
    feed(worker, ["hoard"], epoch=1)
    assert travel(worker, 0) == TravelAnswer([], [])
    assert feed(worker, ["b"], epoch=2)[1].stuck == ()


def test_process_that_is_no_longer_the_worker_refuses(start):
    with pytest.raises(ProtocolError, match="epoch 0 of operator op is for incarnation 2 of worker 0, not for 1"):
        feed(start(1), ["a"], incarnation=2)


def join(worker, pid, incarnation=1):
    return Join(KEY, worker, incarnation, Address(f"{pid}.sock"), pid, "host", None)


@pytest.fixture
def line():
    """A connection, and its other end."""
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_second_process_for_a_worker_is_turned_away(line):
    placement = Placement(lambda: 1)
    assert placement.claim("executor", [WorkerId(0)]) == [Birth(0, 1)]
    ours, theirs = line
    placement.joined(join(0, 1), ours)
    with pytest.raises(OSError, match="worker 0 is not wanted"):
        placement.joined(join(0, 2), ours)
    assert placement.residents[WorkerId(0)].pid == 1
    placement.close()
    assert theirs.recv(1) == b""


def test_worker_nobody_asked_for_is_turned_away():
    with socket.socket() as connection, pytest.raises(OSError, match="worker 3 is not wanted"):
        Placement(lambda: 1).joined(join(3, 1), connection)


def test_worker_that_is_there_is_found_with_its_incarnation(line):
    placement = Placement(lambda: 1)
    placement.claim("executor", [WorkerId(0)])
    placement.joined(join(0, 7), line[0])
    assert placement.find(WorkerId(0), "executor") == PlaceAnswer(Seat(Address("7.sock"), 1))
    assert placement.seats() == {0: Seat(Address("7.sock"), 1)}
    assert placement.is_seated(WorkerId(0), 1)
    assert not placement.is_seated(WorkerId(0), 2)


def test_lost_worker_is_started_anew_by_who_could_not_reach_it(line):
    placement = Placement(lambda: 1)
    placement.claim("executor", [WorkerId(0)])
    placement.joined(join(0, 7), line[0])
    assert placement.find(WorkerId(0), "other", lost=1) == PlaceAnswer(None, Birth(0, 2))
    assert not placement.is_seated(WorkerId(0), 1)
    assert line[1].recv(1) == b""


def test_worker_is_started_anew_when_its_process_has_ended(line):
    placement = Placement(lambda: 1)
    placement.claim("executor", [WorkerId(0)])
    placement.joined(join(0, 7), line[0])
    placement.gone(join(0, 7))
    assert placement.claim("executor", [WorkerId(0)]) == [Birth(0, 2)]


def test_lost_process_that_comes_back_is_nobody(line):
    placement = Placement(lambda: 1)
    placement.claim("executor", [WorkerId(0)])
    placement.gone(join(0, 7))
    placement.joined(join(0, 7), line[0])
    (birth,) = [placement.find(WorkerId(0), "other", lost=1).birth]
    assert birth == Birth(0, 2)
    with pytest.raises(OSError, match="worker 0 is not wanted"):
        placement.joined(join(0, 7), line[0])


def test_late_word_of_a_lost_process_does_not_touch_the_one_in_its_place(line):
    placement = Placement(lambda: 1)
    placement.claim("executor", [WorkerId(0)])
    placement.joined(join(0, 7), line[0])
    placement.find(WorkerId(0), "executor", lost=1)
    placement.joined(join(0, 8, incarnation=2), line[0])
    placement.gone(join(0, 7))
    assert placement.find(WorkerId(0), "executor", lost=1).seat == Seat(Address("8.sock"), 2)


@pytest.mark.parametrize(("workers", "executors"), [(4, 3), (5, 3), (2, 3), (6, 2), (7, 4)])
def test_workers_are_spread_evenly_over_the_executors_that_ask(workers, executors):
    placement = Placement(lambda: executors)
    wanted = [WorkerId(worker) for worker in range(workers)]
    counts = [len(placement.claim(f"executor {number}", wanted)) for number in range(executors)]
    assert sum(counts) == workers
    assert max(counts) - min(counts) <= 1


def test_executor_of_a_running_query_starts_few_workers_at_a_time(line):
    placement = Placement(lambda: 1)
    assert len(placement.claim("executor", [WorkerId(0), WorkerId(1)])) == 2
    wanted = [WorkerId(worker) for worker in range(12)]
    for incarnation in (1, 2):
        placement.joined(join(incarnation - 1, 7, incarnation), line[0])
    rounds = []
    while births := placement.claim("executor", wanted):
        # Not one more before these are there.
        assert placement.claim("executor", wanted) == []
        rounds.append(len(births))
        for birth in births:
            placement.joined(join(birth.worker, 7, birth.incarnation), line[0])
    assert rounds == [1, 1, 2, 3, 3]
    # One that was let go is new when it comes back; one that was lost is not: the query waits for it.
    for resident in [placement.residents[WorkerId(worker)] for worker in (3, 4, 5, 6, 7, 8)]:
        placement.dismiss(WorkerId(resident.worker)) if resident.worker < 6 else placement.gone(resident)
    assert [birth.worker for birth in placement.claim("executor", wanted)] == [6, 7, 8]


def test_new_worker_is_left_to_the_executor_that_has_none():
    executors = 2
    placement = Placement(lambda: executors)
    three, four = ([WorkerId(worker) for worker in range(workers)] for workers in (3, 4))
    assert [len(placement.claim(executor, three)) for executor in ("first", "second")] == [2, 1]
    executors = 3
    assert [len(placement.claim(executor, four)) for executor in ("first", "second", "third")] == [0, 0, 1]


def test_new_worker_is_started_by_any_executor_if_those_with_fewer_do_not_ask(monkeypatch):
    monkeypatch.setattr(placement_module, "ROOM_S", 0.5)
    placement = Placement(lambda: 2)
    wanted = [WorkerId(0), WorkerId(1)]
    assert placement.claim("first", wanted) == [Birth(0, 1)]
    assert placement.claim("first", wanted) == []
    time.sleep(0.6)
    assert placement.claim("first", wanted) == [Birth(1, 2)]


def test_first_process_of_a_worker_is_left_to_an_executor_that_has_fewer():
    placement = Placement(lambda: 2)
    wanted = [WorkerId(0), WorkerId(1)]
    placement.claim("first", wanted)
    with ThreadPoolExecutor() as pool:
        # A task that needs the other worker, on an executor that has one already.
        answer = pool.submit(placement.find, WorkerId(1), "first")
        assert placement.claim("second", wanted) == [Birth(1, 2)]
        with socket.socket() as connection:
            placement.joined(join(1, 7, incarnation=2), connection)
            assert answer.result() == PlaceAnswer(Seat(Address("7.sock"), 2))


def test_first_process_of_a_worker_is_started_by_who_needs_it_if_nobody_else_does(monkeypatch):
    monkeypatch.setattr(placement_module, "ROOM_S", 0.5)
    placement = Placement(lambda: 2)
    placement.claim("first", [WorkerId(0), WorkerId(1)])
    assert placement.find(WorkerId(1), "first") == PlaceAnswer(None, Birth(1, 2))


def test_no_record_can_be_post_dated_past_every_time():
    from megaphone.dataflow.operators import bin_operator
    from megaphone.engine.local import LocalEngine

    def late(time, data, state, notificator):
        notificator.notify_at(END, data[0])

    spec = bin_operator("late", [Input(WORD, ("word",))], late, WORD, dict)
    with pytest.raises(FoldError, match="no time is that late"):
        LocalEngine(spec, workers=1, bins=2).epoch([("a",)])
