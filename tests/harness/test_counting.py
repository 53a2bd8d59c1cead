"""Would catch a count that is wrong, a preload that leaves a key out, and a native twin that counts differently."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from psutil import Process

from megaphone.dataflow.folds import States
from megaphone.dataflow.records import Records
from megaphone.harness.counting import (
    HashCount,
    KeyCount,
    dict_count,
    dict_seen_once,
    hash_count,
    key_count,
)
from megaphone.harness.dense import PAGE, KeyBins
from megaphone.harness.hashes import HashBins
from megaphone.progress import Time

KEYS, BINS = 1000, 16
EPOCHS = [np.random.default_rng(seed).integers(0, KEYS, 3000) for seed in range(3)]


LENGTH = -(-KEYS // BINS)
WAYS = pytest.mark.parametrize("large", [0, 1 << 20], ids=["arrays", "table"])


def records(epoch, keys, bins):
    return Records.at(Time(epoch), bins, pa.record_batch({"key": keys})).sorted()


def folded(fold, states, bin_of):
    """The last count of each key, by a fold over bins."""
    last = {}
    for epoch, keys in enumerate(EPOCHS):
        given = fold(records(epoch, keys, bin_of(keys)), states, None)
        assert len(set(given["key"].tolist())) == len(given["key"])
        last |= dict(zip(given["key"].tolist(), given["n"].tolist(), strict=True))
    return last


def stepped(logics, worker_of):
    """The last count of each key, by workers' logic."""
    last = {}
    for epoch, keys in enumerate(EPOCHS):
        for worker, logic in enumerate(logics):
            mine = keys[worker_of(keys) == worker]
            given = logic.step(records(epoch, mine, np.zeros(len(mine), int)), bound=0)
            last |= dict(zip(given["key"].tolist(), given["n"].tolist(), strict=True))
    return last


def expected(begin):
    keys, times = np.unique(np.concatenate(EPOCHS), return_counts=True)
    return dict(zip(keys.tolist(), (times + begin).tolist(), strict=True))


@WAYS
def test_key_count_is_right_and_begins_with_one(large):
    shift = BINS.bit_length() - 1
    assert folded(key_count(shift), KeyBins(LENGTH, BINS, large), lambda keys: keys & (BINS - 1)) == expected(begin=1)


def test_dict_count_is_right_and_begins_with_one():
    shift, states = BINS.bit_length() - 1, States(lambda: dict_seen_once(LENGTH))
    assert folded(dict_count(shift), states, lambda keys: keys & (BINS - 1)) == expected(begin=1)
    assert sum(map(len, states.values())) >= KEYS


@pytest.mark.parametrize("bins", [1, BINS, 1 << 12])
def test_hash_count_is_right(bins):
    states = HashBins(bins)
    last = folded(hash_count, states, lambda keys: keys * 7919 % bins)
    assert last == expected(begin=0)
    assert len(states) == len(last)


def test_hash_count_tells_equal_keys_of_neighbouring_bins_apart():
    given = hash_count(records(0, np.array([5, 5, 5]), np.array([0, 1, 1])), HashBins(2), None)
    assert (given["key"].tolist(), given["n"].tolist()) == ([5, 5], [1, 2])


def test_last_of_a_million_bins_is_a_bin_as_any_other():
    bin, bins = (1 << 20) - 1, 1 << 20
    counted = KeyBins(4, bins)
    given = key_count(20)(records(0, np.array([3 << 20 | bin]), np.array([bin])), counted, None)
    assert (given["key"].tolist(), given["n"].tolist()) == ([3 << 20 | bin], [2])
    assert counted.get(bin).tolist() == [1, 1, 1, 2]
    hashed = HashBins(bins)
    given = hash_count(records(0, np.array([7]), np.array([bin])), hashed, None)
    assert (given["key"].tolist(), given["n"].tolist()) == ([7], [1])
    assert [column.tolist() for column in hashed.get(bin)] == [[7], [1]]


MOVES = st.lists(st.tuples(st.integers(0, BINS - 1), st.integers(0, 2)), max_size=60)


@drawn(MOVES)
def test_bins_of_a_hash_count_keep_their_counts_wherever_they_go(moves):
    workers = [HashBins(BINS) for _ in range(3)]
    assert moved(hash_count, workers, lambda keys: keys * 7919 % BINS, moves) == expected(begin=0)
    assert sum(map(len, workers)) == len(expected(begin=0))


@WAYS
@drawn(moves=MOVES)
def test_bins_of_a_key_count_keep_their_counts_wherever_they_go(large, moves):
    workers = [KeyBins(LENGTH, BINS, large) for _ in range(3)]
    found = moved(key_count(BINS.bit_length() - 1), workers, lambda keys: keys & (BINS - 1), moves)
    assert found == expected(begin=1)


def moved(fold, workers, bin_of, moves):
    """The last count of each key, where bins go from worker to worker between epochs."""
    last, owners = {}, np.zeros(BINS, int)
    for epoch, keys in enumerate(EPOCHS):
        bins = bin_of(keys)
        for worker, states in enumerate(workers):
            mine = owners[bins] == worker
            given = fold(records(epoch, keys[mine], bins[mine]), states, None)
            last |= dict(zip(given["key"].tolist(), given["n"].tolist(), strict=True))
        for bin, target in moves[epoch :: len(EPOCHS)]:
            state = workers[owners[bin]].pop(bin)
            assert workers[owners[bin]].get(bin) is None
            owners[bin] = target
            if state is not None:
                workers[target][bin] = state
    return last


@pytest.mark.parametrize("length", [PAGE // 8 + 1, 5])
def test_rows_of_any_length_are_kept_apart(length):
    states, bins = KeyBins(length, 4), np.array([0, 1, 3])
    for last in (2, 3):
        given = key_count(2)(records(0, (length - 1) * 4 + bins, bins), states, None)
        assert given["n"].tolist() == [last] * 3
    assert states.pop(1).tolist() == [1] * (length - 1) + [3]
    assert states.get(0).tolist() == states.get(3).tolist() == [1] * (length - 1) + [3]


def test_memory_of_a_bin_that_has_left_is_given_back():
    length, bins = 1 << 16, 64
    states, every = KeyBins(length, bins), np.arange(bins)
    before = Process().memory_info().rss
    key_count(6)(records(0, every, every), states, None)
    full = Process().memory_info().rss - before
    for bin in range(bins):
        states.pop(bin)
    assert full > bins * length * 8 * 0.9
    assert Process().memory_info().rss - before < full / 4


@pytest.mark.parametrize("workers", [2, 3])
def test_native_counts_are_the_same(workers):
    by_key = [KeyCount(workers, -(-KEYS // workers)) for _ in range(workers)]
    assert stepped(by_key, lambda keys: keys % workers) == expected(begin=1)
    assert stepped([HashCount() for _ in range(workers)], lambda keys: keys * 7919 % workers) == expected(begin=0)


def test_empty_epoch_counts_nothing():
    empty = np.empty(0, np.int64)
    assert len(key_count(4)(records(0, empty, empty), KeyBins(4, 16), None)["key"]) == 0
    assert len(dict_count(4)(records(0, empty, empty), States(dict), None)["key"]) == 0
    assert len(hash_count(records(0, empty, empty), HashBins(4), None)["key"]) == 0
    assert len(HashCount().step(records(0, empty, empty), bound=0)["key"]) == 0
