"""Plans from a watched directory: drop a file, and it is followed.

Each `*.json` is read once. Beside it appears `<name>.accepted` when its migration was taken on, `<name>.done` when it
ended, or `<name>.refused` with the reason.  Neighbours: control.py starts it.
"""

import threading
from collections.abc import Callable
from pathlib import Path

from megaphone.control.controller import Migration
from megaphone.control.plan import Plan
from megaphone.errors import PlanError

LOOK_EVERY_S = 0.2


class Watch:
    """Looks into a directory until it is stopped."""

    def __init__(self, directory: Path, migrate: Callable[[Plan], Migration]) -> None:
        """Start to look."""
        if not directory.is_dir():
            raise PlanError(f"{directory} is not a directory; create it first")
        self._directory = directory
        self._migrate = migrate
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True, name="megaphone-plans")
        self._thread.start()

    def stop(self) -> None:
        """Look no more; migrations under way go on."""
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        under_way: dict[Path, Migration] = {}
        while not self._stopped.wait(LOOK_EVERY_S):
            for path in sorted(self._directory.glob("*.json")):
                if path not in under_way and not self._is_answered(path):
                    self._follow(path, under_way)
            for path, migration in list(under_way.items()):
                if migration.ended_s is not None:
                    path.with_suffix(".done").write_text(f"{migration}\n")
                    del under_way[path]

    def _follow(self, path: Path, under_way: dict[Path, Migration]) -> None:
        try:
            under_way[path] = self._migrate(Plan.read(path))
            path.with_suffix(".accepted").write_text(f"{under_way[path]}\n")
        except (PlanError, OSError) as error:
            path.with_suffix(".refused").write_text(f"{error}\n")

    def _is_answered(self, path: Path) -> bool:
        return any(path.with_suffix(suffix).exists() for suffix in (".accepted", ".done", ".refused"))
