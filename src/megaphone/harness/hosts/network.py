"""Hosts on one machine: each has its own network, processes, name and temporary folder; a switch joins them.

Nothing of it is in the machine's own network, since the switch is a name space, too. Each is held open by a process
that ends when we do, however that happens; with it go all that run there, and with them the network.
Neighbours: cluster.py has Spark run on them.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil

PREFIX = "10.83.0."
"""Of no meaning outside: no way leads from the switch to any other network."""


class NotHere(Exception):
    """This machine, or this user's rights on it, does not allow for hosts."""


class Space:
    """Name spaces that last as long as the process that holds them, which ends with us."""

    def __init__(self, unshare: list[str], script: str) -> None:
        """Make them, and run a script in them."""
        # Ignored, the end of a child needs nobody to note it: whoever is orphaned there leaves no corpse.
        hold = f"set -e\n{script}\ntrap '' CHLD\necho ready\nexec cat"
        self._holder = subprocess.Popen(
            [*unshare, "sh", "-c", hold],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"ready\n":
            _, told = self._holder.communicate()
            raise NotHere(told.decode(errors="replace").strip().splitlines()[-1])
        self.pid = [self._holder.pid, *(c.pid for c in psutil.Process(self._holder.pid).children(recursive=True))][-1]

    def close(self) -> None:
        """Let go, and wait until nobody is left."""
        self._holder.communicate()


class Host:
    """One of the hosts."""

    def __init__(self, name: str, address: str, space: Space, enter: list[str], temporary: Path) -> None:
        self.name = name
        self.address = address
        self.temporary = temporary
        self._space = space
        self._enter = enter
        self._processes = _processes_of(space.pid)
        self._started: list[subprocess.Popen[Any]] = []

    def start(self, command: Iterable[str], environment: Mapping[str, str], **options: Any) -> subprocess.Popen[Any]:
        """Start a process there."""
        told = {**os.environ, **environment, "TMPDIR": str(self.temporary)}
        # Who enters a host finds himself at its root.
        there = [*self._enter, "env", "-C", str(Path.cwd()), *command]
        self._started.append(subprocess.Popen(there, env=told, start_new_session=True, **options))
        return self._started[-1]

    def processes(self) -> dict[int, str]:
        """Everything that runs there, by its number there; how it was called, and not the holder."""
        found = {}
        for process in psutil.process_iter(["cmdline", "status"]):
            if process.info["status"] == psutil.STATUS_ZOMBIE or _processes_of(process.pid) != self._processes:
                continue
            inside = _number_inside(process.pid)
            if inside is not None and inside != 1:
                found[inside] = " ".join(process.info["cmdline"] or [])
        return found

    def peers(self, pid: int) -> set[tuple[str, int]]:
        """Who a process there is connected to by TCP: addresses and ports."""
        return {remote for _, remote in self._sockets(pid, "established")}

    def ports(self, pid: int) -> set[int]:
        """Where a process there listens on TCP."""
        return {port for (_, port), _ in self._sockets(pid, "listening")}

    def _sockets(self, pid: int, state: str) -> list[tuple[tuple[str, int], tuple[str, int]]]:
        listed = subprocess.run(
            [*self._enter, "ss", "-Htnp", "state", state], check=True, capture_output=True, text=True
        ).stdout
        lines = [line.split() for line in listed.splitlines() if f"pid={pid}," in line]
        return [(_socket(line[2]), _socket(line[3])) for line in lines]

    def close(self) -> None:
        """End everything there."""
        for process in self._started:
            # Only the door it went in by; left stopped, that would keep the dead from being buried.
            process.kill()
        self._space.close()
        for process in self._started:
            # Closes what led there, and waits for its end.
            with process:
                pass


class Network:
    """The switch, and the hosts on it."""

    def __init__(self, shared: Path, *names: str) -> None:
        """Connect hosts of these names; `shared` is a folder that all of them have in common."""
        if missing := [tool for tool in ("ip", "ss", "unshare", "nsenter") if shutil.which(tool) is None]:
            raise NotHere(f"{' and '.join(missing)} not found; install iproute2 and util-linux")
        self._shared = shared
        self._temporary = shared / "t"
        self._temporary.mkdir()
        # Who is not root may be it in a name space of users, where the system allows that.
        root = os.geteuid() == 0
        become = [] if root else ["--user", "--map-root-user"]
        self._same_user = [] if root else ["--user", "--preserve-credentials"]
        self._switch = Space(
            ["unshare", *become, "--net"], "ip link add name switch type bridge\nip link set dev switch up"
        )
        addresses = {name: f"{PREFIX}{number}" for number, name in enumerate(names, 1)}
        table = [f"{address} {name}\n" for name, address in {"localhost": "127.0.0.1", **addresses}.items()]
        (shared / "hosts").write_text("".join(table))
        self.hosts: dict[str, Host] = {}
        for name, address in addresses.items():
            self.hosts[name] = self._connect(name, address)

    def cut(self, host: Host) -> None:
        """Pull a host's cable: nobody is told, and nothing comes through."""
        self._on_switch("ip", "link", "set", "dev", host.name, "down")

    def mend(self, host: Host) -> None:
        """Plug it in again."""
        self._on_switch("ip", "link", "set", "dev", host.name, "up")

    def close(self) -> None:
        """End everything on every host, and the switch."""
        for host in self.hosts.values():
            host.close()
        self._switch.close()

    def _connect(self, name: str, address: str) -> Host:
        script = (
            f"hostname {name}\nip link set dev lo up\n"
            # Sockets and temporary files of one host are not to be found on another.
            f"mount -t tmpfs none {shlex.quote(str(self._temporary))}\n"
            f"mount --bind {shlex.quote(str(self._shared / 'hosts'))} /etc/hosts"
        )
        into = ["nsenter", "-t", str(self._switch.pid), *self._same_user, "--"] if self._same_user else []
        space = Space([*into, "unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc"], script)
        enter = ["nsenter", "-t", str(space.pid), *self._same_user, "--net", "--uts", "--mount", "--pid", "--"]
        port = ["ip", "link", "add", "name", name, "type", "veth", "peer", "name", "cable", "netns", str(space.pid)]
        self._on_switch(*port)
        self._on_switch("ip", "link", "set", "dev", name, "master", "switch", "up")
        for words in (f"addr add {address}/24 dev cable", "link set dev cable up"):
            _run([*enter, "ip", *words.split()])
        return Host(name, address, space, enter, self._temporary)

    def _on_switch(self, *command: str) -> None:
        _run(["nsenter", "-t", str(self._switch.pid), *self._same_user, "--net", "--", *command])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise NotHere(done.stderr.strip())


def _processes_of(pid: int) -> str | None:
    """The name space of processes that one is in."""
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return None


def _number_inside(pid: int) -> int | None:
    """A process's number in the innermost name space it is in."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next(int(line.split()[-1]) for line in lines if line.startswith("NSpid:"))


def _socket(text: str) -> tuple[str, int]:
    """An address as `ss` writes it.

    >>> _socket("10.0.0.1:80"), _socket("[::ffff:10.0.0.1]:80")
    (('10.0.0.1', 80), ('10.0.0.1', 80))
    """
    address, port = text.rsplit(":", 1)
    return address.strip("[]").removeprefix("::ffff:"), int(port) if port.isdigit() else 0
