"""Would catch connections, each with a thread and a file, that stay open to workers that are gone."""

import threading
import time
from types import SimpleNamespace

import psutil
import pytest

from megaphone.engine.spark import rpc
from megaphone.engine.spark.messages import dump, load
from megaphone.engine.spark.rpc import Caller, Service, listen

SERVICES = 6


class Slow(Service):
    """Answers at once, or when it is let."""

    def __init__(self):
        super().__init__()
        self.begun, self.let = threading.Event(), threading.Event()
        self.actions |= {"quick": lambda message: message, "slow": self._slow}

    def _slow(self, message):
        self.begun.set()
        assert self.let.wait(10)
        return dump(load(message, int) + 1)


@pytest.fixture
def services(tmp_path):
    """Services that listen, each with its address."""
    found = [Slow() for _ in range(SERVICES)]
    heard = [listen(service, "secret", tmp_path / f"{n}.sock", None) for n, service in enumerate(found)]
    yield [(service, address) for service, (_, address) in zip(found, heard, strict=True)]
    for listeners, _ in heard:
        for listener in listeners:
            listener.shutdown()


@pytest.fixture
def clock(monkeypatch):
    """The seconds that a caller sees, in a list of one."""
    seconds = [100.0]
    monkeypatch.setattr(rpc, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    return seconds


def test_connections_without_a_call_for_a_while_are_closed(services, clock):
    caller = Caller("secret")
    for _, address in services:
        assert caller.call(address, "quick", 3, int) == 3
    most = threads()
    clock[0] += rpc.IDLE_S - 1
    assert caller.call(services[0][1], "quick", 4, int) == 4
    assert len(caller._connections) == SERVICES
    clock[0] += 2
    caller.close_idle()
    assert list(caller._connections) == [f"grpc+unix://{services[0][1].unix}"]
    wait_for(lambda: threads() <= most - (SERVICES - 1))
    assert caller.call(services[1][1], "quick", 5, int) == 5


def threads():
    """Threads of this process that Python has not started: those of services stay, those of connections end."""
    return psutil.Process().num_threads() - threading.active_count()


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_each_call_closes_what_is_idle(services, clock):
    caller = Caller("secret")
    for _, address in services:
        clock[0] += rpc.IDLE_S / 2
        caller.call(address, "quick", 0, int)
    assert len(caller._connections) == 3


def test_connection_stays_open_during_a_call(services, clock):
    (service, address), (_, other) = services[:2]
    caller, answers = Caller("secret"), []
    thread = threading.Thread(target=lambda: answers.append(caller.call(address, "slow", 1, int)))
    thread.start()
    assert service.begun.wait(10)
    clock[0] += 10 * rpc.IDLE_S
    caller.call(other, "quick", 0, int)
    assert len(caller._connections) == 2
    service.let.set()
    thread.join()
    assert answers == [2]
