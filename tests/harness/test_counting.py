"""Would catch a count that is wrong, a preload that leaves a key out, and a native twin that counts differently."""

import numpy as np
import pyarrow as pa
import pytest

from megaphone.dataflow.folds import States
from megaphone.dataflow.records import Records
from megaphone.harness.counting import (
    HashCount,
    HashCounts,
    KeyCount,
    dict_count,
    dict_seen_once,
    hash_count,
    key_count,
    seen_once,
)
from megaphone.progress import Time

KEYS, BINS = 1000, 16
EPOCHS = [np.random.default_rng(seed).integers(0, KEYS, 3000) for seed in range(3)]


def records(epoch, keys, bins):
    return Records.at(Time(epoch), bins, pa.record_batch({"key": keys})).sorted()


def folded(fold, state, bin_of):
    """The last count of each key, by a fold over bins."""
    states, last = States(state), {}
    for epoch, keys in enumerate(EPOCHS):
        given = fold(records(epoch, keys, bin_of(keys)), states, None)
        assert len(set(given["key"].tolist())) == len(given["key"])
        last |= dict(zip(given["key"].tolist(), given["n"].tolist(), strict=True))
    return last, states


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
    shift = BINS.bit_length() - 1
    last, states = folded(fold(shift), lambda: full(-(-KEYS // BINS)), lambda keys: keys & (BINS - 1))
    assert last == expected(begin=1)
    assert sum(map(len, states.values())) >= KEYS


def test_hash_count_is_right():
    last, states = folded(hash_count, HashCounts, lambda keys: keys * 7919 % BINS)
    assert last == expected(begin=0)
    # One more in each bin, behind the last.
    assert sum(len(state.keys) - 1 for state in states.values()) == len(last)


def test_hash_count_tells_equal_keys_of_neighbouring_bins_apart():
    states = States(HashCounts)
    given = hash_count(records(0, np.array([5, 5, 5]), np.array([0, 1, 1])), states, None)
    assert (given["key"].tolist(), given["n"].tolist()) == ([5, 5], [1, 2])


@pytest.mark.parametrize("workers", [2, 3])
def test_native_counts_are_the_same(workers):
    by_key = [KeyCount(workers, -(-KEYS // workers)) for _ in range(workers)]
    assert stepped(by_key, lambda keys: keys % workers) == expected(begin=1)
    assert stepped([HashCount() for _ in range(workers)], lambda keys: keys * 7919 % workers) == expected(begin=0)


def test_empty_epoch_counts_nothing():
    empty = np.empty(0, np.int64)
    assert len(key_count(4)(records(0, empty, empty), States(list), None)["key"]) == 0
    assert len(dict_count(4)(records(0, empty, empty), States(dict), None)["key"]) == 0
    assert len(hash_count(records(0, empty, empty), States(HashCounts), None)["key"]) == 0
    assert len(HashCount().step(records(0, empty, empty), bound=0)["key"]) == 0
