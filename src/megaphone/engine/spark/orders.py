"""Orders: one worker's share of an epoch plan.

Both the coordinator, which sends them ahead, and the task that feeds the worker derive them from the same plan.
"""

from collections import defaultdict
from collections.abc import Callable

from megaphone.bins import WorkerId
from megaphone.control.epochs import OperatorPlan
from megaphone.engine.spark.messages import Arrival, Orders, Seat


def orders_for(
    worker: WorkerId, operator: str, epoch: int, plan: OperatorPlan, seat_of: Callable[[WorkerId], Seat]
) -> Orders:
    """What `worker` pulls, gives away and holds in an epoch."""
    incoming: dict[WorkerId, list[int]] = defaultdict(list)
    for move in plan.moves:
        if move.target == worker:
            incoming[move.source].append(move.bin)
    arrivals = [Arrival(source, seat_of(source), bins) for source, bins in incoming.items()]
    departures = [int(move.bin) for move in plan.moves if move.source == worker]
    holds = [(int(bin), int(time)) for bin, time in plan.holds]
    return Orders(operator, epoch, plan.frontier, arrivals, departures, holds)
