"""Would catch a request that is understood as something else than was said, or not refused when it makes no sense."""

import json

import pytest

from megaphone.configuration import Assignment
from megaphone.control.plan import Plan
from megaphone.control.strategies import make_plan
from megaphone.service.wishes import Drain, DryRun, Migrate, Rebalance, Rescale, Wish, read


def test_what_was_said_is_read():
    assert read(b'{"who": "host7", "latency_target": 1, "gap": 2}', Drain).pace == {"gap": 2, "latency_target": 1.0}
    assert read(b'{"target": {"3": 1}}', Migrate).target == {3: 1}
    assert read(b'{"target": [0, 1]}', Migrate).target == [0, 1]
    assert read(b'{"verb": "drain", "who": 2}', DryRun).who == 2
    assert read(b"", Wish) == read(b"{}", Wish) == Wish()


def test_plan_comes_through_as_it_is():
    plan = make_plan(Assignment([0, 0, 1]), Assignment([1, 1, 0]), latency_target=0.5)
    wish = read(b'{"plan": ' + plan.to_json().encode() + b"}", Migrate)
    assert Plan.from_json(json.dumps(wish.plan)) == plan


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"{", Wish),
        (b"[]", Wish),
        (b"\xff", Wish),
        (b"{}", Rescale),
        (b'{"workers": "2"}', Rescale),
        (b'{"workers": 2.5}', Rescale),
        (b'{"workers": 2, "wrokers": 3}', Rescale),
        (b'{"who": null}', Drain),
        (b'{"by": "luck"}', Rebalance),
        (b'{"target": {"a": 1}}', Migrate),
        (b'{"plan": "by hand"}', Migrate),
        (b'{"verb": "pause"}', DryRun),
        (b'{"query": 1}', Wish),
        (b'{"workers": 2, "workers": 3}', Rescale),
        (b'{"workers": true}', Rescale),
        (b'{"workers": 2.0}', Rescale),
        (b'{"target": {"1": 0, "1": 1}}', Migrate),
        (b'{"latency_target": NaN, "who": 1}', Drain),
        (b'{"latency_target": 1e999, "who": 1}', Drain),
        (b"[" * 100_000, Wish),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(body, kind):
    with pytest.raises(ValueError, match="not what this takes: ") as refused:
        read(body, kind)
    assert "\n" not in str(refused.value)
