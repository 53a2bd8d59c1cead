"""Would catch lent memory that is not the state, that a replay would see changed, or that cannot do without a loan."""

import os
import subprocess
import sys

import numpy as np
import pyarrow.flight as flight
import pytest

from megaphone.bins import BinId
from megaphone.dataflow.state import Parcel, pack, unpack
from megaphone.durability.ledger import Line
from megaphone.engine.spark import transfer
from megaphone.engine.spark.memory import LEND_FROM, Loans, borrow, machine
from megaphone.engine.spark.messages import Arrival, Loan, Seat
from megaphone.engine.spark.rpc import Caller, Service, listen

pytestmark = pytest.mark.skipif(not machine(), reason="this system cannot lend memory")

STATE = {"counts": np.arange(200_000), "names": ["a", "b"]}


def is_state(state):
    return (state["counts"] == STATE["counts"]).all() and state["names"] == STATE["names"]


def test_borrowed_state_is_the_state_and_can_be_written_to():
    loans = Loans()
    state = unpack(BinId(1), borrow(loans.lend(pack(Parcel(BinId(1), STATE, (None,))).parts))).state
    loans.end()
    assert is_state(state)
    state["counts"][0] = 7
    assert STATE["counts"][0] == 0


def test_each_pull_gets_a_copy_of_its_own():
    loans, packed = Loans(), pack(Parcel(BinId(1), STATE, (None,)))
    first = unpack(BinId(1), borrow(loans.lend(packed.parts))).state
    first["counts"] += 1
    assert is_state(unpack(BinId(1), borrow(loans.lend(packed.parts))).state)
    loans.end()


def test_another_process_can_borrow_and_keeps_what_it_has():
    loan = Loans()
    lent = loan.lend([memoryview(b"x" * 100_000), memoryview(b"yz")])
    program = (
        "from megaphone.engine.spark.memory import borrow\n"
        "from megaphone.engine.spark.messages import Loan\n"
        f"parts = borrow(Loan({lent.pid}, {lent.file}, {lent.places!r}))\n"
        "print(bytes(parts[0][:3]), bytes(parts[1]), len(parts[0]))"
    )
    seen = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert seen.stdout.split() == ["b'xxx'", "b'yz'", "100000"]


class Owner(Service):
    """Serves one large bin; lends unless the asker wants no loan, or lends what nobody can reach."""

    def __init__(self, reachable):
        super().__init__()
        self.loans = Loans() if reachable else Unreachable()
        self.asked = []

    def get(self, ticket):
        request = transfer.load(ticket, transfer.PullRequest)
        self.asked.append(request.machine)
        parcels = [(pack(Parcel(BinId(bin), STATE, (None,))), Line(1, 2)) for bin in request.bins]
        return transfer.serve(parcels, self.loans if request.machine else None)


class Unreachable(Loans):
    """Memory of a process that cannot be seen, as from another container."""

    def lend(self, buffers):
        return Loan(os.getpid(), 99_999, [(0, 1)] * len(buffers))


@pytest.fixture
def pulled(tmp_path):
    def pull(reachable):
        owner = Owner(reachable)
        listeners, address = listen(owner, "secret", tmp_path / f"{reachable}.sock", None)
        arrival = Arrival(0, Seat(address, 1), [3, 4])
        parcels = {
            parcel.bin: parcel
            for parcel, line, _ in transfer.pull(Caller("secret"), arrival, "op", 5)
            if line == Line(1, 2)
        }
        for listener in listeners:
            listener.shutdown()
        return owner, parcels

    return pull


def test_pull_on_one_machine_borrows(pulled):
    owner, parcels = pulled(reachable=True)
    assert owner.asked == [machine()]
    assert sum(pack(Parcel(BinId(0), STATE, ())).sizes) >= LEND_FROM
    assert all(is_state(parcel.state) for parcel in parcels.values())
    assert sorted(parcels) == [3, 4]


def test_pull_streams_what_it_cannot_borrow(pulled):
    owner, parcels = pulled(reachable=False)
    assert owner.asked == [machine(), ""]
    assert all(is_state(parcel.state) for parcel in parcels.values())


def test_stranger_gets_nothing(tmp_path):
    owner = Owner(reachable=True)
    listeners, address = listen(owner, "secret", tmp_path / "s.sock", None)
    with pytest.raises(flight.FlightUnauthenticatedError):
        list(transfer.pull(Caller("guess"), Arrival(0, Seat(address, 1), [3]), "op", 5))
    assert owner.asked == []
    assert (tmp_path / "s.sock").stat().st_mode & 0o077 == 0
    for listener in listeners:
        listener.shutdown()


BETWEEN = """
import gc, psutil, sys
import numpy as np
from megaphone.engine.spark.memory import MAP_FROM, room
size = 2 * MAP_FROM
# The allocator sees that memory of this size is given back, and will keep such from now on.
for _ in range(3):
    np.ones(size, np.uint8)
bins = [room(size) for _ in range(64)]
for bin in bins:
    bin[:] = 1
full = psutil.Process().memory_info().rss
del bin, bins[::2]
gc.collect()
print((full - psutil.Process().memory_info().rss) / size)
"""


def test_memory_of_a_bin_that_left_goes_back_to_the_system():
    done = subprocess.run([sys.executable, "-c", BETWEEN], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 30
