"""The follower: asks policies every few seconds, and does what they wish by the verbs that everybody uses.

The first wish is followed, in the order of the policies. What is refused is told and forgotten; the query is never
harmed. It ends with its query.  Neighbours: control.py starts it, control/policies has the policies.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from megaphone.checks import positive, shown
from megaphone.control.controller import Migration, MigrationSummary
from megaphone.control.policies.observation import Observation
from megaphone.control.policies.policy import MOST, Policy, Wish
from megaphone.errors import PlanError
from megaphone.printing import LOGGER, printable


@dataclass(frozen=True, slots=True)
class Answer:
    """A policy's wish and what became of it: a migration, or why there is none."""

    policy: str
    wish: Wish
    asked_s: float
    migration: Migration | MigrationSummary | None = None
    """Without its plan, some time after it has ended."""
    refusal: str | None = None

    def __str__(self) -> str:
        return printable(f"{self.policy}: {_reason(self.wish)}: {self.refusal or self.migration}")


def _reason(wish: Any) -> str:
    """Why something is wished; a policy may give anything."""
    reason = getattr(wish, "reason", None)
    return reason if isinstance(reason, str) else "no reason"


def _without_plan(answer: Answer) -> Answer:
    """An answer to be remembered: plans may be large, and many answers are."""
    migration = answer.migration
    if isinstance(migration, Migration) and migration.ended_s is not None:
        return replace(answer, migration=migration.summary)
    return answer


class Follower:
    """Looks until it is stopped, or its query has ended."""

    def __init__(
        self,
        policies: Sequence[Policy],
        observe: Callable[[], Observation | None],
        act: Callable[[Wish, Observation], Migration],
        every: float,
    ) -> None:
        """Start to look; the query may still be to come."""
        if not policies:
            raise PlanError("no policy to follow; give one or more")
        for policy in policies:
            if not callable(getattr(policy, "decide", None)):
                raise PlanError(f"a policy {shown(policy)}; give an object with a method decide(seen)")
        self._policies = policies
        self._observe = observe
        self._act = act
        self._every = positive(every, "a look every {} s")
        self._answers: deque[Answer] = deque(maxlen=MOST)
        self._stopped = threading.Event()
        self._paused = threading.Event()
        self.error: BaseException | None = None
        """What ended it before its time: a policy that fails is not asked again."""
        self._thread = threading.Thread(target=self._look, daemon=True, name="megaphone-policies")
        self._thread.start()

    @property
    def following(self) -> bool:
        """Does it still look?"""
        return self._thread.is_alive()

    @property
    def history(self) -> list[Answer]:
        """What was wished, and what became of it."""
        return list(self._answers)

    def pause(self) -> None:
        """Ask no policy until `resume`; a migration under way goes on."""
        self._paused.set()

    def resume(self) -> None:
        """Ask them again."""
        self._paused.clear()

    def stop(self) -> None:
        """Look no more; a migration under way goes on."""
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        begun = False
        try:
            while not self._stopped.wait(self._every):
                seen = self._observe()
                if seen is None and begun:
                    return
                begun = seen is not None
                if seen is not None and not self._paused.is_set():
                    self._ask(seen)
        # Also SystemExit, which would end the thread in silence.
        except BaseException as error:
            self.error = error
            LOGGER.exception("no policy is followed any more: %s %s", type(error).__name__, error)

    def _ask(self, seen: Observation) -> None:
        for policy in self._policies:
            wish = policy.decide(seen)
            if wish is not None:
                answer = self._follow(type(policy).__name__, wish, seen)
                self._answers = deque([*map(_without_plan, self._answers), answer], maxlen=MOST)
                return

    def _follow(self, policy: str, wish: Wish, seen: Observation) -> Answer:
        asked = time.time()
        try:
            if not isinstance(wish, Wish):
                raise PlanError(f"a wish {shown(wish)}; give Migrate, Rescale or None")
            answer = Answer(policy, wish, asked, self._act(wish, seen))
            LOGGER.info("%s", answer)
        except PlanError as error:
            answer = Answer(policy, wish, asked, refusal=str(error))
            LOGGER.warning("%s", answer)
        return answer
