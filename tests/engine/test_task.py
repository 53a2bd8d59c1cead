"""Would catch a process of Spark's that remembers every query it ever worked for."""

from collections.abc import Iterator

import pytest

from megaphone.configuration import Assignment, Configuration
from megaphone.engine.spark import task
from megaphone.engine.spark.messages import Key, PlanAnswer
from megaphone.engine.spark.task import KEPT, Epoch, remember


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    task._epochs.clear()
    yield
    task._epochs.clear()


def take_part_in(query: str, number: int = 0, run: str = "run", control: str = "control") -> Key:
    """A task of a query's epoch comes by."""
    key = Key(query, run, control)
    answer = PlanAnswer(number, 0, [], [], {}, False, {})
    remember(key, Epoch(key, answer, Configuration(Assignment([0]))))
    return key


def test_epochs_of_queries_long_gone_are_forgotten() -> None:
    stays = take_part_in("stays")
    for number in range(3 * KEPT):
        take_part_in("stays", number)
        last = take_part_in(f"query {number}")
    assert len(task._epochs) == KEPT
    assert {stays, last} <= task._epochs.keys()
    assert task._epochs[stays].answer.epoch == 3 * KEPT - 1


def test_earlier_run_of_a_query_is_forgotten_and_its_other_controls_are_not() -> None:
    take_part_in("query", run="first", control="a")
    a, b = (take_part_in("query", run="second", control=control) for control in "ab")
    assert list(task._epochs) == [a, b]
