"""Pacing: how much the next step of an adaptive migration may move, by what the last one cost.

A step costs what its epoch took longer than one without. A record that comes just after an epoch has begun waits for
all of it, and then for its own: so both must fit into the latency target. The next step is the larger, the more of the
target was left over, at most twice as large; one that broke it is followed by a smaller one. It is decided between two
epochs and saved with them, so that an epoch that is planned once more gets the same step.
Neighbours: controller.py issues it, meter.py measures.
"""

from collections.abc import Iterable

SAFETY = 0.8
"""Of the time that is left over, the part that a step may use: epochs vary."""

GROWTH = 2.0
"""How much larger than the last one a step may be: a cost that was not seen at first shows before it hurts."""

TARGET_S = 1.0
"""The latency target of an adaptive migration that was given none."""


def stride(weights: Iterable[float], moved: float, took_s: float, steady_s: float, target_s: float) -> int:
    """How many of the bins that are left, with these weights, go next; one at least.

    `moved` is the weight of the last step, in the same unit; its epoch took `took_s`, others take `steady_s`.

    >>> stride([1.0] * 99, moved=4, took_s=0.3, steady_s=0.2, target_s=1.0)
    8
    >>> stride([1.0] * 99, moved=4, took_s=1.8, steady_s=0.2, target_s=1.0)
    1
    """
    budget = allowance(moved, took_s, steady_s, target_s)
    count = 0
    for weight in weights:
        budget -= weight
        if budget < 0:
            break
        count += 1
    return max(1, count)


def allowance(moved: float, took_s: float, steady_s: float, target_s: float) -> float:
    """How much weight the next step may have."""
    spare = SAFETY * (target_s - 2 * steady_s)
    cost = max(took_s - steady_s, 1e-6)
    return min(GROWTH, max(0.0, spare) / cost) * moved
