"""Would catch a policy that ends the follower in silence, and an answer of one that is taken for what it is not."""

import logging
import threading

import pytest

from megaphone import PlanError
from megaphone.control.policies.policy import Rescale
from megaphone.engine.spark.follower import Follower

EVERY_S = 0.001


class Saying:
    """A policy that says some things, one after the other, and is then silent."""

    def __init__(self, *said):
        self.said = list(said)
        self.done = threading.Event()

    def decide(self, seen):
        if not self.said:
            self.done.set()
            return None
        said = self.said.pop(0)
        if isinstance(said, BaseException):
            raise said
        return said


def refused(wish, seen):
    raise PlanError("it cannot be followed")


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), ZeroDivisionError()], ids=repr)
def test_policy_that_raises_anything_is_told_and_ends_the_following(caplog, error):
    caplog.set_level(logging.ERROR, "megaphone")
    follower = Follower([Saying(error)], lambda: object(), refused, EVERY_S)
    follower._thread.join(60)
    assert (follower.following, follower.error) == (False, error)
    assert f"no policy is followed any more: {type(error).__name__}" in caplog.text


RUBBISH = [3, "rescale", {"workers": 3}, Rescale, object(), True]


@pytest.mark.parametrize("rubbish", RUBBISH, ids=lambda value: type(value).__name__)
def test_what_is_no_wish_is_refused_and_the_next_one_is_followed(rubbish):
    policy = Saying(rubbish, Rescale(2, "a\x1b[2Jreason"))
    follower = Follower([policy], lambda: object(), lambda wish, seen: "a migration", EVERY_S)
    assert policy.done.wait(60)
    follower.stop()
    first, second = follower.history
    assert (first.migration, first.refusal.endswith("; give Migrate, Rescale or None")) == (None, True)
    assert str(second) == "Saying: a\\x1b[2Jreason: a migration"
    assert follower.error is None


@pytest.mark.parametrize(
    ("policies", "every", "reason"),
    [
        ([], 1, "no policy to follow; give one or more"),
        ([3], 1, "a policy 3; give an object with a method decide"),
        ([Saying()], 0, "a look every 0 s; choose more than 0"),
        ([Saying()], True, "a look every True s; choose a number"),
        ([Saying()], "2", "a look every '2' s; choose a number"),
        ([Saying()], float("nan"), "a look every nan s; choose a number"),
        ([Saying()], 1e300, "a look every 1e[+]300 s; choose more than 0, up to 1e[+]09"),
    ],
)
def test_what_could_never_be_followed_is_refused_at_once(policies, every, reason):
    with pytest.raises(PlanError, match=reason):
        Follower(policies, lambda: None, refused, every)
