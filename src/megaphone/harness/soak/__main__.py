"""Soak a query: `python -m megaphone.harness.soak [--minutes M] [--save] [--seed N]`.

Migrations and kills for some minutes; prints what there is of everything at the start, in the middle and at the end,
and exits with 1 if something grows that should not, if a row is lost or doubled, or if a process is left. `--save`
writes the run to `benchmarks/results/soak` and its table to `docs/reliability.md`.
"""

import argparse
import random
import shutil
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from megaphone.errors import MegaphoneError
from megaphone.harness.chaos.verdict import records_read
from megaphone.harness.chaos.warden import GaveUp
from megaphone.harness.results import commit_of, setting
from megaphone.harness.soak import report
from megaphone.harness.soak.census import Figures
from megaphone.harness.soak.ledger import missing
from megaphone.harness.soak.measures import EPOCH, Line, judged
from megaphone.harness.soak.query import Soaked
from megaphone.harness.soak.rounds import ROUND_S, rounds
from megaphone.harness.soak.sample import Looker, sample

FULL_MINUTES = 10.0
OUT = Path("out/soak")


def main() -> int:
    """Soak, print, save; the exit status says whether everything was right."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=FULL_MINUTES, help="of migrations and kills; less to try it")
    parser.add_argument("--save", action="store_true", help="keep the run, and put its table into the docs")
    parser.add_argument("--seed", type=int, default=1, help="other workers are killed and drained")
    options = parser.parse_args()
    folder = Path(mkdtemp(prefix="soak-"))
    try:
        about, lines = _soak(folder, options.minutes, options.seed)
    except (GaveUp, MegaphoneError) as error:
        print(f"soak: {error}; kept: {folder}")
        return 1
    except KeyboardInterrupt:
        print("\nsoak: stopped")
        shutil.rmtree(folder, ignore_errors=True)
        return 130
    print(f"{report.text(lines)}\n\nsoak: {report.origin(about)}")
    report.save(OUT / "run.json", about, lines)
    if options.save:
        report.save(report.SAVED, about, lines)
        report.PAGE.write_text(report.page(report.PAGE.read_text(), report.read(report.SAVED)))
    if about["verdict"] != "flat":
        print(f"kept: {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _soak(folder: Path, minutes: float, seed: int) -> tuple[dict[str, Any], list[Line]]:
    about = {**setting(), "seed": seed, "commit": commit_of(Path()), "minutes": minutes}
    each_half = max(1, round(minutes * 60 / ROUND_S / 2))
    query = Soaked(folder)
    try:
        points = _points(query, minutes, each_half, random.Random(seed))
        migrations = sum(query.status()["migrations"].values())
        count = query.tell("stop")
    finally:
        left = query.end()
    lost, doubled = missing(count["highest"], records_read(query.checkpoint / "offsets", count["epoch"]))
    lines = judged(*points)
    about |= {
        "full": minutes >= FULL_MINUTES,
        "epochs": count["epoch"] + 1,
        "migrations": migrations,
        "kills": query.kills,
        "rows": count["rows"],
        "lost": count["lost"] + lost,
        "doubled": count["doubled"] + doubled,
        "left": left,
        "epoch_ratio": round(points[-1][EPOCH] / points[0][EPOCH], 2),
    }
    return {**about, "verdict": _verdict(about, lines)}, lines


def _points(query: Soaked, minutes: float, each_half: int, chance: random.Random) -> list[Figures]:
    looker = Looker(query)
    try:
        _say("a round, after which everything has happened once")
        rounds(query, 1, 0.0, chance)
        points = [sample(query, looker)]
        for half in ("first", "second"):
            _say(f"the {half} half: {each_half} rounds")
            rounds(query, each_half, minutes * 30, chance)
            points.append(sample(query, looker))
        return points
    finally:
        looker.end()


def _verdict(about: dict[str, Any], lines: list[Line]) -> str:
    if about["lost"] or about["doubled"] or about["left"]:
        return "wrong"
    return "grows" if any(line.grows for line in lines) else "flat"


def _say(what: str) -> None:
    print(what, flush=True)


if __name__ == "__main__":
    sys.exit(main())
