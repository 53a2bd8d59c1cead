"""What a user says of a run, checked: whatever cannot be is refused in one sentence, before Spark is started.

Neighbours: cli.py has the parser, units.py reads numbers and times.  To: job.py.
"""

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from megaphone import checks
from megaphone.errors import PlanError
from megaphone.harness.units import number, seconds

T = TypeVar("T")

WARM_UP_S = 10.0
"""Spark compiles, processes start, a backlog is worked off: more than enough on two cores."""

TARGETS = ("next", "back", "skew")

ABOUT = """\
STRATEGY is all_at_once, batched, fluid or optimized; TIME counts from when the first event is due. After a colon may
come batch=N (bins in a step), gap=N (epochs between steps) and target=next (half of each worker's bins to the next
worker), back (where they were at the beginning) or skew (half of each odd worker's bins to its even neighbour). Unless
told, targets are next and back in turn."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A migration that is to begin at a time.

    >>> Wish.of("batched@30s:batch=4,target=skew")
    Wish(strategy='batched', at_s=30.0, target='skew', batch=4, gap=0)
    """

    strategy: str
    at_s: float
    target: str = ""
    """Of TARGETS; if it does not say, that depends on the ones before."""
    batch: int | None = None
    gap: int = 0

    @classmethod
    def of(cls, text: str) -> "Wish":
        """Read one."""
        found = re.fullmatch(r"(\w+)@([^:]+)(?::(.+))?", text.strip())
        if not found:
            raise PlanError(f"'{text}' is no migration; choose a strategy and a time, like batched@30s")
        options = _options(found[3] or "")
        target = options.pop("target", "")
        if target not in ("", *TARGETS):
            raise PlanError(f"no target named '{target}'; choose {_choice(TARGETS)}")
        counts = {name: _whole(name, value) for name, value in options.items()}
        return cls(_strategy(found[1]), seconds(found[2]), target, **counts)


def _options(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in (part.partition("=")[::2] for part in text.split(",") if part):
        if name not in ("batch", "gap", "target"):
            raise PlanError(f"no option '{name}' of a migration; choose batch=, gap= or target=")
        if name in options:
            raise PlanError(f"{name}= twice in a migration, '{options[name]}' and '{value}'; choose one")
        options[name] = value
    return options


def _strategy(name: str) -> str:
    from megaphone.control.strategies import STRATEGIES

    if name not in STRATEGIES:
        raise PlanError(f"no strategy named '{name}'; choose {_choice(sorted(STRATEGIES))}")
    return name


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that a run depends on."""

    query: str
    version: str
    rate: int | float
    duration_s: float
    warm_up_s: float
    workers: int
    bins: int
    migrations: tuple[Wish, ...]
    dilation: int | float
    seed: int
    strings: bool
    master: str
    checkpoint: str | None
    out: Path

    def __post_init__(self) -> None:
        """Refuse what no run could follow."""
        from megaphone.bins import Bins
        from megaphone.harness.nexmark.versions import builder
        from megaphone.nexmark.generator import Nexmark

        builder(self.version, self.query)
        Bins.of_count(self.bins)
        Nexmark(rate=self.rate, dilation=self.dilation, seed=self.seed)
        if not self.duration_s > 0:
            raise PlanError(f"a duration of {self.duration_s:g} s; choose more than 0")
        checks.worker_count(self.workers, self.bins)
        if self.checkpoint is not None and _is_used(Path(self.checkpoint)):
            raise PlanError(f"{self.checkpoint} is there already and not empty; choose another --checkpoint, or none")
        for wish in self.migrations:
            self._check(wish)

    def _check(self, wish: Wish) -> None:
        from megaphone.control.strategies import Pace

        if self.version != "migrateable":
            raise PlanError(f"no state moves in --version {self.version}; choose migrateable, or leave out --migrate")
        if self.workers < 2:
            raise PlanError("one worker has nobody to move bins to; choose --workers 2 or more")
        if wish.at_s >= self.duration_s:
            raise PlanError(
                f"a migration at {wish.at_s:g} s, but the run has {self.duration_s:g} s; "
                "choose an earlier time or a longer --duration"
            )
        Pace.of(wish.strategy, batch=wish.batch, gap=wish.gap)


def declare(parser: argparse.ArgumentParser) -> None:
    """Tell the parser what can be said; values are read later, to be refused in our own words."""
    add = parser.add_argument
    add("query", metavar="QUERY", help="q0 to q8, or list to see what they ask")
    add("--rate", default="100k", help="events a second, like 2500, 100k or 1.5M (100k)")
    add("--duration", default="60s", help="how long events come, like 90s or 5m (60s)")
    add("--workers", default="2", help="processes that share the state (2)")
    add("--bins", default="256", help="parts of the state that move as one, a power of two (256)")
    add("--migrate", action="append", default=[], metavar="STRATEGY@TIME[:...]", help="move state; can be repeated")
    add("--version", default="migrateable", help="migrateable, native or spark (migrateable)")
    add("--dilation", default="1", help="seconds of event time in a second (1)")
    add("--seed", default="1", help="other events with every seed (1)")
    add("--strings", action="store_true", help="names, e-mail addresses and descriptions, which cost time")
    add("--warm-up", default=None, help="how long latency does not count as steady (10s, or a quarter of a short run)")
    add("--master", default="local[*]", help="Spark's master (local[*])")
    add("--checkpoint", metavar="DIR", help="where the query keeps what must survive (a folder that is then removed)")
    add("--out", metavar="DIR", help="where the picture and the summary go (out/nexmark-QUERY)")
    add("--json", action="store_true", help="the summary for programs")
    add("--quiet", action="store_true", help="no word before the summary")
    parser.epilog = ABOUT


def settings_of(arguments: argparse.Namespace) -> Settings:
    """What was said, or a sentence that says what to choose."""
    duration_s = _read("duration", arguments.duration, seconds)
    return Settings(
        arguments.query,
        arguments.version,
        _read("rate", arguments.rate, number),
        duration_s,
        min(WARM_UP_S, duration_s / 4) if arguments.warm_up is None else _read("warm-up", arguments.warm_up, seconds),
        _whole("--workers", arguments.workers),
        _whole("--bins", arguments.bins),
        tuple(_wishes(arguments.migrate)),
        _read("dilation", arguments.dilation, number),
        _whole("--seed", arguments.seed),
        arguments.strings,
        arguments.master,
        arguments.checkpoint,
        Path(arguments.out or f"out/nexmark-{arguments.query}"),
    )


def _wishes(texts: Iterable[str]) -> Iterator[Wish]:
    """In the order of their times; who does not say where to goes to the next worker, and back the next time."""
    for place, wish in enumerate(sorted(map(Wish.of, texts), key=lambda wish: wish.at_s)):
        yield replace(wish, target=wish.target or TARGETS[place % 2])


def _read(name: str, text: str, reader: Callable[[str], T]) -> T:
    try:
        return reader(text)
    except PlanError as error:
        raise PlanError(f"--{name}: {error}") from None


def _whole(name: str, text: str) -> int:
    if not re.fullmatch(r"-?\d+", text, re.ASCII):
        raise PlanError(f"{name} is '{text}'; choose a whole number")
    return int(text)


def _choice(names: Sequence[str]) -> str:
    *some, last = names
    return f"{', '.join(some)} or {last}"


def _is_used(folder: Path) -> bool:
    return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
