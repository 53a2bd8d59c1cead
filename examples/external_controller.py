"""A controller outside: a program of its own that reads how a query is, and only writes control messages.

It needs nothing but a directory that the query's control watches (`control.watch(directory)`), and could be written in
any language: it reads `query.status` there, writes a plan as `<name>.json`, and looks which answer appears beside it:
`<name>.accepted` and then `<name>.done`, or `<name>.refused` with the reason.

Its policy is as plain as can be: when a worker has half as much again as the mean, it gives its heaviest bins to the
idlest worker, one after the other, as long as that helps. Run it as `python external_controller.py DIRECTORY`; it ends
when the query has been even for a while, or with Ctrl-C.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

TOO_MUCH = 1.5
LOOK_EVERY_S = 1.0
PATIENCE_S = 120.0


def read_status(directory: Path) -> dict[str, Any] | None:
    """How the query is, if anybody has said yet."""
    try:
        return json.loads((directory / "query.status").read_text())
    except FileNotFoundError:
        return None


def loads_of(status: dict[str, Any]) -> list[float]:
    """Each worker's load: the time its bins take, or their records where no time is known."""
    by_bin = status["busy"] if any(status["busy"]) else status["records_per_s"]
    loads = [0.0] * status["workers"]
    for owner, load in zip(status["owners"], by_bin, strict=True):
        loads[owner] += load
    return loads


def find_moves(status: dict[str, Any]) -> list[list[int]]:
    """Moves `[bin, from, to]` that bring the busiest worker down; none if it is not busy enough for that."""
    by_bin = status["busy"] if any(status["busy"]) else status["records_per_s"]
    loads = loads_of(status)
    mean = sum(loads) / len(loads)
    busiest, moves = loads.index(max(loads)), []
    if loads[busiest] <= TOO_MUCH * mean:
        return []
    mine = [bin for bin, owner in enumerate(status["owners"]) if owner == busiest and by_bin[bin] > 0]
    for bin in sorted(mine, key=lambda bin: -by_bin[bin]):
        idlest = loads.index(min(loads))
        if loads[idlest] + by_bin[bin] < loads[busiest]:
            loads[busiest] -= by_bin[bin]
            loads[idlest] += by_bin[bin]
            moves.append([bin, busiest, idlest])
    return moves


def write_plan(directory: Path, name: str, bins: int, moves: list[list[int]]) -> None:
    """One step for each move; written beside first, since half a plan must not be read."""
    steps = [{"time": None, "moves": [move]} for move in moves]
    plan = {"megaphone_plan": 1, "bins": bins, "strategy": "external", "steps": steps}
    draft = directory / f"{name}.draft"
    draft.write_text(json.dumps(plan))
    draft.rename(directory / f"{name}.json")


def wait_for_answer(directory: Path, name: str) -> str:
    """What became of a plan."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for kind in ("done", "refused"):
            answer = directory / f"{name}.{kind}"
            if answer.exists() and (text := answer.read_text().strip()):
                return f"{kind}: {text}"
        time.sleep(0.1)
    return "no answer"


def main() -> None:
    """Look, decide, write, and look what became of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="what the query's control watches")
    parser.add_argument("--looks", type=int, default=10, help="end after so many looks in a row without need")
    options = parser.parse_args()
    calm, number, epoch = 0, 0, -1
    while calm < options.looks:
        time.sleep(LOOK_EVERY_S)
        status = read_status(options.directory)
        if status is None or status["moving"] or status["epoch"] == epoch:
            continue
        epoch, moves = status["epoch"], find_moves(status)
        calm = 0 if moves else calm + 1
        if moves:
            number += 1
            name = f"external-{int(time.time())}-{number}"
            print(f"epoch {epoch}: loads {[round(load, 3) for load in loads_of(status)]}, moving {len(moves)} bins")
            write_plan(options.directory, name, len(status["owners"]), moves)
            print(wait_for_answer(options.directory, name))


if __name__ == "__main__":
    main()
