"""Would catch hosts that are none: that see each other's sockets or memory, or outlive who made them.

And a worker that is cut off and never notices, or a host that is called by another way than the network.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from megaphone.harness.hosts.network import Network, NotHere

SERVICE = """
import sys, time
from pathlib import Path
from tempfile import mkdtemp
from megaphone.engine.spark.memory import machine
from megaphone.engine.spark.messages import dump
from megaphone.engine.spark.rpc import Service, listen

service = Service()
service.actions["machine"] = lambda message: dump(machine())
listeners, address = listen(service, "secret", Path(mkdtemp()) / "s.sock", sys.argv[1])
print(address.unix, address.tcp, address.kernel, flush=True)
time.sleep(600)
"""

CALLER = """
import sys, time
from megaphone.engine.spark.memory import machine
from megaphone.engine.spark.messages import Address
from megaphone.engine.spark.rpc import Caller, is_near

address = Address(*sys.argv[1:])
caller = Caller("secret")
there = caller.call(address, "machine", None, str)
print(is_near(address), there == machine(), flush=True)
time.sleep(600)
"""

OFFICE = """
import sys, time
from pathlib import Path
from tempfile import mkdtemp
from megaphone.engine.spark.lease import LeaseOffice

def joined(message, connection):
    print("joined", flush=True)
    return lambda: None

office = LeaseOffice(Path(mkdtemp()) / "l.sock", sys.argv[1], "secret", joined, silence_s=600)
print(office.address.unix, office.address.tcp, flush=True)
time.sleep(600)
"""

HOLDER = """
import os, sys
from megaphone.engine.spark import lease
from megaphone.engine.spark.messages import Address

lease.QUIET_S, lease.LOST_S = 1.0, 2.0
print(os.getpid(), flush=True)
try:
    lease.hold_lease(Address(*sys.argv[1:]), "secret", b"here")
except OSError:
    pass
"""

MAKER = """
import sys, time
from pathlib import Path
from megaphone.harness.hosts.network import Network

network = Network(Path(sys.argv[1]), "a")
network.hosts["a"].start(["sleep", sys.argv[2]], {})
time.sleep(600)
"""


@pytest.fixture
def network(tmp_path_factory):
    """Two hosts."""
    try:
        made = Network(tmp_path_factory.mktemp("x"), "a", "b")
    except NotHere as error:
        pytest.skip(f"hosts cannot be made here: {error}")
    yield made
    made.close()


def python(host, script, *arguments):
    """Run a script on a host."""
    # By a shell: what enters a host stops when the process does that it entered for.
    command = ["sh", "-c", '"$@" & wait', "sh", sys.executable, "-c", script, *arguments]
    return host.start(command, {}, stdout=subprocess.PIPE, text=True)


def test_service_on_another_host_is_called_over_the_network(network):
    a, b = network.hosts.values()
    service = python(a, SERVICE, a.address)
    address = service.stdout.readline().split()
    near, far = (python(host, CALLER, *address) for host in (a, b))
    assert near.stdout.readline().split() == ["True", "True"]
    assert far.stdout.readline().split() == ["False", "False"]
    called = (a.address, int(address[1].rsplit(":", 1)[1]))
    callers = {
        name: [
            pid for pid, command in h.processes().items() if "Caller" in command and command.startswith(sys.executable)
        ]
        for name, h in network.hosts.items()
    }
    assert called in b.peers(callers["b"][0])
    assert called not in a.peers(callers["a"][0])


def test_nothing_comes_through_a_cut_cable_and_everything_again_when_it_is_mended(network):
    a, b = network.hosts.values()
    service = python(a, SERVICE, a.address)
    address = service.stdout.readline().split()
    network.cut(a)
    far = python(b, CALLER, *address)
    with pytest.raises(subprocess.TimeoutExpired):
        far.wait(2)
    network.mend(a)
    assert far.stdout.readline().split() == ["False", "False"]


@pytest.mark.parametrize("answering", [False, True], ids=["idle", "with a beat on its way"])
def test_worker_that_is_cut_off_ends_by_itself(network, answering):
    a, b = network.hosts.values()
    office = python(a, OFFICE, a.address)
    holder = python(b, HOLDER, *office.stdout.readline().split())
    pid = holder.stdout.readline().strip()
    assert office.stdout.readline() == "joined\n"
    if answering:
        b.start(["kill", "-STOP", pid], {}).wait()
        # Beats come meanwhile, and are answered when the cable is out.
        time.sleep(2.5)
    network.cut(b)
    if answering:
        b.start(["kill", "-CONT", pid], {}).wait()
    assert holder.wait(60) == 0


def test_hosts_end_with_who_made_them(network, tmp_path_factory):
    mark = f"{600 + os.getpid() / 1e7:.7f}"
    command = [sys.executable, "-c", MAKER, str(tmp_path_factory.mktemp("x")), mark]
    with subprocess.Popen(command) as maker:
        until(lambda: sleepers(mark))
        maker.kill()
    until(lambda: not sleepers(mark))


def sleepers(mark):
    return [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == ["sleep", mark]]


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_is_missing_is_said_in_one_sentence(tmp_path):
    command = [sys.executable, "-m", "megaphone.harness.hosts"]
    environment = {**os.environ, "PATH": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "cluster: skipped, hosts cannot be made here: ip and ss and unshare and nsenter not found; "
        "install iproute2 and util-linux\n"
    )
    assert not list(Path(tmp_path).iterdir())
