"""The place where a control is served: an address that was resolved and judged, and is bound as it was judged.

A host has many forms, and an address that stands for every address of the machine does too: `0`, `0x0`, `000.0.0.0`,
`::ffff:0.0.0.0`, or a name that resolves to one. So it is the address that is judged, never the text.
"""

import socket
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from megaphone.errors import PlanError

HOST = "127.0.0.1"

MAX_PORT = (1 << 16) - 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where to listen, and under which name."""

    host: str = HOST
    """As callers know it: the name that was given, or the address in its usual form."""
    port: int = 0
    """0 for any that is free."""
    address: str = HOST
    scope: int = 0
    """The interface, for an address that is only known on one link."""

    @property
    def family(self) -> socket.AddressFamily:
        """Of the address."""
        return socket.AF_INET6 if ":" in self.address else socket.AF_INET

    @property
    def sockaddr(self) -> tuple[str, int] | tuple[str, int, int, int]:
        """What a socket is bound to."""
        if self.family == socket.AF_INET6:
            return self.address, self.port, 0, self.scope
        return self.address, self.port

    def authority(self, port: int) -> str:
        """Host and port as a URL has them.

        >>> Place().authority(80), Place("::1", address="::1").authority(80)
        ('127.0.0.1:80', '[::1]:80')
        """
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"


def place_of(said: str) -> Place | None:
    """The place for an argument of the user's; none if nothing is to be served.

    >>> place_of("true") == Place(), place_of("False"), place_of("8080").port, place_of("10.0.0.7:80").address
    (True, None, 8080, '10.0.0.7')
    """
    if said.lower() in ("true", "false"):
        return Place() if said.lower() == "true" else None
    host, colon, port = said.rpartition(":")
    if not (port.isascii() and port.isdecimal()) or len(port) > 9 or int(port) > MAX_PORT:
        raise PlanError(f"served on port {port}; choose one from 1 to {MAX_PORT}, or true or false")
    return resolve(host, int(port)) if colon else Place(port=int(port))


def resolve(host: str, port: int = 0) -> Place:
    """The place for a host; refused if any of its addresses stands for every address of this machine."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    # Python and the system take an empty host for every address, each in its own way.
    found = _look_up(bare) if bare else [("::", 0)]
    for address, _ in found:
        if is_every_address(address):
            raise PlanError(f"served on '{host}' ({address}), which stands for every address; choose one")
    address, scope = found[0]
    # One address has many forms, and callers use the usual one.
    return Place(address if _is_numeric(bare) else bare, port, address, scope)


def is_every_address(address: str) -> bool:
    """Would a socket that is bound to this address listen on all of them?

    >>> [is_every_address(a) for a in ("0.0.0.0", "::", "::ffff:0.0.0.0", "127.0.0.1", "::1")]
    [True, True, True, False, False]
    """
    found = ip_address(address)
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_unspecified


def _look_up(host: str, flags: int = 0) -> list[tuple[str, int]]:
    """The addresses of a host, and their interfaces."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags)
    # A name that is no name at all is refused as text is.
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise PlanError(
            f"served on '{host}', which has no address: {reason}; choose an address of the driver"
        ) from None
    return [(str(at[0]), int(at[3]) if len(at) == 4 else 0) for *_, at in found]


def _is_numeric(host: str) -> bool:
    try:
        return bool(_look_up(host, socket.AI_NUMERICHOST))
    except PlanError:
        return False
