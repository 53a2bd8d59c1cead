"""Would catch a query that is not what its SQL says, not when it says so, or not the same when its bins move.

Each query runs here without Spark: the same `build`, on frames and operators of this file, which do what Spark's do
with real hosts. The right answer is DuckDB's, over the same events.
"""

import itertools
import random
from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import pairwise

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import megaphone
from megaphone.bins import BinId, Bins, WorkerId
from megaphone.dataflow.folds import Later, VectorNotificator
from megaphone.dataflow.hashing import hash_columns
from megaphone.dataflow.hosting import Host
from megaphone.dataflow.native import NativeFold, NativeHost, host_for
from megaphone.dataflow.operators import Input, bin_operator
from megaphone.dataflow.records import Records
from megaphone.dataflow.routing import worker_of_hashes
from megaphone.dataflow.state import Parcel, pack, unpack
from megaphone.engine.spark import operators
from megaphone.errors import PlanError
from megaphone.nexmark import Nexmark
from megaphone.nexmark.events import SCHEMAS
from megaphone.nexmark.native import NATIVE
from megaphone.nexmark.queries import QUERIES, Windows, q5
from megaphone.nexmark.queries import shelves as shelving
from megaphone.nexmark.queries.bulk import lowest, tally
from megaphone.nexmark.queries.counts import Chunk, Counts
from megaphone.nexmark.queries.shelves import Shelves, distinct, places
from megaphone.progress import BEGIN, CLOSED, Frontier, Time

EVENTS = 6000
BINS = 16
SECOND = 1_000_000

WINDOWS = Windows(slice=SECOND // 2, slices=7, highest=SECOND, newcomers=4 * SECOND)
"""Several of each in the six seconds that the events take."""

ORDERLY = Nexmark(rate=1000, strings=True)
STREAMS = {
    "orderly": ORDERLY,
    # Auctions that stay open for long, so that there is something to move.
    "slow": replace(ORDERLY, seed=2, in_flight_auctions=1000),
    # Five events in a microsecond, few sellers, and prices in powers of ten: nearly everything is a tie.
    "ties": replace(ORDERLY, seed=3, rate=5_000_000, active_people=5, in_flight_auctions=20),
    "shuffled": replace(ORDERLY, seed=4, out_of_order_group_size=100),
}


def windows_of(nexmark):
    """Late by a group at most; as many events in each as in other streams."""
    windows = WINDOWS.divided(nexmark.rate / ORDERLY.rate)
    return replace(windows, lateness=int(nexmark.out_of_order_group_size * nexmark.interval))


def table_of(nexmark, kind, *cut, columns=None):
    rows = pa.Table.from_batches([nexmark.records(kind, *cut, columns)])
    if nexmark != STREAMS["ties"] or "price" not in rows.column_names or kind == "event":
        return rows
    prices = 10 ** np.log10(rows["price"].to_numpy()).astype(np.int64)
    return rows.set_column(rows.column_names.index("price"), "price", pa.array(prices))


@dataclass(frozen=True)
class Frame:
    """What a DataFrame is to a query, and how far time is after each epoch."""

    epochs: list[pa.Table]
    frontiers: list[Frontier] | None = None

    def where(self, condition):
        return self._all(f"SELECT * FROM rows WHERE {condition}")

    def select(self, *columns):
        return self._all(f"SELECT {', '.join(columns)} FROM rows")

    def mapInArrow(self, function, output):
        schema = schema_of(output)
        return replace(
            self, epochs=[pa.Table.from_batches(function(iter(t.to_batches())), schema) for t in self.epochs]
        )

    def promise(self, epoch, seen, lateness):
        """What may still come: the operator before knows, if there is one, else the largest time seen."""
        if self.frontiers:
            return self.frontiers[epoch]
        return Frontier(Time(seen - lateness if seen > BEGIN else BEGIN))

    def _all(self, sql):
        return replace(self, epochs=[answer(sql, rows=rows).cast(chosen(rows, sql)) for rows in self.epochs])


def chosen(rows, sql):
    names = answer(f"{sql} LIMIT 0", rows=rows).column_names
    return pa.schema([rows.schema.field(name) for name in names])


@dataclass
class Local:
    """In place of a control: how bins are dealt out, epoch by epoch, and what moved."""

    chance: random.Random | None
    workers: int = 3
    moved: int = 0
    moved_pending: int = 0
    hosts: dict[str, list[Host]] = field(default_factory=dict)

    def owners(self):
        return [self.chance.randrange(self.workers) if self.chance else 0 for _ in range(BINS)]


def unary(control, frame, exchange, fold, output, *, time, state=dict, lateness=0, name):
    return operator(control, [frame], [exchange], fold, output, state, time, lateness, name)


def binary(control, one, other, key_of_one, key_of_other, fold, output, *, time, state=dict, lateness=0, name):
    return operator(control, [one, other], [key_of_one, key_of_other], fold, output, state, time, lateness, name)


def native(control, frames, exchanges, logic, output, *, time, lateness=0, name):
    """Every worker has its own; nothing moves."""
    inputs = inputs_of(frames, exchanges, time, lateness)
    fold = NativeFold(name, tuple(input.schema for input in inputs), schema_of(output), logic)
    hosts = [host_for(WorkerId(n), fold, BINS, [n]) for n in range(control.workers)]
    return follow(control, frames, inputs, hosts, name, partial(worker_of_hashes, control.workers))


def inputs_of(frames, exchanges, time, lateness):
    keys = [(exchange,) if isinstance(exchange, str) else tuple(exchange) for exchange in exchanges]
    return [Input(frame.epochs[0].schema, key, time, lateness) for frame, key in zip(frames, keys, strict=True)]


def operator(control, frames, exchanges, fold, output, state, time, lateness, name):
    inputs = inputs_of(frames, exchanges, time, lateness)
    fold = bin_operator(name, inputs, fold, schema_of(output), state).fold
    hosts = [Host(WorkerId(n), fold, BINS, range(BINS) if n == 0 else ()) for n in range(control.workers)]
    return follow(control, frames, inputs, hosts, name, Bins.of_count(BINS).of_hashes)


def follow(control, frames, inputs, hosts, name, bin_of):
    """F, exchange and S, epoch by epoch; bins change hands before each."""
    is_native = isinstance(hosts[0], NativeHost)
    lateness = inputs[0].lateness
    control.hosts[name] = hosts
    owners = list(range(control.workers)) if is_native else [0] * BINS
    seen, outputs, frontiers = [BEGIN] * len(inputs), [], []
    for epoch, tables in enumerate(zip(*(frame.epochs for frame in frames), strict=True)):
        owners = owners if is_native else move(control, hosts, owners)
        for number, (rows, input) in enumerate(zip(tables, inputs, strict=True)):
            records = records_of(rows, input, bin_of)
            seen[number] = max(seen[number], int(records.times.max(initial=BEGIN)))
            for bin, group in records.sorted().groups():
                hosts[owners[bin]].receive(group, number)
        promised = (frame.promise(epoch, seen[number], lateness) for number, frame in enumerate(frames))
        frontiers.append(CLOSED if epoch == len(frames[0].epochs) - 1 else min(promised))
        outcomes = [host.advance(frontiers[-1]) for host in hosts]
        assert sum(outcome.late for outcome in outcomes) == 0
        outputs.append(pa.Table.from_batches([outcome.output for outcome in outcomes]))
    return Frame(outputs, frontiers)


def records_of(rows, input, bin_of):
    (data,) = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
    bins = bin_of(hash_columns([data.column(key) for key in input.keys]))
    return Records(bins, input.times(data.column(input.time)), data)


def move(control, hosts, before):
    """Deal bins anew; each travels as bytes."""
    after = control.owners()
    for bin, (old, new) in enumerate(zip(before, after, strict=True)):
        if old != new:
            parcel = hosts[old].release(BinId(bin))
            control.moved += parcel.state is not None
            control.moved_pending += any(parcel.pending)
            hosts[new].install(unpack(bin, [bytearray(part) for part in pack(parcel).parts]))
    return after


TYPES = {"long": pa.int64(), "tinyint": pa.int8(), "string": pa.string(), "timestamp": pa.timestamp("us", "UTC")}


def schema_of(ddl):
    return pa.schema([(name, TYPES[kind]) for name, kind in (column.split() for column in ddl.split(","))])


@pytest.fixture(autouse=True)
def _locally(monkeypatch):
    monkeypatch.setattr(megaphone, "unary", unary, raising=False)
    monkeypatch.setattr(megaphone, "binary", binary, raising=False)
    monkeypatch.setattr(operators, "native", native)


def run(query, nexmark, windows, control, epochs=12, build=None):
    """A query over all events, some of them in each epoch, none in the last."""
    cuts = [EVENTS * epoch // epochs for epoch in range(epochs + 1)] + [EVENTS]
    streams = {
        kind: Frame([table_of(nexmark, kind, *cut, columns=columns) for cut in pairwise(cuts)])
        for kind, columns in query.inputs.items()
    }
    return (build or query.build)(control, streams, windows)


def right(query, nexmark, windows):
    tables = {kind: table_of(nexmark, kind, 0, EVENTS) for kind in query.inputs}
    return answer(query.sql, query.parameters(windows), **tables)


def answer(sql, parameters=None, **tables):
    database = duckdb_session()
    for name, rows in tables.items():
        database.register(name, rows)
    return database.sql(sql, params=parameters).to_arrow_table()


@cache
def duckdb_session():
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    return database


def rows_of(table, schema):
    """In an order of their own, by the columns of a schema."""
    return sorted(map(repr, table.select(schema.names).cast(schema).to_pylist()))


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("name", QUERIES)
def test_query_gives_what_its_sql_gives(name, stream):
    query, nexmark = QUERIES[name], STREAMS[stream]
    windows, schema = windows_of(nexmark), schema_of(query.output)
    expected = rows_of(right(query, nexmark, windows), schema)
    assert expected
    undisturbed = run(query, nexmark, windows, Local(None))
    assert rows_of(pa.concat_tables(undisturbed.epochs), schema) == expected
    moving = Local(random.Random(stream))
    disturbed = run(query, nexmark, windows, moving)
    assert rows_of(pa.concat_tables(disturbed.epochs), schema) == expected
    # Q7 keeps what it has found in the notificator alone.
    assert bool(moving.moved) == (query.stateful and name != "q7")
    assert moving.moved_pending or not query.stateful


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("name", QUERIES)
def test_native_version_gives_the_same(name, stream):
    query, nexmark = QUERIES[name], STREAMS[stream]
    windows, schema = windows_of(nexmark), schema_of(query.output)
    answers = run(query, nexmark, windows, Local(None), build=NATIVE[name])
    assert rows_of(pa.concat_tables(answers.epochs), schema) == rows_of(right(query, nexmark, windows), schema)


@pytest.mark.parametrize(
    ("name", "column"), [("q4", "expires"), ("q5", "window_end"), ("q6", "expires"), ("q7", "window_end")]
)
def test_answers_come_as_soon_as_time_has_passed_them(name, column):
    query, nexmark = QUERIES[name], STREAMS["slow"]
    windows, schema = windows_of(nexmark), schema_of(query.output)
    answers, so_far = run(query, nexmark, windows, Local(None)), []
    expected = right(query, nexmark, windows)
    for rows, frontier in zip(answers.epochs, answers.frontiers, strict=True):
        so_far.append(rows)
        due = expected.filter(pc.less(expected[column].cast(pa.int64()), frontier.bound))
        assert rows_of(pa.concat_tables(so_far), schema) == rows_of(due, schema)
    assert sum(rows.num_rows for rows in so_far[:-1]) > 0


@pytest.mark.parametrize("name", ["q4_closed", "q6_closed", "q7", "q8"])
def test_nothing_is_kept_that_no_answer_needs_any_more(name):
    nexmark, control = STREAMS["slow"], Local(None)
    run(QUERIES[name[:2]], nexmark, windows_of(nexmark), control)
    for host in control.hosts[name]:
        assert [host.copy(BinId(bin)) for bin in range(BINS)] == [Parcel(BinId(bin), None, ()) for bin in range(BINS)]


def test_inputs_are_columns_of_the_source():
    for query in QUERIES.values():
        for kind, columns in query.inputs.items():
            assert set(columns) <= set(SCHEMAS[kind].names)


def test_windows_that_no_query_could_follow_are_refused():
    with pytest.raises(PlanError, match="slices is 0; choose 1 or more"):
        Windows(slices=0)


KEYS = st.lists(st.one_of(st.integers(0, 50), st.integers(0, 2**40)), min_size=1, max_size=80)


@given(KEYS)
def test_keys_are_counted_wherever_they_lie(keys):
    found, many = tally(np.array(keys))
    assert found.tolist() == sorted(set(keys))
    assert many.tolist() == [keys.count(key) for key in found.tolist()]


@given(st.lists(st.one_of(st.integers(0, 50), st.integers(0, 2**40)), max_size=80), st.sampled_from([1, 3, 2**20]))
def test_places_are_told_once_and_in_order(keys, bins):
    at = places(np.array([key * 7919 % bins for key in keys], np.uint32), np.array(keys, np.int64))
    assert distinct(at).tolist() == sorted(set(at.tolist()))


BIDS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=40)


@given(st.lists(BIDS, min_size=1, max_size=4))
def test_hottest_auction_is_said_of_every_window_whatever_is_left_out(epochs):
    """Times in any order: who is not looked at closely must not have been the hottest."""
    windows, states, said = Windows(slice=2, slices=3), q5.Counts(2), []
    schema = pa.schema([("auction", pa.int64())])
    bounds = np.full(2, BEGIN)
    for bids in epochs:
        if bids:
            times, auctions = map(np.array, zip(*bids, strict=True))
            bins = (auctions % 2).astype(np.uint32)
            records = Records(bins, times, pa.record_batch([auctions], schema=schema))
            notificator = VectorNotificator(bounds, Later(schema))
            told = q5.count_ahead(windows, records, states, notificator)
            said += zip(told["window_end"], told["auction"], told["bids"], strict=True)
    counts = Counter((end, a) for t, a in itertools.chain(*epochs) for end in range(t // 2 * 2 + 2, t // 2 * 2 + 8, 2))
    right = {}
    for (end, auction), bids in counts.items():
        right[end] = max(right.get(end, (0, 0)), (bids, -auction))
    found = {}
    for end, auction, bids in said:
        assert bids <= counts[end, auction]
        found[end] = max(found.get(end, (0, 0)), (bids, -auction))
    assert found == right


ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=60)


@given(
    st.lists(st.tuples(ROWS, st.sampled_from(["stay", "leave", "return", "forget"]), st.integers(0, 5)), max_size=12)
)
def test_shelves_have_what_was_put_there_in_order(steps):
    """Six bins, which leave and come back, with what they had or without; some rows are too many to stay new."""
    shelves, dicts, away = Shelves(6), defaultdict(list), {}
    asked_bins, asked_keys = map(np.ravel, np.meshgrid(np.arange(6), np.array([3, 0, 9, 12])))
    with few(4):
        for number, (rows, what, bin) in enumerate(steps):
            if what == "leave" and bin not in away:
                away[bin] = shelves.get(bin)
                shelves.drop(bin)
                assert not shelves.get(bin)
            elif what in ("return", "forget") and bin in away:
                back = away.pop(bin)
                if what == "return" and back:
                    shelves.give(bin, back)
                else:
                    dicts.update({(b, k): [] for b, k in dicts if b == bin})
            rows = [row for row in rows if row[0] not in away]
            bins, keys = np.array(rows, np.int64).reshape(-1, 2).T
            values = np.arange(len(rows)) + 100 * number
            shelves.put((places(bins, keys), values))
            for row, value in zip(rows, values.tolist(), strict=True):
                dicts[row].append(value)
            here = ~np.isin(asked_bins, list(away))
            asked = places(asked_bins[here], asked_keys[here])
            lists = [dicts[row] for row in zip(asked_bins[here].tolist(), asked_keys[here].tolist(), strict=True)]
            which, columns = shelves.find(asked)
            expected = [(place, value) for place, values in enumerate(lists) for value in values]
            assert list(zip(which.tolist(), columns[1].tolist() if columns else [], strict=True)) == expected
            assert shelves.has(asked).tolist() == list(map(bool, lists))


@given(
    st.lists(
        st.tuples(ROWS.filter(bool), st.sampled_from(["stay", "leave", "return", "forget"]), st.integers(0, 5)),
        max_size=12,
    )
)
def test_counts_are_kept_as_long_as_a_window_needs_them(steps):
    """Six bins, which leave and come back, with what they had or without; a slice goes by with every step."""
    counts, right, away, slices = Counts(6), Counter(), {}, 4
    for now, (rows, what, bin) in enumerate(steps):
        if what == "leave" and bin not in away:
            away[bin] = counts.pop(bin)
            assert counts.get(bin) is None
        elif what in ("return", "forget") and bin in away:
            back = away.pop(bin)
            if what == "return" and back is not None:
                counts[bin] = back
            else:
                right = Counter({row: bids for row, bids in right.items() if row[0] % 6 != bin})
        # Of an auction's number the bin is what remains.
        bids = [(6 * key + owner, now + owner % 2) for owner, key in rows if owner not in away]
        if bids:
            auctions, when = np.array(bids).T
            counts.put(Chunk.tallied(auctions, when, (auctions % 6).astype(np.uint32)), slices, now - slices)
            right.update(bids)
        check_counts(counts, right, away, now - slices)


@given(st.lists(st.tuples(st.integers(0, 300), st.sampled_from([-3, -1, 0, 1, 5, 10**6])), min_size=1))
def test_bids_are_counted_by_slice_and_auction(bids):
    """Far apart, with nothing between them, or in one slice; in any order."""
    auctions, slices = np.array(bids, np.int64).T
    chunk = Chunk.tallied(auctions, slices, (auctions % 6).astype(np.uint32))
    right = sorted(Counter((slice, auction) for auction, slice in bids).items())
    found = zip(chunk.slices.tolist(), chunk.auctions.tolist(), strict=True)
    assert list(zip(found, chunk.bids.tolist(), strict=True)) == right
    assert chunk.owners.tolist() == [auction % 6 for (_, auction), _ in right]
    assert chunk.span == (min(slices), max(slices))
    first, totals = chunk.totals
    assert {first + at: bids for at, bids in enumerate(totals.tolist()) if bids} == Counter(auctions.tolist())
    there, firsts, lasts = chunk.lives(first, len(totals))
    lived = {auction: [slice for of, slice in bids if of == auction] for auction in auctions.tolist()}
    assert list(zip((there + first).tolist(), firsts.tolist(), lasts.tolist(), strict=True)) == [
        (auction, min(slices), max(slices)) for auction, slices in sorted(lived.items())
    ]


@given(st.lists(st.integers(0, 9), min_size=1), st.data())
def test_least_of_a_run_is_found(values, data):
    starts = data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1))
    stops = [data.draw(st.integers(start + 1, len(values))) for start in starts]
    found = lowest(np.array(values), np.array(starts), np.array(stops))
    assert found.tolist() == [min(values[start:stop]) for start, stop in zip(starts, stops, strict=True)]


def check_counts(counts, right, away, past):
    """What may be needed is there, once; what is there was bid; and no total is less than what is there."""
    asked = np.array([auction for auction in range(60) if auction % 6 not in away], np.int64)
    found = [(asked[which], rows) for which, rows in counts.find(asked)]
    assert all((auctions == rows[0]).all() for auctions, rows in found)
    there = Counter()
    for _, rows in found:
        for auction, slice, bids in zip(*map(np.ndarray.tolist, rows), strict=True):
            there[auction, slice] += bids
    known = {row: bids for row, bids in right.items() if row[0] % 6 not in away}
    assert {row: bids for row, bids in known.items() if row[1] > past}.items() <= there.items() <= known.items()
    totals = [sum(bids for (of, _), bids in there.items() if of == auction) for auction in asked.tolist()]
    assert counts.totals(0, 60)[asked].tolist() == totals


def test_last_of_a_million_bins_has_shelves_as_any_other():
    bins = np.array([0, (1 << 20) - 1, (1 << 20) - 1])
    wanted = places(bins, np.array([1, 2, 2]))
    shelves = Shelves(1 << 20)
    with few(0):
        shelves.put((wanted, np.array([10, 20, 21])))
        shelves.put((wanted[:0], wanted[:0]))
    which, columns = shelves.find(wanted[:2])
    assert (which.tolist(), columns[1].tolist()) == ([0, 1, 1], [10, 20, 21])
    assert [column.tolist() for column in shelves.get(int(bins[1]))] == [[2, 2], [20, 21]]


@contextmanager
def few(rows):
    """Let so few rows be many."""
    before, shelving.FEW = shelving.FEW, rows
    try:
        yield
    finally:
        shelving.FEW = before
