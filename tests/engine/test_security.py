"""Would catch a stranger who is heard, a request that breaks a worker, and bytes that are run without being trusted."""

import errno
import os
import pickle
import re
import socket
import subprocess
import sys
import threading
import time
from base64 import b64encode
from contextlib import contextmanager, suppress
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import psutil
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from bomb import Bomb
from megaphone.bins import MAX_SHIFT
from megaphone.durability.store import Store
from megaphone.engine.spark import lease, memory, rpc
from megaphone.engine.spark.coordinator import _public_host
from megaphone.engine.spark.lease import LeaseOffice, hold_lease
from megaphone.engine.spark.messages import Address, Key, Loan, Orders, WorkerConfig, dump, load
from megaphone.engine.spark.rpc import HEADER, Caller, Listener, Service, listen, raise_own
from megaphone.engine.spark.worker import Worker
from megaphone.errors import PlanError, ProtocolError, WorkerLost

ROOT = Path(__file__).parents[2]
SECRET, SECRET_OF_ANOTHER = token_hex(32), token_hex(32)
HOST = "127.0.0.1"


class Ledger(Service):
    """Remembers what it is given, and takes exchanges to their end."""

    def __init__(self):
        super().__init__()
        self.asked = []
        self.actions["note"] = self._note

    def get(self, ticket):
        self.asked.append(ticket)
        return super().get(ticket)

    def exchange(self, command, reader, writer):
        self.asked.append(command)
        rows = sum(chunk.data.num_rows for chunk in reader)
        writer.write_metadata(dump(rows))

    def _note(self, message):
        self.asked.append(message)
        return dump(None)


@contextmanager
def served(service, host=HOST):
    with TemporaryDirectory() as folder:
        listeners, address = listen(service, SECRET, Path(folder) / "s.sock", host)
        try:
            yield address
        finally:
            for listener in listeners:
                listener.shutdown()


@pytest.fixture(params=["unix", "tcp"])
def transport(request):
    return request.param


@pytest.fixture
def worker(transport):
    """A real worker, as somebody reaches it who has no secret yet."""
    nobody = Address("/nowhere")
    key = Key("query", "run", "control")
    config = WorkerConfig(
        key=key,
        worker=0,
        incarnation=1,
        coordinator=nobody,
        lease=nobody,
        secret=SECRET,
        unix=True,
        executor_pid=None,
    )
    with served(Worker(config)) as address:
        yield Door(address, transport)
        assert Door(address, transport).answers(), "the worker does not answer a good request any more"


@pytest.fixture
def ledger(transport):
    service = Ledger()
    with served(service) as address:
        yield SimpleNamespace(door=Door(address, transport), asked=service.asked)


class Door:
    """One way to a service, for callers with any header they like."""

    def __init__(self, address, transport):
        self.address = address
        self.location = f"grpc+unix://{address.unix}" if transport == "unix" else address.tcp
        self.caller = Caller(SECRET, unix=transport == "unix")

    def answers(self):
        return self.caller.call(self.address, "prepare", [], type(None)) is None

    def raw(self):
        """A connection that speaks no gRPC."""
        if self.location == self.address.tcp:
            host, port = self.address.tcp.removeprefix("grpc+tcp://").rsplit(":", 1)
            return socket.create_connection((host, int(port)), timeout=60)
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.address.unix)
        connection.settimeout(60)
        return connection

    def says(self, path, *headers):
        """The answer to a call without a message, whose headers are sent as they are."""
        pseudo = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()), (b":authority", b"here"))
        usual = ((b"content-type", b"application/grpc"), (b"te", b"trailers"))
        block = b"".join(b"\0" + literal(name) + literal(value) for name, value in (*pseudo, *usual, *headers))
        answer = b""
        with self.raw() as connection:
            preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2(4, 0, 0, b"")
            connection.sendall(preface + http2(1, 4, 1, block) + http2(0, 1, 1, bytes(5)))
            while b"grpc-status" not in answer and (some := connection.recv(1 << 16)):
                answer += some
        return answer

    def try_all(self, headers, data=b"data"):
        """Call each method of Flight with some bytes; yields its name and what came of it."""
        options = flight.FlightCallOptions(headers=headers)
        with flight.FlightClient(self.location) as client:
            for name, method in METHODS.items():
                try:
                    method(client, options, data)
                    yield name, None
                except (flight.FlightError, pa.ArrowException, OSError) as error:
                    yield name, error

    def refusal(self, method, *arguments):
        """The error that an authenticated caller gets."""
        with pytest.raises(ProtocolError) as refused:
            self._try(method, *arguments)
        return str(refused.value)

    def _try(self, method, *arguments):
        with flight.FlightClient(self.location) as client:
            try:
                method(client, self.caller.options, *arguments)
            except flight.FlightError as error:
                raise_own(error)


def literal(text):
    """A string in HPACK that is not compressed."""
    assert len(text) < 127
    return bytes([len(text)]) + text


def http2(kind, flags, stream, payload):
    """A frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def do_action(client, options, data, name="prepare"):
    return list(client.do_action((name, data), options))


def do_get(client, options, data):
    return client.do_get(flight.Ticket(data), options).read_all()


def do_exchange(client, options, data, payload=None, schema=rpc.PAYLOADS):
    batch = pa.record_batch([[0], [data if payload is None else payload]], schema=schema)
    return exchanged(client, options, data, lambda writer: (writer.begin(batch.schema), writer.write_batch(batch)))


def exchanged(client, options, command, write):
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(command), options)
    # The service may have hung up already; the reader knows why.
    with suppress(flight.FlightError):
        write(writer)
        writer.done_writing()
    try:
        return list(reader)
    finally:
        with suppress(flight.FlightError):
            writer.close()


def do_put(client, options, data):
    schema = pa.schema([("data", pa.binary())])
    writer, reader = client.do_put(flight.FlightDescriptor.for_command(data), schema, options)
    writer.done_writing()
    reader.read()
    writer.close()


METHODS = {
    "do_action": do_action,
    "do_get": do_get,
    "do_exchange": do_exchange,
    "do_put": do_put,
    "list_flights": lambda client, options, data: list(client.list_flights(data, options)),
    "list_actions": lambda client, options, _: client.list_actions(options),
    "get_flight_info": lambda c, options, data: c.get_flight_info(flight.FlightDescriptor.for_command(data), options),
    "get_schema": lambda c, options, data: c.get_schema(flight.FlightDescriptor.for_command(data), options),
    "handshake": lambda client, options, _: client.authenticate_basic_token("user", "password", options),
}


def header(value, name=HEADER):
    return [(name.encode(), value.encode())]


STRANGERS = {
    "no secret": [],
    "an empty secret": header(""),
    "a wrong secret": header("guess"),
    "part of the secret": header(SECRET[:-1]),
    "more than the secret": header(SECRET + "0"),
    "the secret of another application": header(SECRET_OF_ANOTHER),
    "the secret in another header": header(SECRET, "secret"),
    "the secret after a wrong one": header("guess") + header(SECRET),
}


@pytest.mark.parametrize("headers", STRANGERS.values(), ids=STRANGERS.keys())
def test_stranger_is_refused_whatever_he_calls(worker, headers):
    for method, error in worker.try_all(headers):
        assert "wrong or no secret" in str(error), method


@pytest.mark.parametrize("headers", STRANGERS.values(), ids=STRANGERS.keys())
def test_service_sees_nothing_of_a_stranger(ledger, headers):
    assert all("wrong or no secret" in str(error) for _, error in ledger.door.try_all(headers))
    assert ledger.asked == []
    list(ledger.door.try_all(header(SECRET)))
    assert ledger.asked == [b"data", b"data"]  # a ticket and a command: so it would have seen


def test_service_without_a_secret_hears_nobody():
    with TemporaryDirectory() as folder:
        listener = Listener(f"grpc+unix://{folder}/s.sock", Ledger(), "")
        door = Door(Address(f"{folder}/s.sock"), "unix")
        for headers in ([], header("")):
            assert all("wrong or no secret" in str(error) for _, error in door.try_all(headers))
        listener.shutdown()


# Sent as they are: a client of gRPC's would not let them out.
ODD_HEADERS = {
    "no text": (HEADER, b"\xff\xfe"),
    "no base64": (HEADER, b"!"),
    "no text in another": ("cookie", b"\xff\xfe"),
    "no text in Flight's other": ("authorization", b"Basic \xff"),
    "no ASCII": ("x", "é".encode()),
    "a NUL": ("x", b"a\0b"),
    "lines": ("x", b"a\r\nb"),
    "no name": ("", b"x"),
    "no lower case": ("X", b"x"),
}
PATHS = [f"/arrow.flight.protocol.FlightService/{name}" for name in ("DoAction", "DoGet", "DoExchange", "Handshake")]


def test_stranger_with_an_odd_header_is_refused_in_one_line(ledger, capfd):
    """What he is told would be where in which file it could not be read."""
    calls = [(PATHS[0], header) for header in ODD_HEADERS.values()]
    for path, (name, value) in [*calls, *((path, ODD_HEADERS["no text in another"]) for path in PATHS[1:])]:
        answer = ledger.door.says(path, (name.encode(), value))
        assert b"grpc-message" in answer, (path, name)
        assert not re.search(rb"Traceback|File|%0A|python", answer, re.IGNORECASE), (path, name, answer)
    assert "Traceback" not in "".join(capfd.readouterr())
    assert ledger.asked == []


def test_other_headers_are_not_looked_at(ledger):
    for value in (b"\xff\xfe", b"a\0b"):
        ledger.door.says(PATHS[1], (HEADER.encode(), b64encode(SECRET.encode())), (b"cookie", value))
    assert ledger.asked == [b"", b""]


def test_methods_that_are_not_offered_are_refused_to_everybody(worker):
    refused = {method: error for method, error in worker.try_all(header(SECRET)) if isinstance(error, Exception)}
    assert {"do_put", "list_flights", "list_actions", "get_flight_info", "get_schema", "handshake"} <= refused.keys()


# What is malformed.

MALFORMED = {
    "nothing": b"",
    "no MessagePack": b"\xc1",
    "half a message": dump([1, 2, 3])[:-1],
    "a message and more": dump([]) + b"\x00",
    "of another kind": dump({"operator": 1}),
    "a pickle": pickle.dumps([]),
    "a deep nest": b"\x91" * 100_000,
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_request_is_refused_by_name_in_one_line(worker, data):
    for method, name in ((do_action, "action 'prepare'"), (do_get, "ticket"), (do_exchange, "exchange")):
        said = worker.refusal(method, data)
        assert re.fullmatch(f"{name} (is malformed|failed: RecursionError): .+", said.splitlines()[0]), said
        assert "RecursionError" in said or len(said.splitlines()) == 1


def test_unknown_action_is_refused_by_name(worker):
    assert worker.refusal(do_action, b"", "shutdown") == "no action named 'shutdown'"
    assert worker.refusal(do_action, b"", "x" * 10_000) == f"no action named '{'x' * rpc.MAX_NAME}'"


def test_answer_that_is_malformed_is_refused_by_name(ledger):
    with pytest.raises(ProtocolError, match="answer to action 'note' is malformed: Expected `int`, got `None`"):
        ledger.door.caller.call(ledger.door.address, "note", None, int)


def test_error_nobody_foresaw_is_sent_on_with_its_kind():
    service = Ledger()
    service.actions["fail"] = lambda message: {}["what"]
    with served(service) as address, pytest.raises(ProtocolError, match=r"\Aaction 'fail' failed: KeyError: 'what'\n"):
        Caller(SECRET).call(address, "fail", None, int)


@pytest.mark.parametrize("text", ["x", "é", "漢", "🎺", "\0", "\n", "\ud800"], ids=ascii)
def test_long_error_arrives_in_any_script(text):
    service = Ledger()
    with served(service) as address:
        service.actions["fail"] = lambda message: raise_(PlanError(f"the fact {text * 100_000} the end"))
        with pytest.raises(PlanError, match=r"(?s)\Athe fact .* the end\Z"):
            Caller(SECRET).call(address, "fail", None, int)


def raise_(error):
    raise error


STREAMS = {
    "no schema": (
        lambda writer: None,
        "exchange failed: OSError: Client never sent a data message",
    ),
    "no batch": (
        lambda writer: (writer.begin(rpc.PAYLOADS), writer.write_metadata(b"?")),
        "exchange with a message that has no batch",
    ),
    "other columns": (
        lambda writer: writer.begin(pa.schema([("payload", pa.string())])),
        "exchange of columns payload string instead of kind int32, payload binary",
    ),
    "no columns": (
        lambda writer: writer.begin(pa.schema([])),
        "exchange of columns none instead of kind int32, payload binary",
    ),
    "no payload": (
        lambda writer: (writer.begin(rpc.PAYLOADS), writer.write_batch(payloads([0], [None]))),
        "exchange with a payload that is null",
    ),
    "no kind": (
        lambda writer: (writer.begin(rpc.PAYLOADS), writer.write_batch(payloads([None], [b""]))),
        "exchange with a payload that is null",
    ),
    "a payload outside of its batch": (
        lambda writer: (writer.begin(rpc.PAYLOADS), writer.write_batch(beyond_its_end())),
        "exchange failed: ArrowInvalid: In column 1: Invalid: ",
    ),
}


def payloads(kinds, data):
    return pa.record_batch([kinds, data], schema=rpc.PAYLOADS)


def beyond_its_end():
    """A batch of three payloads, the second of which is said to end far behind the memory there is."""
    offsets = pa.array([0, 1, 1 << 30, 3], pa.int32()).buffers()[1]
    binary = pa.Array.from_buffers(pa.binary(), 3, [None, offsets, pa.py_buffer(b"abc")])
    return pa.record_batch([pa.array([0, 0, 0], pa.int32()), binary], schema=rpc.PAYLOADS)


@pytest.mark.parametrize(("write", "reason"), STREAMS.values(), ids=STREAMS.keys())
def test_malformed_stream_is_refused(ledger, write, reason):
    assert ledger.door.refusal(exchanged, b"", write).splitlines()[0].startswith(reason)


def test_bytes_that_are_no_call_at_all_are_survived(worker):
    for data in (b"\x00" * 100_000, b"GET / HTTP/1.1\r\n\r\n", os.urandom(100_000), pickle.dumps([])):
        with worker.raw() as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass
            except OSError:
                pass
        assert worker.answers()


# What is too large.


def test_oversized_request_is_refused_by_name(worker):
    large = bytes(rpc.MAX_REQUEST + 1)
    excess = f"of {len(large)} bytes; the most is {rpc.MAX_REQUEST}"
    assert worker.refusal(do_action, large) == f"action 'prepare' {excess}"
    assert worker.refusal(do_get, large) == f"ticket {excess}"
    assert worker.refusal(do_exchange, large, b"") == f"command of an exchange {excess}"


def test_oversized_batch_is_refused(ledger, monkeypatch):
    monkeypatch.setattr(rpc, "MAX_BATCH", 1 << 20)
    large = payloads([0], [bytes(2 << 20)])
    said = ledger.door.refusal(exchanged, b"", lambda writer: (writer.begin(rpc.PAYLOADS), writer.write_batch(large)))
    assert re.fullmatch(r"batch of an exchange of 20971\d\d bytes; the most is 1048576", said)


def test_orders_for_as_many_bins_as_there_can_be_are_not_oversized():
    every = list(range(2**MAX_SHIFT))
    orders = Orders("operator", 1, 0, [], every, [(bin, 2**62) for bin in every])
    assert len(dump([orders])) + 5 * len(every) < rpc.MAX_REQUEST / 2


# What is never run.


@pytest.fixture
def bomb(tmp_path):
    """Bytes that must not be unpickled; at the end they are, to see that they would have told."""
    mark = tmp_path / "it went off"
    data = pickle.dumps(Bomb(mark))
    yield SimpleNamespace(data=data, went_off=mark.exists)
    assert not mark.exists()
    pickle.loads(data)
    assert mark.exists()


@pytest.mark.parametrize("headers", [[], header("guess"), header(SECRET)], ids=["nobody", "stranger", "peer"])
def test_worker_unpickles_nothing_that_it_is_sent(worker, bomb, headers):
    assert all(error is not None for _, error in worker.try_all(headers, bomb.data))


def test_lease_office_unpickles_nothing_that_it_is_sent(office, bomb):
    for data in (bomb.data, frame(bomb.data), frame(SECRET.encode()) + frame(bomb.data)):
        assert office.says(data) == b""


def test_memory_that_was_not_lent_is_not_borrowed(tmp_path, bomb):
    (tmp_path / "file").write_bytes(bomb.data)
    with (tmp_path / "file").open("r+b") as file, pytest.raises(OSError, match="is not lent memory"):
        memory.borrow(Loan(os.getpid(), file.fileno(), [(0, len(bomb.data))]))


def test_file_that_is_not_lent_memory_is_not_even_opened(monkeypatch):
    opened = []
    monkeypatch.setattr(os, "open", lambda *arguments: opened.append(arguments))
    reading, writing = os.pipe()
    with pytest.raises(OSError, match="is not lent memory"):
        memory.borrow(Loan(os.getpid(), writing, [(0, 1)]))
    assert opened == []
    os.close(writing)
    os.close(reading)


@pytest.mark.skipif(not memory.machine(), reason="this system cannot lend memory")
def test_lent_memory_is_for_its_user_alone():
    loans = memory.Loans()
    loan = loans.lend([memoryview(b"state")])
    assert os.fstat(loan.file).st_mode & 0o777 == 0o600
    loans.end()


UNPICKLING = re.compile(
    r"\b(?:cloudpickle|pickle|dill|joblib|marshal|shelve)\.(?:loads?|open|Unpickler)\b"
    r"|\bfrom (?:cloudpickle|pickle|dill|joblib|marshal|shelve) import"
    r"|\bUnpickler\b|\bPickleSerializer\b|\bread_pickle\b|allow_pickle=True"
)

PLACES = {
    # A bin from another worker, which was called with the secret, or from the checkpoint.
    "dataflow/state.py": 1,
    # An operator as it was when the query was started before: from the checkpoint.
    "durability/recovery.py": 1,
    # An operator's definition, from the coordinator, which was called with the secret.
    "engine/spark/worker.py": 1,
}


def test_places_that_unpickle_are_those_that_were_thought_about():
    """A new place belongs into docs/security.md first: where its bytes come from, and who can write there."""
    package = ROOT / "src" / "megaphone"
    found = {path: len(UNPICKLING.findall(path.read_text())) for path in package.rglob("*.py")}
    assert {path.relative_to(package).as_posix(): count for path, count in found.items() if count} == PLACES


# The lease.


class Office:
    """A lease office, the way to it, and who has joined."""

    def __init__(self, path, transport):
        self.joined = {}
        self.office = LeaseOffice(path, HOST, SECRET, self._join)
        self.address = self.office.address if transport == "unix" else Address("/nowhere", self.office.address.tcp)

    def _join(self, message, connection):
        worker = load(message, int)
        self.joined[worker] = connection
        return lambda: self.joined.pop(worker, None)

    def connect(self):
        connection = lease._connect(self.address)
        connection.settimeout(60)
        return connection

    def says(self, data):
        """What comes back before the office hangs up."""
        with self.connect() as connection:
            try:
                connection.sendall(data)
                return connection.recv(1)
            except ConnectionError:
                return b""


@pytest.fixture
def office(transport):
    with TemporaryDirectory() as folder:
        office = Office(Path(folder) / "l.sock", transport)
        yield office
        office.office.close()


frame = lease._frame
JOIN = dump(7)
INTRODUCTION = frame(SECRET.encode()) + frame(JOIN)


@pytest.mark.parametrize(
    "data",
    [
        frame(b"guess") + frame(JOIN),
        frame(SECRET_OF_ANOTHER.encode()) + frame(JOIN),
        frame(b"") + frame(JOIN),
        frame(SECRET.encode() + b"0") + frame(JOIN),
        (2**32 - 1).to_bytes(4, "little") + b"x",
        frame(SECRET.encode()) + (lease.MAX_MESSAGE + 1).to_bytes(4, "little") + b"x",
        frame(SECRET.encode()) + frame(b"garbage"),
        os.urandom(1000),
    ],
    ids=["wrong", "another's", "empty", "longer", "oversized", "oversized join", "malformed join", "garbage"],
)
def test_lease_office_hangs_up_on_who_does_not_introduce_himself(office, data):
    assert office.says(data) == b""
    assert not office.joined
    with office.connect() as connection:
        connection.sendall(INTRODUCTION)
        wait_for(lambda: 7 in office.joined)
    wait_for(lambda: not office.joined)


def test_lease_office_hangs_up_on_who_is_silent(office, monkeypatch):
    monkeypatch.setattr(lease, "INTRODUCTION_S", 0.1)
    for data in (b"", b"\x01", frame(SECRET.encode())):
        assert office.says(data) == b""


def test_lease_office_hangs_up_on_who_is_never_silent_for_long(office, monkeypatch):
    monkeypatch.setattr(lease, "INTRODUCTION_S", 0.3)
    heard = 0
    with office.connect() as connection:
        connection.sendall(frame(bytes(64))[:4])
        connection.settimeout(0.05)
        for _ in range(60):
            try:
                connection.sendall(b"\x00")
                heard += 1
                assert connection.recv(1) == b""
                break
            except TimeoutError:
                continue
            except ConnectionError:
                break
    assert heard < 60


def test_strangers_do_not_use_up_the_driver(office, monkeypatch):
    monkeypatch.setattr(lease, "INTRODUCTION_S", 60.0)
    strangers = [office.connect() for _ in range(lease.MAX_STRANGERS)]
    assert office.says(INTRODUCTION) == b""
    assert not office.joined
    for stranger in strangers:
        stranger.close()
    wait_for(lambda: is_heard(office))


def is_heard(office):
    with office.connect() as connection:
        connection.settimeout(0.1)
        try:
            connection.sendall(INTRODUCTION)
            return connection.recv(1) != b""
        except TimeoutError:
            return 7 in office.joined
        except ConnectionError:
            return False


def test_lease_office_outlives_a_lack_of_files(office):
    ours, theirs = socket.socketpair()
    accepted = iter([OSError(errno.EMFILE, "too many open files"), (theirs, None)])

    def accept():
        result = next(accepted, OSError(errno.EBADF, "closed"))
        if isinstance(result, OSError):
            raise result
        return result

    threading.Thread(target=office.office._accept, args=(SimpleNamespace(accept=accept),), daemon=True).start()
    ours.sendall(INTRODUCTION)
    wait_for(lambda: 7 in office.joined)
    ours.close()


def test_worker_notices_when_its_lease_is_let_go(office):
    held = threading.Thread(target=hold_lease, args=(office.address, SECRET, JOIN), daemon=True)
    held.start()
    wait_for(lambda: 7 in office.joined)
    assert held.is_alive()
    office.joined[7].shutdown(socket.SHUT_RDWR)
    held.join(60)
    assert not held.is_alive()


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Where is listened, and who is spoken to.


def listening():
    return {port.laddr for port in psutil.Process().net_connections("tcp") if port.status == psutil.CONN_LISTEN}


def test_sockets_are_private_to_their_user():
    with served(Ledger(), host=None) as address:
        assert Path(address.unix).stat().st_mode & 0o777 == 0o600
        assert Path(address.unix).parent.stat().st_mode & 0o777 == 0o700
    with TemporaryDirectory() as folder:
        office = LeaseOffice(Path(folder) / "l.sock", None, SECRET, lambda *_: lambda: None)
        assert Path(office.address.unix).stat().st_mode & 0o777 == 0o600
        office.close()


def test_state_files_are_private_to_their_user(tmp_path):
    store = Store(f"file:{tmp_path}/checkpoint", "control0")
    store.create()
    store.write_spec(0, "counts", b"pickle")
    assert (tmp_path / "checkpoint" / "megaphone").stat().st_mode & 0o777 == 0o700
    assert store.folder.names("operators")


def test_local_master_listens_on_no_tcp_port():
    spark = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))
    before = listening()
    with served(Ledger(), _public_host(spark)) as address, TemporaryDirectory() as folder:
        office = LeaseOffice(Path(folder) / "l.sock", _public_host(spark), SECRET, lambda *_: lambda: None)
        assert listening() == before
        assert address.tcp is office.address.tcp is None
        office.close()


def test_driver_with_executors_listens_on_the_address_they_know_alone():
    settings = {"spark.driver.host": HOST}
    spark = SimpleNamespace(sparkContext=SimpleNamespace(master="spark://there:7077", getConf=lambda: settings))
    before = listening()
    with served(Ledger(), _public_host(spark)), TemporaryDirectory() as folder:
        office = LeaseOffice(Path(folder) / "l.sock", _public_host(spark), SECRET, lambda *_: lambda: None)
        hosts = [ip_address(where.ip) for where in listening() - before]
        assert [getattr(host, "ipv4_mapped", None) or host for host in hosts] == [ip_address(HOST)] * 2
        office.close()


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "0", "::ffff:0.0.0.0"])
def test_nothing_binds_every_address_of_a_machine(tmp_path, host):
    for attempt in (
        lambda: listen(Ledger(), SECRET, tmp_path / "s.sock", host),
        lambda: LeaseOffice(tmp_path / "l.sock", host, SECRET, lambda *_: lambda: None),
    ):
        with pytest.raises(PlanError, match="is every address of this machine; set"):
            attempt()
    assert list(tmp_path.iterdir()) == []


def test_secret_is_told_to_no_socket_that_another_can_have_put_there(monkeypatch):
    service = Ledger()
    with served(service) as address:
        near = Address(address.unix)
        folder = Path(address.unix).parent
        Caller(SECRET).call(near, "note", None, type(None))
        folder.chmod(0o770)
        with pytest.raises(WorkerLost, match="is not a socket of this user's own"):
            Caller(SECRET).call(near, "note", None, type(None))
        with pytest.raises(OSError, match="is not a socket of this user's own"):
            hold_lease(near, SECRET, JOIN)
        folder.chmod(0o700)
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(WorkerLost, match="is not a socket of this user's own"):
            Caller(SECRET).call(near, "note", None, type(None))
        assert len(service.asked) == 1
        # Over TCP, as if there were no file.
        Caller(SECRET).call(address, "note", None, type(None))
        assert len(service.asked) == 2


def test_socket_that_another_machine_has_put_into_a_shared_folder_is_not_called():
    service = Ledger()
    with served(service) as address, socket.socket(socket.AF_UNIX) as gone:
        path = Path(address.unix).with_name("gone.sock")
        gone.bind(str(path))
        path.chmod(0o600)
        there = Address(str(path), address.tcp, "another kernel")
        Caller(SECRET).call(there, "note", None, type(None))
        assert len(service.asked) == 1
        with pytest.raises(WorkerLost):
            Caller(SECRET).call(replace(there, kernel=address.kernel), "note", None, type(None))


def test_link_to_a_socket_is_not_followed(tmp_path):
    with served(Ledger()) as address:
        (tmp_path / "link.sock").symlink_to(address.unix)
        (tmp_path / "folder").symlink_to(Path(address.unix).parent)
        for path in (tmp_path / "link.sock", tmp_path / "folder" / "s.sock", tmp_path / "gone.sock", tmp_path):
            with pytest.raises(WorkerLost, match="is not a socket of this user's own"):
                Caller(SECRET).call(Address(str(path)), "note", None, type(None))


def test_secret_is_told_to_no_proxy():
    program = (
        "from megaphone.engine.spark.messages import Address\n"
        "from megaphone.engine.spark.rpc import Caller\n"
        "import sys; Caller(sys.argv[1]).call(Address('/nowhere', sys.argv[2]), 'note', None, type(None))"
    )
    service = Ledger()
    with served(service) as address, socket.create_server((HOST, 0)) as proxy:
        where = f"http://{HOST}:{proxy.getsockname()[1]}"
        environment = {**os.environ, "http_proxy": where, "grpc_proxy": where, "https_proxy": where, "no_proxy": ""}
        subprocess.run([sys.executable, "-c", program, SECRET, address.tcp], env=environment, check=True)
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):
            proxy.accept()
    assert len(service.asked) == 1


@pytest.mark.spark
def test_plan_that_spark_prints_does_not_tell_the_secret(tmp_path):
    program = (
        "import megaphone\n"
        "from pyspark.sql import SparkSession\n"
        "spark = megaphone.tuned(SparkSession.builder.master('local[1]')).getOrCreate()\n"
        "control = megaphone.Control(spark, workers=1, bins=2)\n"
        "numbers = spark.readStream.format('rate-micro-batch').option('rowsPerBatch', 1).load()\n"
        "counts = megaphone.state_machine(control, numbers.select('value'), 'value', print, 'n long')\n"
        "counts.explain(True)\n"
        "print('the secret is', control.coordinator.secret)\n"
        "spark.stop()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    plan, secret = done.stdout.split("the secret is ")
    assert "secret=*********(redacted)" in plan
    assert secret.strip() not in plan
