"""Wishes: what a request to move bins may say. Anything else in it is refused.

Neighbours: the engine's desk follows them, console.py sends them.
"""

from typing import Any, Literal, TypeVar

import msgspec

from megaphone.control.documents import Malformed, convert, parse


class Wish(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What every verb takes: of which query, and how."""

    query: str | None = None
    """Its name, or the beginning of its id; none if only one runs."""

    @property
    def pace(self) -> dict[str, Any]:
        """What the user's control takes besides what the verb is about."""
        return {}


class Paced(Wish, kw_only=True):
    """What every verb that moves bins takes."""

    strategy: str | None = None
    batch: int | None = None
    gap: int | None = None
    at: int | None = None
    latency_target: float | None = None

    @property
    def pace(self) -> dict[str, Any]:
        """What the user's control takes besides what the verb is about."""
        names = ("strategy", "batch", "gap", "at", "latency_target")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class Rescale(Paced, kw_only=True):
    """Another number of workers."""

    workers: int


class Drain(Paced, kw_only=True):
    """No bins on a worker, or on any worker of a host."""

    who: int | str


class Rebalance(Paced, kw_only=True):
    """The same load, or number of bins, on every worker."""

    by: Literal["load", "bins"] = "load"


class Migrate(Paced, kw_only=True):
    """A worker for every bin, or for some; or a plan, as `plan` answers it."""

    target: list[int] | dict[int, int] | None = None
    plan: dict[str, Any] | None = None


class DryRun(Paced, kw_only=True):
    """What would happen: a verb, and what it takes."""

    verb: Literal["rescale", "drain", "rebalance", "migrate"]
    workers: int | None = None
    who: int | str | None = None
    by: Literal["load", "bins"] | None = None
    target: list[int] | dict[int, int] | None = None


W = TypeVar("W", bound=Wish)


def read(body: bytes, kind: type[W]) -> W:
    """A wish of a kind; raises `ValueError` with one sentence for what is not one."""
    try:
        return convert(parse(body or b"{}"), kind)
    except Malformed as error:
        raise ValueError(f"not what this takes: {error}") from None
