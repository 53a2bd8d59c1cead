"""Would catch a count that is wrong, a preload that leaves a key out, and a native twin that counts differently."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from megaphone.dataflow.folds import States
from megaphone.dataflow.records import Records
from megaphone.harness.counting import (
    HashCount,
    KeyCount,
    dict_count,
    dict_seen_once,
    hash_count,
    key_count,
    seen_once,
)
from megaphone.harness.hashes import HashBins
from megaphone.progress import Time

KEYS, BINS = 1000, 16
EPOCHS = [np.random.default_rng(seed).integers(0, KEYS, 3000) for seed in range(3)]


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


@pytest.mark.parametrize(("fold", "full"), [(key_count, seen_once), (dict_count, dict_seen_once)])
def test_key_count_is_right_and_begins_with_one(fold, full):
    shift, states = BINS.bit_length() - 1, States(lambda: full(-(-KEYS // BINS)))
    assert folded(fold(shift), states, lambda keys: keys & (BINS - 1)) == expected(begin=1)
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
    states = States(lambda: seen_once(4))
    given = key_count(20)(records(0, np.array([3 << 20 | bin]), np.array([bin])), states, None)
    assert (list(states), given["key"].tolist(), given["n"].tolist()) == ([bin], [3 << 20 | bin], [2])
    hashed = HashBins(bins)
    given = hash_count(records(0, np.array([7]), np.array([bin])), hashed, None)
    assert (given["key"].tolist(), given["n"].tolist()) == ([7], [1])
    assert [column.tolist() for column in hashed.get(bin)] == [[7], [1]]


@drawn(st.lists(st.tuples(st.integers(0, BINS - 1), st.integers(0, 2)), max_size=40))
def test_bins_of_a_hash_count_keep_their_counts_wherever_they_go(moves):
    workers, owners = [HashBins(BINS) for _ in range(3)], np.zeros(BINS, int)
    last = {}
    for epoch, keys in enumerate(EPOCHS):
        bins = keys * 7919 % BINS
        for worker, states in enumerate(workers):
            mine = owners[bins] == worker
            given = hash_count(records(epoch, keys[mine], bins[mine]), states, None)
            last |= dict(zip(given["key"].tolist(), given["n"].tolist(), strict=True))
        for bin, target in moves[epoch :: len(EPOCHS)]:
            state = workers[owners[bin]].pop(bin)
            owners[bin] = target
            if state is not None:
                workers[target][bin] = state
    assert last == expected(begin=0)
    assert sum(map(len, workers)) == len(last)


@pytest.mark.parametrize("workers", [2, 3])
def test_native_counts_are_the_same(workers):
    by_key = [KeyCount(workers, -(-KEYS // workers)) for _ in range(workers)]
    assert stepped(by_key, lambda keys: keys % workers) == expected(begin=1)
    assert stepped([HashCount() for _ in range(workers)], lambda keys: keys * 7919 % workers) == expected(begin=0)


def test_empty_epoch_counts_nothing():
    empty = np.empty(0, np.int64)
    assert len(key_count(4)(records(0, empty, empty), States(list), None)["key"]) == 0
    assert len(dict_count(4)(records(0, empty, empty), States(dict), None)["key"]) == 0
    assert len(hash_count(records(0, empty, empty), HashBins(4), None)["key"]) == 0
    assert len(HashCount().step(records(0, empty, empty), bound=0)["key"]) == 0
