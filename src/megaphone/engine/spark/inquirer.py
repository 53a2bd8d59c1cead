"""The inquirer: finds out whether the bins of a migration can travel, before a step of it is issued.

It asks the workers in threads that live as long as the inquiry, so that no epoch waits for it, and none pays for it
when nothing is to move. A worker that cannot say it in time holds no migration up.
"""

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import pyarrow.flight as flight

from megaphone.configuration import Assignment, Move
from megaphone.control.controller import Migration
from megaphone.control.travel import Inquiry, Question
from megaphone.engine.spark.messages import Seat, TravelAnswer, TravelQuestion
from megaphone.engine.spark.rpc import Caller
from megaphone.errors import MegaphoneError
from megaphone.service.logs import LOGGER

PATIENCE_S = 3.0
"""How long a migration waits at most until it is known which of its bins can travel; then its steps are issued."""

LOOK_S = 1.0
"""How long a dry run waits for it."""

AGAIN_S = 0.1
"""After so long a worker that does not know is asked again."""

GRACE_S = 0.5
"""How much later than asked for an answer may come."""

AT_ONCE = 64
"""Questions under way, at most."""

Conclude = Callable[[Migration, Inquiry], None]


class Inquirer:
    """Asks the workers of one run, about one migration at a time."""

    def __init__(self, caller: Caller, seats: Callable[[], dict[int, Seat]], conclude: Conclude) -> None:
        """What was found out of a migration goes to `conclude`, in a thread of its own."""
        self._caller = caller
        self._seats = seats
        self._conclude = conclude
        self._asked: Migration | None = None
        self._closed = threading.Event()

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()

    def begin(self, migration: Migration, residence: Assignment, operators: Iterable[str]) -> None:
        """Ask about what a migration has still to move, unless that is being done."""
        if migration is not self._asked:
            self._asked = migration
            arguments = migration, residence, list(operators)
            threading.Thread(target=self._inquire, args=arguments, daemon=True, name="inquirer").start()

    def _inquire(self, migration: Migration, residence: Assignment, operators: list[str]) -> None:
        moves = (move for step in migration.plan.steps[migration.issued :] for move in step.moves)
        try:
            inquiry = self.look(moves, residence, operators, PATIENCE_S)
            if self._asked is migration:
                self._asked = None
                self._conclude(migration, inquiry)
        except Exception as error:
            # With the next epoch it is asked once more.
            LOGGER.warning("migration %s cannot begin: %s", migration.number, error)
            self._asked = None

    def look(self, moves: Iterable[Move], residence: Assignment, operators: Iterable[str], within_s: float) -> Inquiry:
        """Ask until all is known, a bin is known that cannot travel, or it has taken so long."""
        end = time.monotonic() + within_s
        inquiry = Inquiry(moves, residence, operators)
        # One that hangs must not keep the others waiting.
        pool = ThreadPoolExecutor(max_workers=min(AT_ONCE, 1 + len(inquiry.questions)), thread_name_prefix="inquiry")
        asked = {pool.submit(self._ask, question, end): question for question in inquiry.questions}
        while asked and inquiry.obstacle is None and not self._closed.is_set() and time.monotonic() < end + GRACE_S:
            done, _ = wait(asked, GRACE_S, FIRST_COMPLETED)
            for future in done:
                answer = future.result()
                again = inquiry.hear(asked.pop(future), answer.stuck, answer.unknown)
                if again is not None and time.monotonic() < end:
                    asked[pool.submit(self._ask, again, end)] = again
        pool.shutdown(wait=False, cancel_futures=True)
        return inquiry

    def _ask(self, question: Question, end: float) -> TravelAnswer:
        """What a worker knows; nothing, if it is not there or says nothing."""
        answer = TravelAnswer([], list(question.bins))
        left = max(0.0, end - time.monotonic())
        try:
            address = self._seats()[question.worker].address
            asked = TravelQuestion(question.operator, list(question.bins), left)
            answer = self._caller.call(address, "travel", asked, TravelAnswer, left + GRACE_S)
        except (MegaphoneError, KeyError, OSError, flight.FlightError):
            pass
        if answer.unknown and not answer.stuck:
            self._closed.wait(min(AGAIN_S, max(0.0, end - time.monotonic())))
        return answer
