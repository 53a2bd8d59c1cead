"""Would catch a server that listens on every address of the machine, in whatever form that was asked for.

And one that is bound to another address than the one that was judged.
"""

import socket
from ipaddress import ip_address

import pytest

from megaphone.errors import PlanError
from megaphone.service import place as module
from megaphone.service.place import Place, is_every_address, place_of, resolve
from megaphone.service.server import Answer, Server

EVERY_ADDRESS = [
    *("0.0.0.0", "000.0.0.0", "0.0.0", "0", "00", "0x0", "0X0", "0x0.0", "0.0x0.00.0"),
    *("::", "[::]", "0::0", "0:0:0:0:0:0:0:0", "[::0.0.0.0]", "::ffff:0.0.0.0", "[::ffff:0:0]", "", "[]"),
]


@pytest.mark.parametrize("host", EVERY_ADDRESS)
def test_host_that_stands_for_all_addresses_is_refused(host):
    with pytest.raises(PlanError, match="which stands for every address; choose one"):
        place_of(f"{host}:8080")


@pytest.mark.parametrize("addresses", [["0.0.0.0"], ["::"], ["10.0.0.7", "::ffff:0.0.0.0"]])
def test_name_that_resolves_to_one_is_refused(monkeypatch, addresses):
    resolves(monkeypatch, addresses)
    with pytest.raises(PlanError, match=r"served on 'driver' \(.*\), which stands for every address; choose one"):
        place_of("driver:8080")


def test_bound_is_what_was_judged(monkeypatch):
    """Whatever the name resolves to by then."""
    resolves(monkeypatch, ["127.0.0.2"])
    place = resolve("driver")
    resolves(monkeypatch, ["0.0.0.0"])
    server = Server(lambda request: Answer.of(1), "token", place)
    port = int(server.address.removeprefix("http://driver:"))
    with socket.create_connection(("127.0.0.2", port)), pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    server.close()


def resolves(monkeypatch, addresses):
    look_up = socket.getaddrinfo

    def fake(host, port, *args, flags=0, **options):
        if host != "driver" or flags:
            return look_up(host, port, *args, flags=flags, **options)
        return [found for address in addresses for found in look_up(address, port, *args, **options)]

    monkeypatch.setattr(module.socket, "getaddrinfo", fake)


@pytest.mark.parametrize("host", ["127.1", "0x7f.1", "2130706433", "127.0.0.1"])
def test_address_is_known_in_its_usual_form(host):
    assert place_of(f"{host}:8080") == Place(port=8080)


@pytest.mark.parametrize("host", ["::1", "[::1]", "0::1"])
def test_newer_addresses_have_their_brackets(host):
    place = place_of(f"{host}:80")
    assert (place.host, place.authority(80), place.family) == ("::1", "[::1]:80", socket.AF_INET6)


@pytest.mark.parametrize("host", ["a" * 300, "..", "\ud800"])
def test_what_cannot_be_a_host_is_refused(host):
    with pytest.raises(PlanError, match=r"which has no address: .*; choose an address of the driver"):
        place_of(f"{host}:8080")


def test_host_without_an_address_is_refused(monkeypatch):
    def fail(*args, **options):
        raise socket.gaierror(socket.EAI_NONAME, "name or service not known")

    monkeypatch.setattr(module.socket, "getaddrinfo", fail)
    with pytest.raises(PlanError, match=r"served on 'driver', which has no address: name or service not known; choose"):
        place_of("driver:8080")


@pytest.mark.parametrize("said", ["-1", "65536", "", "here", "host:", "10.0.0.7:x", "8080.5", "٨٠", "9" * 5000])
def test_place_that_is_none_is_refused(said):
    with pytest.raises(PlanError, match=r"served on port .*; choose one from 1 to 65535"):
        place_of(said)


def test_what_is_not_refused_is_one_address():
    for said in ("true", "8080", "127.0.0.1:0", "localhost:0"):
        place = place_of(said)
        assert not is_every_address(place.address)
        assert str(ip_address(place.address)) == place.address
