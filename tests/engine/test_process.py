"""What a Python process of Spark's has loaded stays out of the garbage collector's sight."""

import gc
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from megaphone.engine.spark.process import settle_in


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_is_loaded_later_is_settled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    settle_in()
    first = gc.get_freeze_count()
    late = ModuleType("loaded_by_a_later_task")
    late.__dict__["lists"] = [[] for _ in range(10_000)]
    monkeypatch.setitem(sys.modules, late.__name__, late)
    settle_in()
    assert gc.get_freeze_count() - first > 9_000


def test_what_comes_without_a_module_is_collected_as_ever() -> None:
    settle_in()
    first, own = gc.get_freeze_count(), [[] for _ in range(10_000)]
    settle_in()
    assert gc.get_freeze_count() <= first
    # Frozen objects are not among these.
    assert any(each is own for each in gc.get_objects())
