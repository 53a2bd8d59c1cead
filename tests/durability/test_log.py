"""Would catch an entry that comes back otherwise than it was written, or that is there before its epoch is applied."""

import errno

import msgspec
import pyarrow as pa
import pytest

from megaphone.bins import WorkerId
from megaphone.control.epochs import Report
from megaphone.durability.files import Draft
from megaphone.durability.log import Head, Writing, read_entry
from megaphone.durability.store import LogFile, Store
from megaphone.errors import CheckpointError
from megaphone.progress import BEGIN, END, Time

FILE = LogFile(7, 2, "op", 3, 1)
PAYLOADS = [(0, pa.py_buffer(b"left")), (1, pa.py_buffer(b"")), (0, pa.py_buffer(b"more"))]
HEAD = Head(END, [BEGIN, 5], [0, 1, 0])
REPORT = Report(WorkerId(3), Time(9), 10, 2, 300, 4, 5)


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path), "control")


def names(store):
    return [file for file, _ in store.log()]


def test_entry_comes_back_as_it_was_written(store):
    size = Writing(store, FILE, HEAD, PAYLOADS).finish(REPORT)
    entry = read_entry(store, FILE)
    assert (entry.head, entry.report) == (HEAD, REPORT)
    assert [(input, bytes(payload)) for input, payload in entry.payloads] == [(0, b"left"), (1, b""), (0, b"more")]
    assert [(file, at_least <= size + 8) for file, at_least in store.log()] == [(FILE, True)]


def test_entry_without_records_comes_back(store):
    Writing(store, FILE, Head(1, [BEGIN], []), []).finish(REPORT)
    assert read_entry(store, FILE).payloads == []


def test_entry_is_there_when_it_is_finished_and_not_before(store):
    writing = Writing(store, FILE, HEAD, PAYLOADS)
    assert names(store) == []
    writing.finish(REPORT)
    assert names(store) == [FILE]


def test_epoch_that_was_not_applied_leaves_nothing(store, tmp_path):
    Writing(store, FILE, HEAD, PAYLOADS).discard()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("step", ["add", "finish"])
def test_full_disk_leaves_nothing(store, tmp_path, monkeypatch, step):
    writing = Writing(store, FILE, HEAD, PAYLOADS)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Draft, step, full)
    with pytest.raises(OSError, match="No space left"):
        writing.finish(REPORT)
    with pytest.raises(OSError, match="No space left"):
        Writing(store, FILE, HEAD, PAYLOADS).finish(REPORT)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_entry_with_a_head_of_another_time_is_refused_by_name(store):
    store.folder.write(f"log/{FILE}", "log", [msgspec.msgpack.encode({"strange": 1}), msgspec.msgpack.encode(REPORT)])
    with pytest.raises(CheckpointError, match=str(FILE)):
        read_entry(store, FILE)
