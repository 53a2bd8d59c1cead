"""Would catch a point at which no fault can happen: one that no code reaches, or that no case of the suite names."""

import re
from pathlib import Path

import megaphone
from megaphone.faults import POINTS
from megaphone.harness.chaos.suite import grounds

PACKAGE = Path(megaphone.__file__).parent


def test_every_point_is_reached_somewhere():
    reached = {name for path in PACKAGE.rglob("*.py") for name in re.findall(r'\breach\("([^"]+)"', path.read_text())}
    assert reached == set(POINTS)


def test_suite_has_a_case_at_every_point():
    assert set(POINTS) <= {case.point for ground in grounds(seed=0) for case in ground.cases}
