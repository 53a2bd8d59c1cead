"""Plans from a watched directory: drop a file, and it is followed.

Each `*.json` is read once. Beside it appears `<name>.accepted` when its migration was taken on, `<name>.done` when it
ended, or `<name>.refused` with the reason. `query.status` says how the query is, as JSON, for those who write plans.
Neighbours: control.py starts it.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from megaphone.control.controller import Migration
from megaphone.control.plan import Plan
from megaphone.control.policies.observation import Observation
from megaphone.errors import PlanError

LOOK_EVERY_S = 0.2
TELL_EVERY_S = 1.0
STATUS = "query.status"


class Watch:
    """Looks into a directory until it is stopped."""

    def __init__(
        self,
        directory: Path,
        migrate: Callable[[Plan], Migration],
        observe: Callable[[], Observation | None],
    ) -> None:
        """Start to look."""
        if not directory.is_dir():
            raise PlanError(f"{directory} is not a directory; create it first")
        self._directory = directory
        self._migrate = migrate
        self._observe = observe
        self._told_s = float("-inf")
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
            self._tell()
            for path in sorted(self._directory.glob("*.json")):
                if path not in under_way and not self._is_answered(path):
                    self._follow(path, under_way)
            for path, migration in list(under_way.items()):
                if migration.ended_s is not None:
                    path.with_suffix(".done").write_text(f"{migration}\n")
                    del under_way[path]

    def _tell(self) -> None:
        if time.monotonic() < self._told_s + TELL_EVERY_S:
            return
        self._told_s = time.monotonic()
        # What cannot be told now may be the next time; plans are followed all the same.
        with suppress(PlanError, OSError):
            seen = self._observe()
            if seen is not None:
                draft = self._directory / f".{STATUS}"
                draft.write_text(seen.to_json() + "\n")
                draft.replace(self._directory / STATUS)

    def _follow(self, path: Path, under_way: dict[Path, Migration]) -> None:
        try:
            under_way[path] = self._migrate(Plan.read(path))
            path.with_suffix(".accepted").write_text(f"{under_way[path]}\n")
        except (PlanError, OSError) as error:
            path.with_suffix(".refused").write_text(f"{error}\n")

    def _is_answered(self, path: Path) -> bool:
        return any(path.with_suffix(suffix).exists() for suffix in (".accepted", ".done", ".refused"))
