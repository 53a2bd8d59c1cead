"""The short form of `make chaos`, and the ten minutes of `make soak`.

Would catch a record lost or doubled by a fault, a process left behind, and a disk that fills up.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(folder: Path, *command: str) -> str:
    """What a command of the project says, run in a folder of its own."""
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.cluster
def test_nothing_is_lost_doubled_or_left(tmp_path):
    told = run(tmp_path, "-m", "megaphone.harness.chaos", "--short")
    last = told.strip().splitlines()[-1]
    assert last == "chaos: 8 faults at 7 points: 0 lost, 0 doubled, 0 processes left", told


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_disk_use_levels_off_in_ten_minutes(tmp_path):
    run(tmp_path, str(ROOT / "benchmarks" / "durability.py"), "disk", "--seconds", "600")
    disk = json.loads((tmp_path / "out" / "bench-durability" / "summary.json").read_text())["disk"]
    # Were it to grow with time, the last third would have half as much again.
    assert disk["most_log_bytes_last_third"] < 1.25 * disk["most_log_bytes_second_third"]
    assert disk["most_bytes_last_third"] < 1.25 * disk["most_bytes_second_third"]
