"""The paper's F, which holds a record until the control frontier has passed its time.

No engine runs it: an epoch's configuration is complete when the epoch begins, so nothing need be held (decision 0003).
The worked example runs on it, beside the parts that engines do run.
"""

from collections.abc import Iterator

from megaphone.bins import WorkerId
from megaphone.configuration import Configuration
from megaphone.dataflow.records import Records
from megaphone.dataflow.routing import address
from megaphone.progress import OPEN, Frontier


class Router:
    """Addresses records by a configuration; holds those whose configuration is not certain yet."""

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
