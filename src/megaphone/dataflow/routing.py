"""F, the router.

A record goes to the worker that the configuration names for its bin at its time, and does not leave before the
control frontier has passed that time. From: a source.  To: exchange.py.  Paper: the migration mechanism.
"""

from collections.abc import Iterator

from megaphone.bins import WorkerId
from megaphone.configuration import Configuration
from megaphone.dataflow.records import Records, argsort, runs
from megaphone.progress import OPEN, Frontier


class Router:
    """Addresses records by a configuration; holds those whose configuration is not certain yet.

    On Spark the epoch plan closes the control stream for the epoch, so nothing is held (decisions/0003).
    """

    def __init__(self, configuration: Configuration, control: Frontier = OPEN) -> None:
        """Route by `configuration`, known to be complete for times the control frontier has passed."""
        self.configuration = configuration
        self.control = control
        self.held: list[Records] = []

    def receive(self, records: Records) -> Iterator[tuple[WorkerId, Records]]:
        """Address what is certain, hold the rest."""
        certain = records.times < self.control.bound
        if not certain.all():
            self.held.append(records.where(~certain))
        yield from address(self.configuration, records.where(certain))

    def advance(self, control: Frontier) -> Iterator[tuple[WorkerId, Records]]:
        """Let the control frontier pass some times, and address what waited for them."""
        self.control, held, self.held = control, self.held, []
        for records in held:
            yield from self.receive(records)


def address(configuration: Configuration, records: Records) -> Iterator[tuple[WorkerId, Records]]:
    """The records of each worker, in their order of arrival."""
    if not len(records):
        return
    times = records.times[0] if records.at_one_time else records.times
    owners = configuration.owners(times, records.bins)
    if (owners == owners[0]).all():
        yield WorkerId(int(owners[0])), records
        return
    order = argsort(owners)
    routed, owners = records.take(order), owners[order]
    for start, stop in runs(owners):
        yield WorkerId(int(owners[start])), routed.slice(start, stop)
