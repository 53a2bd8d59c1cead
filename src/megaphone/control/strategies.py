"""Strategies: from one assignment to another, in steps.

A strategy yields every move once and nothing else; strategies differ only in how they group the moves.
Small steps keep the latency low, large ones end sooner.
From: targets.py.  To: plan.py, controller.py.  Paper: migration strategies, bipartite matching.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from megaphone import checks
from megaphone.bins import WorkerId
from megaphone.configuration import Assignment, Move
from megaphone.control.pacing import TARGET_S
from megaphone.control.plan import Plan, Step
from megaphone.errors import PlanError
from megaphone.progress import Time

Strategy = Callable[[Assignment, Assignment], Iterator[Step]]
Route = tuple[WorkerId, WorkerId]
"""From a worker to a worker."""

BATCH = 16
"""Bins in a batch unless told: moving a quarter of the default 256 bins takes four steps, each small."""


def all_at_once(current: Assignment, target: Assignment) -> Iterator[Step]:
    """Every bin in one step.

    >>> [str(step) for step in all_at_once(Assignment([0, 0, 1]), Assignment([1, 0, 0]))]
    ['0:0>1 2:1>0']
    """
    moves = tuple(current.moves_to(target))
    if moves:
        yield Step(moves)


def fluid(current: Assignment, target: Assignment) -> Iterator[Step]:
    """One bin at a time, in bin order.

    >>> [str(step) for step in fluid(Assignment([0, 0, 1]), Assignment([1, 0, 0]))]
    ['0:0>1', '2:1>0']
    """
    for move in current.moves_to(target):
        yield Step((move,))


def batched(k: int) -> Strategy:
    """`k` bins at a time, in bin order.

    >>> [str(step) for step in batched(2)(Assignment([0, 0, 0]), Assignment([1, 1, 1]))]
    ['0:0>1 1:0>1', '2:0>1']
    """
    size = checks.batch(k)

    def batched(current: Assignment, target: Assignment) -> Iterator[Step]:
        moves = current.moves_to(target)
        while batch := tuple(islice(moves, size)):
            yield Step(batch)

    return batched


def optimized(current: Assignment, target: Assignment) -> Iterator[Step]:
    """No worker sends twice or receives twice in a step, and no plan of which that is true has fewer steps.

    >>> [str(step) for step in optimized(Assignment([0, 0, 1]), Assignment([1, 1, 0]))]
    ['0:0>1 2:1>0', '1:0>1']
    """
    waiting: dict[Route, deque[Move]] = {}
    for move in current.moves_to(target):
        waiting.setdefault((move.source, move.target), deque()).append(move)
    for matching in _matchings(Counter({route: len(moves) for route, moves in waiting.items()})):
        moves = [waiting[route].popleft() for route in matching if waiting.get(route)]
        yield Step(tuple(sorted(moves, key=lambda move: move.bin)))


def adaptive(current: Assignment, target: Assignment) -> Iterator[Step]:
    """One bin at a time, neighbours from and to different workers; how many go together is decided on the way.

    >>> [str(step) for step in adaptive(Assignment([0, 0, 1]), Assignment([1, 1, 0]))]
    ['0:0>1', '2:1>0', '1:0>1']
    """
    for step in optimized(current, target):
        for move in step.moves:
            yield Step((move,))


STRATEGIES: dict[str, Callable[[int], Strategy]] = {
    "adaptive": lambda batch: adaptive,
    "all_at_once": lambda batch: all_at_once,
    "batched": batched,
    "fluid": lambda batch: fluid,
    "optimized": lambda batch: optimized,
}


def make_plan(
    current: Assignment,
    target: Assignment,
    strategy: str | Strategy | None = None,
    *,
    batch: int | None = None,
    gap: int = 0,
    at: int | None = None,
    latency_target: float | None = None,
) -> Plan:
    """The plan from `current` to `target` by a strategy or its name; the first step at time `at`, or at once.

    Without a strategy it is `batched`, or with a latency target, in seconds, `adaptive`.

    >>> print(make_plan(Assignment([0, 0, 0, 0]), Assignment([1, 1, 1, 0]), batch=2, gap=1))
    batched: 3 bins in 2 steps, 1 epochs apart
      step 0: 0:0>1 1:0>1
      step 1: 2:0>1
    """
    pace = Pace.of(strategy, batch=batch, gap=gap, at=at, latency_target=latency_target)
    return pace.plan(current, target)


@dataclass(frozen=True, slots=True)
class Pace:
    """How bins get where they are to be: what every verb that moves them takes, checked."""

    strategy: Strategy
    gap: int
    at: Time | None
    latency_target: float | None

    @classmethod
    def of(
        cls,
        strategy: str | Strategy | None = None,
        *,
        batch: int | None = None,
        gap: int | None = None,
        at: int | None = None,
        latency_target: float | None = None,
    ) -> "Pace":
        """What was said, or refused: also what the strategy has no use for."""
        if strategy is None:
            strategy = "batched" if latency_target is None else "adaptive"
        if batch is not None:
            checks.batch(batch)
        chosen = _named(strategy, BATCH if batch is None else batch) if isinstance(strategy, str) else strategy
        if not callable(chosen):
            raise PlanError(f"a strategy {checks.shown(chosen)}; choose one by name, or give a function")
        name = checks.label(_name(chosen), "a strategy called")
        if batch is not None and strategy != "batched":
            raise PlanError(f"batches of {batch} bins for strategy '{name}'; choose batched, or leave the batch out")
        if latency_target is not None:
            latency_target = checks.latency_target(latency_target)
            if chosen is not adaptive:
                raise PlanError(f"a latency target for strategy '{name}'; choose adaptive, or leave the target out")
        elif chosen is adaptive:
            latency_target = TARGET_S
        when = None if at is None else checks.time(at, "the first step")
        return cls(chosen, 0 if gap is None else checks.gap(gap), when, latency_target)

    def plan(self, current: Assignment, target: Assignment) -> Plan:
        """The plan from one assignment to another."""
        if len(current) != len(target):
            raise PlanError(f"target is for {len(target)} bins, the operators have {len(current)}")
        name = _name(self.strategy)
        # Every step moves a bin, and every bin once.
        steps: list[Any] = list(islice(self.strategy(current, target), len(current) + 1))
        if len(steps) > len(current):
            raise PlanError(f"strategy '{name}' takes more than {len(current)} steps for as many bins")
        if steps and self.at is not None and isinstance(steps[0], Step):
            steps[0] = Step(steps[0].moves, self.at)
        return Plan(len(current), tuple(steps), self.gap, name, self.latency_target)


def _name(strategy: Strategy) -> str:
    return getattr(strategy, "__name__", type(strategy).__name__)


def _named(name: str, batch: int) -> Strategy:
    if name not in STRATEGIES:
        *names, last = sorted(STRATEGIES)
        raise PlanError(f"no strategy named {checks.shown(name)}; choose {', '.join(names)} or {last}")
    return STRATEGIES[name](batch)


def _matchings(demand: Counter[Route]) -> Iterator[list[Route]]:
    """As many matchings as the busiest worker has moves, which together meet the demand.

    Idle routes are added until every worker sends and receives equally often. Such a graph has a perfect
    matching, and without it is again such a graph (König), so none is ever missing. The busiest worker got no
    idle route: every matching moves something.
    """
    routes = demand + _idle(demand)
    pairing = Pairing(routes)
    while routes:
        matching = pairing.complete()
        # The same matching serves until one of its routes is used up.
        rounds = min(routes[route] for route in matching)
        for _ in range(rounds):
            yield matching
        for route in matching:
            routes[route] -= rounds
            if not routes[route]:
                del routes[route]
                pairing.drop(route)


def _idle(demand: Counter[Route]) -> Counter[Route]:
    """Routes without a move that bring every worker to the degree of the busiest."""
    sends, receives = Counter[WorkerId](), Counter[WorkerId]()
    for (source, target), count in demand.items():
        sends[source] += count
        receives[target] += count
    degree = max((sends | receives).values(), default=0)
    idle = Counter[Route]()
    for source, target in product(sorted(sends | receives), repeat=2):
        if count := min(degree - sends[source], degree - receives[target]):
            idle[source, target] = count
            sends[source] += count
            receives[target] += count
    return idle


class Pairing:
    """A matching of senders and receivers that mends itself when a route is used up."""

    def __init__(self, routes: Counter[Route]) -> None:
        """Pair nobody yet."""
        self._receivers: dict[WorkerId, dict[WorkerId, None]] = {}
        for source, target in sorted(routes):
            self._receivers.setdefault(source, {})[target] = None
        self._receiver_of: dict[WorkerId, WorkerId] = {}
        self._sender_of: dict[WorkerId, WorkerId] = {}
        self._single = deque(self._receivers)

    def drop(self, route: Route) -> None:
        """A route of the present matching is used up: its sender needs another."""
        source, target = route
        del self._receivers[source][target], self._receiver_of[source], self._sender_of[target]
        self._single.append(source)

    def complete(self) -> list[Route]:
        """The matching, once every sender has a receiver again."""
        while self._single:
            self._pair(self._single.popleft())
        return sorted(self._receiver_of.items())

    def _pair(self, single: WorkerId) -> None:
        """Find a receiver for one sender; senders on the shortest way to a free one pass theirs on."""
        asked_by: dict[WorkerId, WorkerId] = {}
        asking = deque([single])
        while asking:
            source = asking.popleft()
            for target in self._receivers[source]:
                if target in asked_by:
                    continue
                asked_by[target] = source
                if target not in self._sender_of:
                    self._pass_on(target, asked_by, single)
                    return
                asking.append(self._sender_of[target])

    def _pass_on(self, target: WorkerId, asked_by: dict[WorkerId, WorkerId], single: WorkerId) -> None:
        source = asked_by[target]
        while source != single:
            given_up = self._receiver_of[source]
            self._receiver_of[source], self._sender_of[target] = target, source
            target, source = given_up, asked_by[given_up]
        self._receiver_of[source], self._sender_of[target] = target, source
