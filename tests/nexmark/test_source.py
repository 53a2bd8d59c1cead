"""Would catch a source that loses its schedule, does not end, changes with its partitions, or ignores an option."""

import time

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StructType

from megaphone.errors import PlanError
from megaphone.nexmark.generator import Nexmark
from megaphone.nexmark.options import Options
from megaphone.nexmark.source import PRELOAD_EVENTS, InputPartition, NexmarkReader, NexmarkSource, NexmarkStreamReader

SECOND_NS = 10**9


def stream(**options):
    return NexmarkStreamReader(Options.of({name: str(value) for name, value in options.items()}))


def read(reader, *offsets):
    return pa.Table.from_batches([batch for share in reader.partitions(*offsets) for batch in reader.read(share)])


@pytest.mark.parametrize("kind", ["person", "auction", "bid", "event"])
@pytest.mark.parametrize("partitions", [1, 7])
def test_rows_are_the_generators_however_they_are_shared_out(kind, partitions):
    rows = read(stream(kind=kind, partitions=partitions, strings=True), {"event": 30}, {"event": 200_000})
    expected = pa.Table.from_batches([Nexmark(strings=True).records(kind, 30, 200_000)])
    assert rows.combine_chunks().equals(expected)


def test_batch_has_the_rows_of_the_stream():
    options = {"kind": "bid", "events": "5000", "first_event_number": "100"}
    batch = read(NexmarkReader(Options.of(options)))
    assert batch.equals(read(stream(**options), {"event": 100}, {"event": 5100}))


def test_batch_without_events_is_empty():
    reader = NexmarkReader(Options.of({"events": "0"}))
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_epochs_have_as_many_events_as_was_said_until_the_end():
    reader = stream(rows=400, events=1000, first_event_number=5)
    offsets = [reader.initialOffset()]
    for _ in range(4):
        offsets.append(reader.latestOffset(offsets[-1], None))
    assert [offset["event"] for offset in offsets] == [5, 405, 805, 1005, 1005]
    assert offsets[-1] == offsets[-2]


def test_open_loop_begins_with_the_first_epoch_and_keeps_its_start():
    reader = stream(rate=1000)
    first = reader.latestOffset(reader.initialOffset(), None)
    assert first["event"] == 0
    later = reader.latestOffset({"event": 0, "start_ns": first["start_ns"] - SECOND_NS}, None)
    assert 1000 <= later["event"] < 3000
    assert later["start_ns"] == first["start_ns"] - SECOND_NS


def test_open_loop_begins_when_the_preload_has_come():
    reader = stream(rate=1000, preload=500, first_event_number=7)
    ahead = reader.latestOffset(reader.initialOffset(), None)
    assert ahead == {"event": 507, "start_ns": 0}
    now_ns = time.time_ns()
    begun = reader.latestOffset(ahead, None)
    assert begun["event"] == 507
    assert 0 <= begun["start_ns"] - now_ns < 30 * SECOND_NS
    later = reader.latestOffset(begun | {"start_ns": begun["start_ns"] - SECOND_NS}, None)
    assert 1507 <= later["event"] < 32_000


def test_large_preload_comes_in_several_epochs():
    reader = stream(rate=1000, preload=2 * PRELOAD_EVENTS + 5, first_event_number=7)
    offset, ends = reader.initialOffset(), []
    while not offset["start_ns"]:
        offset = reader.latestOffset(offset, None)
        ends.append(offset["event"] - 7)
    assert ends == [PRELOAD_EVENTS, 2 * PRELOAD_EVENTS, 2 * PRELOAD_EVENTS + 5, 2 * PRELOAD_EVENTS + 5]


def test_open_loop_ends_after_its_events():
    reader = stream(rate=1000, events=10)
    end = reader.latestOffset({"event": 0, "start_ns": 1}, None)
    assert end == {"event": 10, "start_ns": 1}
    assert reader.latestOffset(end, None) == end


def test_open_loop_goes_on_from_events_that_came_without_a_schedule():
    reader = stream(rate=1000)
    offset = reader.latestOffset({"event": 60_000, "start_ns": 0}, None)
    assert 60_000 <= offset["event"] < 61_000
    later = reader.latestOffset(offset | {"start_ns": offset["start_ns"] - SECOND_NS}, None)
    assert 61_000 <= later["event"] < 63_000


def test_bounded_run_does_not_wait_for_the_schedule():
    reader = stream(rate=1, events=1000)
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(reader.initialOffset(), None) == {"event": 1000, "start_ns": 0}
    assert reader.latestOffset({"event": 1000, "start_ns": 0}, None) == {"event": 1000, "start_ns": 0}


def test_endless_stream_and_endless_batch_are_refused():
    with pytest.raises(PlanError, match="an endless stream cannot end by itself; say with the option events"):
        stream(rows=10).prepareForTriggerAvailableNow()
    with pytest.raises(PlanError, match="a batch of events has an end; say with the option events"):
        NexmarkReader(Options.of({}))


def test_every_parameter_is_an_option():
    options = {"Rate": "2.5", "dilation": "60", "STRINGS": "True", "us_states": "OR, ID", "in_flight_auctions": "7"}
    assert Options.of(options).nexmark == Nexmark(
        rate=2.5, dilation=60, strings=True, us_states=("OR", "ID"), in_flight_auctions=7
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"row": "1"}, "no option named 'row'; choose from kind, columns, partitions, rows, events, preload, seed"),
        ({"kind": "bids"}, "no kind named 'bids'; choose person, auction, bid or event"),
        ({"kind": "bid", "columns": "seller"}, "no column named 'seller'; choose from auction, bidder, price, date_ti"),
        ({"columns": "kind, kind"}, "columns are 'kind, kind'; choose at least one, and none twice"),
        ({"columns": ","}, "columns are ''; choose at least one, and none twice"),
        ({"rows": "ten"}, "rows is 'ten'; choose a whole number"),
        ({"rows": "0"}, "rows is 0; choose 1 or more"),
        ({"rows": "5,0"}, "rows is 0; choose 1 or more"),
        ({"partitions": "0"}, "partitions is 0; choose 1 or more"),
        ({"events": "-1"}, "events is -1; choose 0 or more"),
        ({"rate": "fast"}, "rate is 'fast'; choose a number"),
        ({"rate": "-3"}, "rate is -3.0; choose more than 0"),
        ({"strings": "1"}, "strings is '1'; choose true or false"),
        ({"hot_seller_ratio": "0"}, "hot_seller_ratio is 0; choose 1 to"),
    ],
)
def test_wrong_options_are_refused_with_a_sentence(options, sentence):
    with pytest.raises(PlanError, match=sentence):
        Options.of(options)


def test_schema_of_the_users_own_chooses_columns():
    source = NexmarkSource({"kind": "bid"})
    reader = source.streamReader(StructType().add("price", LongType()).add("auction", LongType()))
    assert read(reader, {"event": 0}, {"event": 100}).schema.names == ["price", "auction"]
    with pytest.raises(PlanError, match="column price is bigint and nullable; declare it so"):
        source.streamReader(StructType().add("price", IntegerType()))
