"""Would catch a generated stream that a replay or another number of partitions would change."""

import numpy as np

from megaphone.harness.source import KeysReader, keys_of


def read(reader, start, end):
    parts = [batch for share in reader.partitions(start, end) for batch in reader.read(share)]
    return np.concatenate([batch["key"].to_numpy() for batch in parts])


def test_records_are_the_same_however_they_are_shared_out():
    start, end = {"record": 0, "start_ns": 0}, {"record": 200_000, "start_ns": 0}
    once = read(KeysReader({"keys": "1000", "partitions": "1"}), start, end)
    shared = read(KeysReader({"keys": "1000", "partitions": "7"}), start, end)
    assert (once == shared).all()
    assert len(once) == 200_000


def test_preload_brings_every_key_once():
    reader = KeysReader({"keys": "5000", "preload": "5000", "rate": "10"})
    end = reader.latestOffset(reader.initialOffset(), None)
    assert sorted(read(reader, reader.initialOffset(), end).tolist()) == list(range(5000))


def test_keys_are_spread_evenly():
    counts = np.bincount(keys_of(np.arange(1_000_000), 100, seed=3), minlength=100)
    assert counts.min() > 9_000
    assert counts.max() < 11_000


def test_open_loop_starts_when_the_preload_is_done_and_keeps_its_start():
    reader = KeysReader({"keys": "10", "preload": "10", "rate": "1000"})
    first = reader.latestOffset({"record": 10, "start_ns": 0}, None)
    assert first["record"] == 10
    later = reader.latestOffset({"record": 10, "start_ns": first["start_ns"] - 10**9}, None)
    assert 1010 <= later["record"] < 3000
    assert later["start_ns"] == first["start_ns"] - 10**9


def test_preload_comes_in_as_many_epochs_as_it_needs():
    reader = KeysReader({"keys": "10", "preload": "10", "preload_rows": "4", "rate": "1000"})
    ends, offset = [], reader.initialOffset()
    while offset["record"] < 10:
        offset = reader.latestOffset(offset, None)
        ends.append(offset["record"])
    assert ends == [4, 8, 10]
