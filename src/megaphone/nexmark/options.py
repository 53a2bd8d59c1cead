"""What a user says of a source, checked: every option by its name, nothing silently ignored.

Neighbours: parameters.py has the generator's own, each an option of the same name.  To: source.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from megaphone.errors import PlanError
from megaphone.nexmark.events import schema_of
from megaphone.nexmark.generator import Nexmark

PARTITIONS = 2


@dataclass(frozen=True)
class Options:
    """Of a stream or a batch.

    >>> options = Options.of({"kind": "bid", "columns": "auction, price", "rows": "1000", "seed": "7"})
    >>> options.kind, options.schema.names, options.rows, options.nexmark.seed
    ('bid', ['auction', 'price'], (1000,), 7)
    """

    nexmark: Nexmark
    kind: str = "event"
    """person, auction, bid, or event for all of them."""
    columns: tuple[str, ...] | None = None
    """Those that are wanted; all, if it is not said."""
    partitions: int = PARTITIONS
    """How many tasks share an epoch."""
    rows: tuple[int, ...] | None = None
    """Events of all kinds in every epoch, as fast as it can; if it is not said, what the rate says is due.

    Of several numbers each is for one epoch, and the last for all that follow.
    """
    events: int | None = None
    """After how many events of all kinds the stream ends."""
    preload: int = 0
    """So many events come first, in epochs that are slow; the rate holds from then on, for all streams."""

    def __post_init__(self) -> None:
        """Refuse what no source could follow."""
        schema_of(self.kind, self.columns)
        limits = [("partitions", self.partitions, 1), ("events", self.events, 0), ("preload", self.preload, 0)]
        for name, value, least in [*limits, *(("rows", rows, 1) for rows in self.rows or ())]:
            if value is not None and value < least:
                raise PlanError(f"{name} is {value}; choose {least} or more")

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> "Options":
        """Read the options as Spark has them: texts, their names in any case."""
        given = {name.lower(): text for name, text in texts.items()}
        for name in given:
            if name not in _READ:
                raise PlanError(f"no option named '{name}'; choose from {', '.join(_READ)}")
        values = {name: _READ[name](name, text) for name, text in given.items()}
        own = {name: values.pop(name) for name in _OWN if name in values}
        return cls(Nexmark(**values), **own)

    @property
    def schema(self) -> pa.Schema:
        """What the rows are."""
        return schema_of(self.kind, self.columns)

    def after(self, number: int) -> int:
        """Where an epoch ends that begins with an event, if epochs go by rows.

        >>> [Options(Nexmark(), rows=(10, 20)).after(number) for number in (0, 10, 15, 30)]
        [10, 30, 30, 50]
        """
        assert self.rows is not None
        end = self.first
        for rows in self.rows:
            end += rows
            if end > number:
                return end
        return number + self.rows[-1]

    @property
    def first(self) -> int:
        """The number of the first event."""
        return self.nexmark.first_event_number

    @property
    def last(self) -> int | None:
        """The number after the last event, if there is one."""
        return None if self.events is None else self.first + self.events


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise PlanError(f"{name} is '{text}'; choose a whole number") from None


def _sizes(name: str, text: str) -> tuple[int, ...]:
    return tuple(_whole(name, part) for part in text.split(","))


def _number(name: str, text: str) -> float:
    try:
        # A whole number stays one: a rate is taken as it was written.
        return int(text) if text.strip().isdecimal() else float(text)
    except ValueError:
        raise PlanError(f"{name} is '{text}'; choose a number") from None


def _yes_or_no(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise PlanError(f"{name} is '{text}'; choose true or false")
    return text.lower() == "true"


def _list(name: str, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_BY_TYPE: dict[Any, Callable[[str, str], Any]] = {int: _whole, float: _number, bool: _yes_or_no}

_OWN: dict[str, Callable[[str, str], Any]] = {
    "kind": lambda name, text: text.lower(),
    "columns": _list,
    "partitions": _whole,
    "rows": _sizes,
    "events": _whole,
    "preload": _whole,
}

_READ = {**_OWN, **{field.name: _BY_TYPE.get(field.type, _list) for field in fields(Nexmark)}}
"""How each option is read."""
