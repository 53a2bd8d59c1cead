"""Checks: every number and name that a user gives, for its type and range.

What is wrong is refused with `PlanError` before anything is done about it. A whole number is what Python takes as an
index, so NumPy's integers too; booleans, floats and texts are none.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from math import log10
from numbers import Real
from operator import index
from typing import Any

from megaphone.errors import PlanError
from megaphone.progress import BEGIN, END, Time

INT64 = (int(BEGIN), int(END))

MAX_SLOTS = 1 << 16
"""Tasks of a stage: Spark's driver takes seconds to schedule more."""

MAX_GAP = (1 << 31) - 1
"""Epochs: at one a second 68 years. The sum of an epoch and a gap stays a 64-bit integer."""

MAX_PATIENCE = 1_000_000
"""Looks of a policy, each of which is remembered."""

MAX_SECONDS = 1e9
"""Thirty years: a thread can wait so long."""

MAX_NAME = 100
"""Characters: a name is part of file names."""

MAX_LABEL = 200
"""Characters of what a plan calls its strategy."""

FAR = 1 << 30
"""A limit beyond anything that is meant."""

LOG10_OF_2 = log10(2)

MAX_SHOWN = 60
"""Characters of a value that a refusal shows."""

MAX_DIGITS = 40
"""Of a whole number that a refusal shows in full."""


def integer(value: Any) -> int | None:
    """A whole number as Python's own; None if it is not one."""
    if type(value) is int:
        return value
    if isinstance(value, bool):
        return None
    try:
        return index(value)
    except Exception:
        return None


def whole(value: Any, about: str, least: int = INT64[0], most: int = INT64[1]) -> int:
    """A whole number in a range; `about` says in a refusal what it is, with the value for its braces.

    >>> whole(3, "a gap of {} epochs", 0), whole(1.5, "a gap of {} epochs", 0)
    Traceback (most recent call last):
    megaphone.errors.PlanError: a gap of 1.5 epochs; choose a whole number, 0 or more
    """
    found = integer(value)
    if found is not None and least <= found <= most:
        return found
    # A limit that is far off is of interest only beyond it.
    far = most >= FAR and (found is None or found < least) and least > INT64[0]
    choice = f"{'a whole number, ' if found is None else ''}{least} {'or more' if far else f'to {most}'}"
    raise PlanError(f"{about.format(shown(value))}; choose {choice}")


def real(value: Any, about: str) -> float:
    """A number that has a size; NaN and infinity have none."""
    if not isinstance(value, bool) and isinstance(value, Real):
        try:
            found = float(value)
        except OverflowError:
            found = float("inf")
        if abs(found) < float("inf"):
            return found
    raise PlanError(f"{about.format(shown(value))}; choose a number")


def part(value: Any, about: str) -> float:
    """A number from 0 to 1."""
    found = real(value, about)
    if not 0 <= found <= 1:
        raise PlanError(f"{about.format(shown(value))}; choose one from 0 to 1")
    return found


def positive(value: Any, about: str, most: float = MAX_SECONDS) -> float:
    """A number above 0."""
    found = real(value, about)
    if not 0 < found <= most:
        raise PlanError(f"{about.format(shown(value))}; choose more than 0{_up_to(found, most)}")
    return found


def not_negative(value: Any, about: str, most: float = MAX_SECONDS) -> float:
    """A number that is 0 or above it."""
    found = real(value, about)
    if not 0 <= found <= most:
        raise PlanError(f"{about.format(shown(value))}; choose 0 or more{_up_to(found, most)}")
    return found


def _up_to(found: float, most: float) -> str:
    return f", up to {most:g}" if found > most else ""


def worker_count(value: Any, bins: int) -> int:
    """How many workers there may be: each of them with a bin, at least.

    >>> worker_count(5, bins=4)
    Traceback (most recent call last):
    megaphone.errors.PlanError: 5 workers asked for, but there are 4 bins, one at least for each; choose 1 to 4
    """
    found = integer(value)
    if found is None or found < 1:
        return whole(value, "{} workers asked for", 1)
    if found > bins:
        fact = f"{shown(found)} workers asked for, but there are {bins} bins, one at least for each"
        raise PlanError(f"{fact}; choose 1 to {bins}")
    return found


def slots(value: Any) -> int:
    """How many tasks there may be to feed the workers."""
    return whole(value, "{} slots asked for", 1, MAX_SLOTS)


def worker(value: Any, workers: int, about: str | None = None) -> int:
    """A worker, by its number."""
    return whole(value, about or f"worker {{}} of {workers}", 0, workers - 1)


def choice(value: Any, about: str, names: Sequence[str]) -> str:
    """One of some names; `about` says in a refusal what was named."""
    if isinstance(value, str) and value in names:
        return value
    *others, last = names
    raise PlanError(f"{about.format(shown(value))}; choose {', '.join(others)} or {last}")


def unused(what: str, given: Mapping[str, Any]) -> None:
    """Refuse what was said and would be dropped; None is nothing said.

    >>> unused("a drain", {"strategy": None, "workers": 3})
    Traceback (most recent call last):
    megaphone.errors.PlanError: a drain has no use for workers; leave it out
    """
    names = [name for name, value in given.items() if value is not None]
    if names:
        raise PlanError(f"{what} has no use for {' and '.join(names)}; leave {'it' if len(names) == 1 else 'them'} out")


def numeral(text: str, about: str) -> int:
    """A whole number that was written down, in the digits of ASCII."""
    if len(text) > MAX_SHOWN or not re.fullmatch(r"-?[0-9]+", text):
        raise PlanError(f"{about.format(shown(text))}; choose a whole number")
    return int(text)


def gap(value: Any) -> int:
    """Epochs between one step and the next."""
    return whole(value, "a gap of {} epochs", 0, MAX_GAP)


def batch(value: Any) -> int:
    """Bins in a step."""
    return whole(value, "batches of {} bins", 1)


def time(value: Any, of: str = "a step") -> Time:
    """A time at which something may happen."""
    return Time(whole(value, f"{of} is at time {{}}", INT64[0], INT64[1] - 1))


def latency_target(value: Any) -> float:
    """Seconds that a record may take."""
    return positive(value, "a latency target of {} s")


def name(value: Any, of: str) -> str:
    """A name that is part of file names, and can be read back from the marks it leaves in Spark's plan."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)*", value):
        fact = f"{of} name {shown(value)}"
        raise PlanError(f"{fact}; choose letters, digits and single underscores between them")
    if len(value) > MAX_NAME:
        raise PlanError(f"{of} name of {len(value)} characters; choose at most {MAX_NAME}")
    return value


def label(value: Any, of: str) -> str:
    """A text that is shown to people: short, and printable."""
    if not isinstance(value, str) or not value.isprintable() or len(value) > MAX_LABEL:
        raise PlanError(f"{of} {shown(value)}; choose at most {MAX_LABEL} printable characters")
    return value


def owner_pairs(owners: Any, bins: int) -> list[tuple[int, int]]:
    """Bins and their workers, from a mapping or from a worker for every bin; no more is read than there are bins.

    >>> owner_pairs({3: 1, 0: 2}, bins=4), owner_pairs([0, 1], bins=2)
    ([(3, 1), (0, 2)], [(0, 0), (1, 1)])
    """
    if isinstance(owners, str | bytes | bytearray | set | frozenset) or not isinstance(owners, Iterable):
        raise PlanError(f"a target of {shown(owners)}; give a worker for every bin, or some bins and their workers")
    if isinstance(owners, Mapping):
        return _by_bin(islice(owners.items(), bins + 1), bins)
    workers = list(islice(owners, bins + 1))
    if len(workers) != bins:
        many = f"more than {bins}" if len(workers) > bins else str(len(workers))
        raise PlanError(f"a map of {many} owners for {bins} bins; give one owner for each bin")
    return [(bin, _owner(bin, worker)) for bin, worker in enumerate(workers)]


def _by_bin(pairs: Iterable[tuple[Any, Any]], bins: int) -> list[tuple[int, int]]:
    found: dict[int, int] = {}
    for key, value in pairs:
        bin = whole(key, f"bin {{}} of {bins}", 0, bins - 1)
        if bin in found:
            raise PlanError(f"bin {bin} would go to workers {found[bin]} and {shown(value)}; choose one")
        found[bin] = _owner(bin, value)
    return list(found.items())


def _owner(bin: int, worker: Any) -> int:
    return whole(worker, f"bin {bin} on worker {{}}", 0)


def shown(value: Any) -> str:
    """A value as a refusal shows it: short, and harmless for a terminal.

    >>> shown("two\\n"), shown(7.5), shown(10**1000), shown([])
    ("'two\\\\n'", '7.5', 'about 10**1000', '<list>')
    """
    number = integer(value)
    if number is not None and abs(number) >= 10**MAX_DIGITS:
        # Python refuses to write a number of very many digits.
        return f"about {'-' if number < 0 else ''}10**{round(number.bit_length() * LOG10_OF_2)}"
    if number is not None or value is None or isinstance(value, Real):
        text = str(value if number is None else number)
    elif isinstance(value, str):
        text = repr(value[: MAX_SHOWN + 1])
    else:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
