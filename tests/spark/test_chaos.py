"""The short form of `make chaos`.

Would catch a record lost or doubled by a fault, and a process left behind.
"""

import subprocess
import sys

import pytest


@pytest.mark.cluster
def test_nothing_is_lost_doubled_or_left(tmp_path):
    command = [sys.executable, "-m", "megaphone.harness.chaos", "--short"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    last = done.stdout.strip().splitlines()[-1:]
    told = done.stdout + done.stderr
    assert last == ["chaos: 8 faults at 7 points: 0 lost, 0 doubled, 0 processes left"], told
    assert done.returncode == 0, told
