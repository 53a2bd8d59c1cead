"""What can be seen of a checkpoint, and what is said of one that cannot be read.

Would catch a bin shown where it is not, state of an epoch that was not committed, a query that is disturbed or shown
half-way because it goes on meanwhile, and a traceback where a sentence would do.
"""

import datetime
import math
import sys
import threading
from collections import Counter

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest

from megaphone.bins import WorkerId
from megaphone.dataflow.folds import vectorised
from megaphone.dataflow.operators import Input, bin_operator, key_operator
from megaphone.durability import contents as reading
from megaphone.durability.contents import contents, shares
from megaphone.durability.inspection import bins, inspect
from megaphone.durability.text import text_of
from megaphone.errors import CheckpointError

BINS = 8
WORDS = [(word,) for word in ["to", "be", "or", "not", "to", "be", "that", "is", "the", "question"]]
INPUT = Input(pa.schema([("word", pa.string())]), ("word",))
NOTHING = pa.schema([("n", pa.int64())])
TIMED = Input(pa.schema([("word", pa.string()), ("at", pa.int64())]), ("word",), "at", 2)


def count(word, _, n):
    return (n or 0) + 1, []


def remember(time, data, state, notificator):
    for row in data:
        state[row.word] = row, time


@vectorised
def tally(records, states, notificator):
    for bin, start, stop in records.spans():
        states[bin][1] += stop - start


COUNT = key_operator("count", INPUT, count, NOTHING)
REMEMBER = bin_operator("remember", [INPUT], remember, NOTHING, dict)
TALLY = bin_operator("tally", [INPUT], tally, NOTHING, lambda: np.zeros(2, np.int64))
KEYS = {"one": ("at",), "three": ("x", "in", "at")}
TIMELY = key_operator("timely", TIMED, count, NOTHING)


@pytest.fixture(autouse=True, scope="module")
def _folds_travel():
    """Nobody can import this module: let its functions travel as code."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def read(checkpoint, operator=None, parts=8):
    """All contents: (operator, key) -> state."""
    found = [entry for share in shares(str(checkpoint), operator, parts) for entry in contents(share)]
    table = {(name, bin if key is None else key): state for name, bin, key, state in found}
    assert len(table) == len(found)
    return table


def owners(checkpoint, operator=None):
    return [state.worker for state in bins(str(checkpoint), operator)]


def only(checkpoint):
    (control,) = inspect(str(checkpoint)).controls
    return control


# -- what there is ----------------------------------------------------------------------------------------------------


def test_operators_workers_and_sizes(stored_query):
    query = stored_query(COUNT, REMEMBER)
    query.run(WORDS, WORDS, WORDS)
    query.snapshot("count", 0, 0, 2)
    query.run(WORDS)
    query.snapshot("count", 0, 4, 6)
    control = only(query.checkpoint)
    assert (control.control, control.attempt, control.bins) == ("control0", 1, BINS)
    assert (control.committed, control.planned, control.migration) == (3, 3, None)
    assert [operator.operator for operator in control.operators] == ["count", "remember"]
    first, second = control.operators
    assert (first.state, first.clock, first.keys, first.columns) == ("per key", "epoch", ("word",), ("word string",))
    assert (second.state, second.applied, second.late) == ("per bin", 4 * len(WORDS), 0)
    with_snapshots, without = first.workers
    assert (with_snapshots.bins, with_snapshots.oldest_snapshot, with_snapshots.newest_snapshot) == (4, 2, 3)
    assert (with_snapshots.redo, without.redo, without.oldest_snapshot) == (1, 4, None)
    assert {worker.frontier for worker in first.workers} == {"4"}


def test_sizes_are_those_on_disk(stored_query):
    query = stored_query(COUNT)
    query.run(WORDS, WORDS)
    query.snapshot("count", 1, 1, 3)
    control = only(query.checkpoint)
    on_disk = Counter()
    for path in (query.checkpoint / "megaphone" / "control0").rglob("*"):
        if path.is_file():
            on_disk[path.relative_to(query.checkpoint).parts[2]] += path.stat().st_size
    assert {kind: size for kind, size in control.bytes.items() if size} == dict(on_disk)
    assert sum(worker.log_bytes for worker in control.operators[0].workers) == on_disk["log"]
    assert sum(worker.snapshot_bytes for worker in control.operators[0].workers) == on_disk["bins"]
    assert sum(state.snapshot_bytes for state in bins(str(query.checkpoint))) == on_disk["bins"]


def test_frontier_of_a_time_column(stored_query):
    query = stored_query(TIMELY)
    query.run([("to", 10)], [("be", 30), ("or", 1)])
    (operator,) = only(query.checkpoint).operators
    assert (operator.clock, operator.late) == ("column at", 1)
    assert {worker.frontier for worker in operator.workers} == {"28"}


def test_two_controls(stored_query):
    query = stored_query(COUNT)
    other = stored_query(COUNT, REMEMBER, control="another", workers=1)
    for running in (query, other):
        running.run(WORDS)
    assert [control.control for control in inspect(str(query.checkpoint)).controls] == ["another", "control0"]
    names = {name for name, _ in read(query.checkpoint)}
    assert names == {"another/count", "control0/count", "remember"}
    assert {name for name, _ in read(query.checkpoint, "another/count")} == {"another/count"}


# -- where bins are ---------------------------------------------------------------------------------------------------


def test_bins_are_where_they_were_after_each_committed_epoch(stored_query):
    query = stored_query(COUNT, workers=3)
    query.run(WORDS)
    query.migrate([2] * BINS, "fluid")
    while query.epochs.wants_epoch:
        query.epoch(WORDS)
        before = query.epochs.residence("count").owners.tolist()
        assert owners(query.checkpoint) == before, "planned, and not committed"
        query.commit()
        now = [int(host.worker) for bin in range(BINS) for host in query.hosts.values() if host.resident[bin]]
        assert owners(query.checkpoint) == now, "committed"
        assert only(query.checkpoint).committed == query.epochs.epoch
    assert owners(query.checkpoint) == [2] * BINS


def test_migration_under_way_is_shown_as_far_as_it_has_got(stored_query):
    query = stored_query(COUNT)
    query.run(WORDS)
    query.migrate([1] * BINS, "fluid")
    assert only(query.checkpoint).migration == "fluid running: 0 of 4 steps, 0 of 4 bins"
    query.run(WORDS, WORDS, WORDS)
    assert only(query.checkpoint).migration == "fluid running: 3 of 4 steps, 3 of 4 bins"
    query.epoch(WORDS)
    assert only(query.checkpoint).migration == "fluid running: 3 of 4 steps, 3 of 4 bins"
    query.commit()
    assert only(query.checkpoint).migration is None


# -- what is in them --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 3, 100])
def test_contents_are_those_of_the_hosts(stored_query, parts):
    query = stored_query(COUNT, REMEMBER, TALLY)
    query.run(WORDS, WORDS)
    query.snapshot("count", 0, 0, 4)
    query.snapshot("tally", 1, 1, 3, 5)
    query.migrate([1, 1, 1, 1, 0, 0, 0, 0], "batched")
    query.run(WORDS[:4], WORDS[4:], WORDS)
    found = read(query.checkpoint, parts=parts)
    counts = Counter(word for (word,) in WORDS)
    assert {key: state for (name, key), state in found.items() if name == "count"} == {
        word: str(4 * times) for word, times in counts.items()
    }
    tallies = [state for (name, _), state in found.items() if name == "tally"]
    assert sum(int(state.strip("[]").split(",")[1]) for state in tallies) == 4 * len(WORDS)
    assert found["remember", "to"] == '[{"word":"to"},4]'


def test_keys_are_shown_as_folds_see_them_not_as_their_states_are_found(stored_query):
    kinds = [
        ("x", pa.float64()),
        ("at", pa.timestamp("us", "Europe/Berlin")),
        ("in", pa.list_(pa.timestamp("us", "UTC"))),
    ]
    one, three = (key_operator(name, Input(pa.schema(kinds), keys), count, NOTHING) for name, keys in KEYS.items())
    query = stored_query(one, three)
    # Two o'clock, twice on that day.
    query.run([(math.nan, start * 3_600_000_000, [None, 0]) for start in (480_552, 480_553)], [(-0.0, None, None)])
    query.snapshot("one", 0, *range(0, 8, 2))
    assert read(query.checkpoint, "one") == {
        ("one", "2024-10-27T02:00:00+02:00"): "1",
        ("one", "2024-10-27T02:00:00+01:00"): "1",
        ("one", "null"): "1",
    }
    assert {key for _, key in read(query.checkpoint, "three")} == {
        '{"x":"NaN","in":[null,"1970-01-01T00:00:00+00:00"],"at":"2024-10-27T02:00:00+02:00"}',
        '{"x":"NaN","in":[null,"1970-01-01T00:00:00+00:00"],"at":"2024-10-27T02:00:00+01:00"}',
        '{"x":0.0,"in":null,"at":null}',
    }


def test_contents_leave_out_what_was_not_committed(stored_query):
    query = stored_query(COUNT)
    query.run(WORDS)
    query.epoch(WORDS)
    assert read(query.checkpoint)["count", "to"] == "2"
    query.commit()
    assert read(query.checkpoint)["count", "to"] == "4"


def test_nothing_is_there_before_the_first_epoch_is_committed(stored_query):
    query = stored_query(COUNT)
    query.epoch(WORDS)
    control = only(query.checkpoint)
    assert (control.committed, control.planned) == (-1, 0)
    assert owners(query.checkpoint) == [0, 1] * (BINS // 2)
    assert read(query.checkpoint) == {}


def test_contents_of_one_worker_do_not_have_what_waits_at_the_next(stored_query):
    query = stored_query(TIMELY)
    query.run([("to", 10)], [("to", 12)])
    query.migrate([1] * BINS, "all_at_once")
    query.run([("to", 14)], [("to", 15)], [("to", 16)])
    applied = sum(host.states.get(bin, {}).get("to", 0) for host in query.hosts.values() for bin in range(BINS))
    assert read(query.checkpoint) == {("timely", "to"): str(applied)}


# -- what is wrong ----------------------------------------------------------------------------------------------------


def test_what_is_no_checkpoint_is_told_from_what_has_no_state(tmp_path):
    (tmp_path / "spark" / "offsets").mkdir(parents=True)
    (tmp_path / "file").touch()
    for path, wrong in {
        "nowhere": "there is no ",
        "file": "file is a file",
        ".": "is no checkpoint location",
        "spark": "has no operator of Megaphone's",
    }.items():
        with pytest.raises(CheckpointError, match=wrong):
            inspect(str(tmp_path / path))
    with pytest.raises(CheckpointError, match="cannot read nosuch://there: "):
        inspect("nosuch://there")


def test_query_that_has_only_begun(stored_query):
    query = stored_query(COUNT)
    with pytest.raises(CheckpointError, match="has not come to its first epoch yet"):
        inspect(str(query.checkpoint))
    again = stored_query(COUNT)
    again.run(WORDS)
    control = only(again.checkpoint)
    assert (control.attempt, control.committed) == (2, 0)


@pytest.mark.parametrize("folder", ["plans", "log", "bins/count", "attempts", "commands"])
def test_file_of_somebody_else_is_named(stored_query, folder):
    query = stored_query(COUNT)
    query.run(WORDS)
    path = query.checkpoint / "megaphone" / "control0" / folder / "notes.txt"
    path.parent.mkdir(exist_ok=True, parents=True)
    path.touch()
    with pytest.raises(CheckpointError, match=f"{folder}/notes.txt is not one of Megaphone's files"):
        inspect(str(query.checkpoint))
    path.rename(path.with_name(".notes.txt"))
    assert only(query.checkpoint).committed == 0


@pytest.mark.parametrize("what", ["manifest", "plans", "configurations", "commands", "log"])
def test_damaged_or_missing_file_is_named(stored_query, what):
    query = stored_query(COUNT)
    query.migrate([1] * BINS, "all_at_once")
    query.run(WORDS)
    found = query.checkpoint / "megaphone" / "control0" / what
    path = found if found.is_file() else min(found.iterdir())
    data = path.read_bytes()
    path.write_bytes(data[:-9])
    with pytest.raises(CheckpointError, match=f"{path} is truncated or damaged"):
        inspect(str(query.checkpoint))
    path.write_bytes(b"not ours")
    with pytest.raises(CheckpointError, match=f"{path} is not a "):
        inspect(str(query.checkpoint))
    path.unlink()
    with pytest.raises(CheckpointError, match=r"is missing|have no entry|has no plan"):
        inspect(str(query.checkpoint))


def test_torn_snapshot_and_torn_operator_are_named(stored_query):
    query = stored_query(COUNT)
    query.run(WORDS)
    query.snapshot("count", 0, 0)
    for name in ("bins/count/0000000-000000000000", "operators/0001-count"):
        path = query.checkpoint / "megaphone" / "control0" / name
        data = path.read_bytes()
        path.write_bytes(data[:100])
        with pytest.raises(CheckpointError, match=f"{name} is truncated or damaged"):
            read(query.checkpoint)
        path.unlink()
        if name.startswith("operators"):
            with pytest.raises(CheckpointError, match=f"{name} is missing"):
                read(query.checkpoint)
        path.write_bytes(data)
    assert read(query.checkpoint)


def test_checkpoint_of_two_ages_is_refused(stored_query):
    query = stored_query(COUNT)
    query.run(WORDS)
    (query.checkpoint / "commits" / "7").touch()
    with pytest.raises(CheckpointError, match=r"the last plan in .* is of epoch 0: .* which repeats epoch 1"):
        inspect(str(query.checkpoint))


def test_unknown_operator_is_told_the_known_ones(stored_query):
    query = stored_query(COUNT, TALLY)
    query.run(WORDS)
    with pytest.raises(CheckpointError, match=r"no operator named 'sum' in .*; choose from count, tally"):
        shares(str(query.checkpoint), "sum")


# -- while the query goes on ------------------------------------------------------------------------------------------


def test_query_that_goes_on_is_shown_whole_and_not_disturbed(stored_query):
    query = stored_query(COUNT)
    query.run(WORDS)
    stop = threading.Event()
    failures = []

    def look():
        while not stop.is_set():
            try:
                (control,) = inspect(str(query.checkpoint)).controls
                assert sum(worker.bins for worker in control.operators[0].workers) == BINS
                assert control.operators[0].applied == (control.committed + 1) * len(WORDS)
            except BaseException as error:
                failures.append(error)
                return

    looking = threading.Thread(target=look)
    looking.start()
    for epoch in range(1, 80):
        query.run(WORDS)
        query.snapshot("count", epoch % 2, *range(epoch % 2, BINS, 2))
        query.store.cut(epoch - 2, [])
    stop.set()
    looking.join()
    assert failures == []
    assert only(query.checkpoint).committed == 79


def test_contents_of_a_query_that_goes_on_are_refused(stored_query, monkeypatch):
    query = stored_query(COUNT)
    query.run(WORDS, WORDS)
    found = shares(str(query.checkpoint))
    recover_bins = reading.recover_bins

    def overtaken(store, request):
        query.run(WORDS)
        return recover_bins(store, request)

    monkeypatch.setattr(reading, "recover_bins", overtaken)
    with pytest.raises(CheckpointError, match="goes on: it came to epoch 2 while its state after epoch 1 was being"):
        list(contents(found[0]))


# -- text -------------------------------------------------------------------------------------------------------------


class Plain:
    def __init__(self):
        self.n = 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (None, "null"),
        ("wörd", "wörd"),
        (["wörd", None], '["wörd",null]'),
        (float("nan"), "NaN"),
        ([1.5, float("-inf")], '[1.5,"-Infinity"]'),
        ({1: "a", (2, 3): {"b"}}, '{"1":"a","[2,3]":["b"]}'),
        ({1: "a", "1": "b"}, '[[1,"a"],["1","b"]]'),
        (np.float32(0.5), "0.5"),
        (np.bool_(True), "true"),
        (np.array([[1, 2], [3, 4]], np.uint8), "[[1,2],[3,4]]"),
        (np.array([1.0, np.nan]), '[1.0,"NaN"]'),
        (np.array([(1, 2.5)], [("a", "i8"), ("b", "f8")]), '[{"a":1,"b":2.5}]'),
        (np.datetime64("2019-08-20T12:00", "ns"), "2019-08-20T12:00:00.000000000"),
        (np.array(["2019-08-20"], "M8[D]"), '["2019-08-20"]'),
        (datetime.datetime(2019, 8, 20, 12, tzinfo=datetime.UTC), "2019-08-20T12:00:00+00:00"),
        ((datetime.date(2019, 8, 20), datetime.timedelta(seconds=90)), '["2019-08-20","0:01:30"]'),
        (b"\0\xff", "AP8="),
        (WorkerId(3), "3"),
        (pa.table({"a": [1, 2]}), '[{"a":1},{"a":2}]'),
        (Plain(), '{"n":3}'),
        (1j, "1j"),
        ([{1j}], '[["1j"]]'),
        ("\ud800", "\\ud800"),
    ],
)
def test_state_as_text(value, text):
    assert text_of(value) == text


def test_state_that_has_no_end():
    endless = []
    endless.append(endless)
    assert text_of(endless) == "[[...]]"
