"""Commands: what a control was asked for, as it is written down, and as a restart will read it.

A plan is accepted as it was read back from its own bytes: what is followed now is what is followed after a crash, and
what could not be followed then is refused.
"""

from dataclasses import dataclass

import msgspec

from megaphone.control.basis import Checked
from megaphone.control.plan import Plan
from megaphone.durability.store import Command


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """A command in the bytes of its file, and the plan that was read back from them, checked."""

    raw: bytes
    checked: Checked


def read_back(checked: Checked) -> Written:
    """Put a plan in the form of its file, and read and check it as a restart would."""
    raw = msgspec.msgpack.encode(Command("submit", checked.plan.to_json(), checked.then_workers))
    command = msgspec.msgpack.decode(raw, type=Command)
    assert command.plan is not None
    return Written(raw, checked.basis.check(Plan.from_json(command.plan), command.workers))
