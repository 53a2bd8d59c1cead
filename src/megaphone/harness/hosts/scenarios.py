"""The scenarios, in the order in which they happen to one query. Each says what it saw, or what is not as it should be.

Neighbours: stage.py is where they happen, `python -m megaphone.harness.hosts` runs them and counts.
"""

from collections.abc import Callable

from megaphone.faults import MOVING
from megaphone.harness.chaos.warden import until
from megaphone.harness.hosts.stage import Sight, Stage

WORKERS, MORE = 4, 5


class Wrong(Exception):
    """Something is not as it should be."""


def spread(stage: Stage) -> str:
    """Workers are spread over the hosts: each has as many as any other, give or take one."""
    sight = stage.until(lambda s: len(s.hosts) == WORKERS, f"{WORKERS} workers")
    counts = [len(sight.on(host)) for host in stage.hosts]
    _check(max(counts) - min(counts) <= 1, f"workers are not spread evenly: {sight}")
    return f"{WORKERS} workers: {sight}"


def drain(stage: Stage) -> str:
    """A host is drained while the stream runs: its bins go elsewhere over the network, its workers own nothing."""
    before = stage.see()
    host = max(stage.hosts, key=lambda host: len(before.on(host)))
    steps = stage.tell("drain", host.name)["steps"]
    after = stage.until(lambda s: s.settled, "a drained host")
    _check(after.pids == before.pids, f"workers were lost: {after}")
    _check(not any(after.bins[worker] for worker in after.on(host)), f"host {host.name} still owns bins: {after.bins}")
    _check(stage.talk_by_tcp(after, host), f"no worker elsewhere has called one on host {host.name} over TCP")
    stage.tell("balance")
    stage.until(lambda s: s.settled and all(s.bins.values()), "bins on every worker")
    return f"{steps} bins of {len(before.on(host))} workers left host {host.name} over TCP"


def cut(stage: Stage) -> str:
    """A host is cut off while it gives a bin away, for so long that Spark gives it up and its workers end."""
    host = stage.hosts[1]
    stale = stage.workers_on(host)
    stage.cut_at(host, "pull-old" + MOVING)
    sight = stage.until(lambda s: _is_whole(s, WORKERS) and not s.on(host), f"{WORKERS} workers elsewhere")
    until(lambda: host.address not in stage.see().executors or None, "Spark's noticing that an executor is lost")
    until(lambda: not stage.workers_on(host) & stale or None, f"the end of the workers of host {host.name}")
    return f"{len(stale)} workers of host {host.name} ended and were placed anew: {sight}"


def back(stage: Stage) -> str:
    """The host comes back: Spark has an executor there again, and the next new worker is placed there."""
    host = stage.hosts[1]
    stage.network.mend(host)
    until(lambda: host.address in stage.see().executors or None, f"an executor on host {host.name}")
    stage.tell("grow", MORE)
    sight = stage.until(lambda s: _is_whole(s, MORE), f"{MORE} workers")
    _check(len(sight.on(host)) == 1, f"the new worker is not on the host that had none: {sight}")
    return f"{MORE} workers: {sight}"


def blink(stage: Stage) -> str:
    """A host is cut off while it takes bins in, just until its workers are given up: these are nobody now, and end."""
    host = stage.hosts[2]
    stale = stage.workers_on(host)
    stage.cut_at(host, "pull-new" + MOVING)
    until(lambda: not stage.see().on(host) or None, f"the giving up of the workers of host {host.name}")
    _check(stage.workers_on(host) == stale, f"workers of host {host.name} ended before it came back")
    stage.network.mend(host)
    until(lambda: not stage.workers_on(host) & stale or None, f"the end of the stale workers of host {host.name}")
    sight = stage.until(lambda s: _is_whole(s, MORE), f"{MORE} workers")
    strangers = stage.workers_on(host) - {sight.pids[worker] for worker in sight.on(host)}
    _check(not strangers, f"workers that are nobody run on host {host.name}: {strangers}")
    return f"{len(stale)} stale workers of host {host.name} ended: {sight}"


SCENARIOS: tuple[Callable[[Stage], str], ...] = (spread, drain, cut, back, blink)


def _is_whole(sight: Sight, workers: int) -> bool:
    return sight.settled and len(sight.hosts) == workers


def _check(right: bool, otherwise: str) -> None:
    if not right:
        raise Wrong(otherwise)
