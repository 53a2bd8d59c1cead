"""What F has addressed, as plain tuples, for the tests of both Fs."""

from megaphone.bins import BinId, WorkerId
from megaphone.configuration import Update
from megaphone.progress import Time


def update(time, bin, worker):
    """One bin to one worker at a time."""
    return Update(Time(time), ((BinId(bin), WorkerId(worker)),))


def routed(addressed):
    """Worker, bin, time and number of each record."""
    return [(worker, *row) for worker, records in addressed for row in _rows_of(records)]


def _rows_of(records):
    return zip(records.bins.tolist(), records.times.tolist(), records.data["n"].to_pylist(), strict=True)
