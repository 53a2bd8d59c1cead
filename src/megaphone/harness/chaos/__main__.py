"""Run the suite: `python -m megaphone.harness.chaos [--short] [--seed N] [--only TEXT]`.

Ends with one line, `chaos: N faults at M points: L lost, D doubled, P processes left`, and `out/chaos/summary.json`.
"""

import argparse
import json
import shutil
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from megaphone.harness.chaos.disk import SmallDisk
from megaphone.harness.chaos.suite import STEADY, Case, Ground, grounds, inject, short
from megaphone.harness.chaos.warden import GaveUp, Warden

OUT = Path("out/chaos")


@dataclass(slots=True)
class Tally:
    """What has happened so far."""

    faults: int = 0
    points: set[str] = field(default_factory=set)
    lost: int = 0
    doubled: int = 0
    left: int = 0
    unfinished: int = 0
    cases: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"chaos: {self.faults} faults at {len(self.points)} points: "
            f"{self.lost} lost, {self.doubled} doubled, {self.left} processes left"
        )

    @property
    def right(self) -> bool:
        """Nothing lost, doubled, left or given up."""
        return not (self.lost or self.doubled or self.left or self.unfinished)


def main() -> int:
    """Run the cases; the exit status says whether everything was right."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few faults, for `make test`")
    parser.add_argument("--seed", type=int, default=1, help="another order of the faults")
    parser.add_argument("--only", default="", help="only the faults whose line has this text")
    options = parser.parse_args()
    tally = Tally()
    suite = short(options.seed) if options.short else grounds(options.seed)
    try:
        for ground in suite:
            picked = [case for case in ground.cases if options.only in f"{ground.name}: {case}"]
            if picked:
                _run(ground, picked, tally)
    except KeyboardInterrupt:
        print("\nstopped after", end=" ")
        print(tally)
        return 130
    OUT.mkdir(parents=True, exist_ok=True)
    summary = {**asdict(tally), "points": sorted(tally.points), "seed": options.seed, "right": tally.right}
    (OUT / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    if tally.unfinished:
        print(f"{tally.unfinished} faults after which the query did not come back, see {OUT}")
    print(tally)
    return 0 if tally.right else 1


def _run(ground: Ground, cases: list[Case], tally: Tally) -> None:
    folder = Path(mkdtemp(prefix="chaos-"))
    disk = SmallDisk(folder / "checkpoint", 24) if ground.small_disk else None
    warden = Warden(folder, ground.master, dict(ground.settings), disk)
    try:
        warden.until_healthy()
        for number, case in enumerate(cases):
            print(f"{ground.name} {number + 1}/{len(cases)}: {case} ... ", end="", flush=True)
            _try(case, warden, tally)
    finally:
        tally.left += warden.end()
        _account(warden, None, tally, 0.0)
        if disk is not None:
            disk.close()
        if tally.right:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"kept: {folder}")


def _try(case: Case, warden: Warden, tally: Tally) -> None:
    begin = time.monotonic()
    warden.clear()
    try:
        inject(case, warden)
        tally.faults += 1
        tally.points.add(f"{case.point} in {'a migration' if case.phase != STEADY else 'steady state'}")
        status = warden.until_healthy()
        tally.left += len(warden.stray_workers(set(status["workers"].values())))
    except GaveUp as error:
        tally.unfinished += 1
        print(f"{error}; ", end="")
    _account(warden, case, tally, time.monotonic() - begin)


def _account(warden: Warden, case: Case | None, tally: Tally, seconds: float) -> None:
    verdict = warden.judge.judge()
    tally.lost += verdict.lost
    tally.doubled += verdict.doubled
    if case is not None:
        told = "right" if verdict.right else f"{verdict.lost} lost, {verdict.doubled} doubled"
        print(f"{told} ({verdict.rows} rows, {seconds:.1f} s)", flush=True)
        tally.cases.append({"case": str(case), "seconds": round(seconds, 2), **asdict(verdict)})


if __name__ == "__main__":
    sys.exit(main())
