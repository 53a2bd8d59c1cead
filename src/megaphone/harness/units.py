"""Units as people write and read them: 100k events, 30s, 12 MB.

Neighbours: cli.py and whoever speaks to the user.
"""

import re
from decimal import Decimal

from megaphone.errors import PlanError

THOUSANDS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}

QUANTITY = re.compile(r"(\d+\.?\d*|\.\d+)\s*([a-z]*)", re.ASCII)


def number(text: str) -> int | float:
    """A number, in thousands or millions if it says so; a whole one stays one.

    >>> number("100k"), number("1.5M"), number("2500"), number("0.5")
    (100000, 1500000, 2500, 0.5)
    """
    found = QUANTITY.fullmatch(text.strip().lower())
    if not found or found[2] not in THOUSANDS:
        raise PlanError(f"'{text}' is no number; choose one like 2500, 100k or 1.5M")
    value = Decimal(found[1]) * THOUSANDS[found[2]]
    return int(value) if value == int(value) else float(value)


def seconds(text: str) -> float:
    """A length of time.

    >>> seconds("30s"), seconds("1.5m"), seconds("250ms"), seconds("10")
    (30.0, 90.0, 0.25, 10.0)
    """
    found = QUANTITY.fullmatch(text.strip().lower())
    if not found or found[2] not in SECONDS:
        raise PlanError(f"'{text}' is no length of time; choose one like 30s, 500ms, 2m or 1h")
    return float(Decimal(found[1]) * SECONDS[found[2]])


def size(size: float) -> str:
    """Bytes, for people.

    >>> [size(n) for n in (0, 999, 1234, 56_700_000, 8e12)]
    ['0 B', '999 B', '1.2 kB', '57 MB', '8.0 TB']
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 9.95 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
