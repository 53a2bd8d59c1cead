"""Run the scenarios: `python -m megaphone.harness.hosts`.

Ends with one line, `cluster: H hosts, S scenarios, W wrong: N rows, L lost, D doubled, P processes left`. Where hosts
cannot be made, it says in one sentence why not, and skips.
"""

import shutil
import signal
import sys
import time
from pathlib import Path
from tempfile import mkdtemp

from megaphone.harness.chaos.verdict import Verdict
from megaphone.harness.chaos.warden import GaveUp
from megaphone.harness.hosts.network import NotHere
from megaphone.harness.hosts.scenarios import SCENARIOS, Wrong
from megaphone.harness.hosts.stage import Stage

NAMES = ["a", "b", "c"]


def main() -> int:
    """Build the stage, let everything happen, and take it down; the exit status says whether everything was right."""
    # As if by Ctrl-C: the stage is taken down.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(mkdtemp(prefix="hosts-"))
    try:
        stage = Stage(folder, NAMES)
    except NotHere as error:
        print(f"cluster: skipped, hosts cannot be made here: {error}")
        shutil.rmtree(folder, ignore_errors=True)
        return 0
    status = 1
    try:
        status = 0 if _run(stage) else 1
    except GaveUp as error:
        print(f"cluster: {error}")
    except KeyboardInterrupt:
        print("\ncluster: stopped")
        status = 130
    finally:
        stage.network.close()
        if status == 1:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return status


def _run(stage: Stage) -> bool:
    stage.begin()
    wrong = 0
    for scenario in SCENARIOS:
        begin = time.monotonic()
        print(f"{scenario.__name__.replace('_', ' ')}: ", end="", flush=True)
        gone_on = True
        try:
            told = scenario(stage)
        except (Wrong, GaveUp) as error:
            told, wrong, gone_on = f"WRONG: {error}", wrong + 1, isinstance(error, Wrong)
        verdict = stage.judge.judge()
        print(f"{told}\n    {_counted(verdict)} ({time.monotonic() - begin:.1f} s)", flush=True)
        if not (gone_on and verdict.right):
            break
    left = stage.end()
    for command in left:
        print(f"left: {command[:200]}")
    verdict = stage.judge.judge()
    print(
        f"cluster: {len(stage.hosts)} hosts, {len(SCENARIOS)} scenarios, {wrong} wrong: "
        f"{_counted(verdict)}, {len(left)} processes left"
    )
    return verdict.right and not wrong and not left


def _counted(verdict: Verdict) -> str:
    return f"{verdict.rows} rows, {verdict.lost} lost, {verdict.doubled} doubled"


if __name__ == "__main__":
    sys.exit(main())
