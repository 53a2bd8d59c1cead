"""A Chromium without a window that reaches nothing but this machine, and pages in it that may not complain."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 120_000
"""For conditions that take a second or two on an idle machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs a browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser; without one the tests are skipped."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    api = pytest.importorskip("playwright.sync_api", reason="no playwright: `pip install playwright`")
    if found is None:
        pytest.skip("no Chromium: install the package `chromium`, or name the program in $CHROMIUM")
    api.expect.set_options(timeout=PATIENCE_MS)
    # Not even a name is looked up: whoever asked for another machine would fail.
    arguments = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    with api.sync_playwright() as playwright:
        sandbox = os.geteuid() != 0
        browser = playwright.chromium.launch(executable_path=found, args=arguments, chromium_sandbox=sandbox)
        yield browser
        browser.close()


class Tab:
    """A page, what it has asked for, and what it has complained of."""

    def __init__(self, chromium: Any, **options: Any) -> None:
        """Open an empty one, as large as a laptop."""
        self.context = chromium.new_context(viewport={"width": 1280, "height": 800}, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.hosts: set[str] = set()
        self.asked: list[str] = []
        self.forgiven: str | None = None
        """What every complaint is about that a test provokes."""
        self._complaints: list[str] = []
        self.page.on("request", self._note)
        self.page.on("console", lambda message: self._complain(message.type, message.text))
        self.page.on("pageerror", lambda error: self._complain("error", str(error)))

    def _note(self, request: Any) -> None:
        self.hosts.add(urlsplit(request.url).hostname or "")
        self.asked.append(request.url)

    def _complain(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self._complaints.append(text)

    def check(self) -> None:
        """It has asked nobody else, and has nothing to complain of but what was provoked."""
        assert self.hosts <= {"127.0.0.1"}
        assert [text for text in self._complaints if self.forgiven is None or self.forgiven not in text] == []


@pytest.fixture
def tab(chromium: Any) -> Iterator[Callable[..., Tab]]:
    """Open tabs; what they should not have done fails the test."""
    opened: list[Tab] = []

    def tab(address: str, forgiven: str | None = None, **options: Any) -> Tab:
        opened.append(Tab(chromium, **options))
        opened[-1].forgiven = forgiven
        opened[-1].page.goto(address)
        return opened[-1]

    yield tab
    for one in opened:
        one.context.close()
    for one in opened:
        one.check()


class Driver:
    """A process with a query that counts, and prints where its page is."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        """Start it, and wait for the address."""
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
        self._errors = (folder / "errors").open("w+")
        command = [sys.executable, str(Path(__file__).parent / "driver.py"), str(folder), *map(str, arguments)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=self.environment,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("Megaphone's dashboard: "):
                self.address = line.split()[-1]
                return
        self._errors.seek(0)
        raise AssertionError(f"the driver has ended without an address: {self._errors.read()[-2000:]}")

    def close(self) -> None:
        """End it, and all that it has started."""
        with self._errors, self.process:
            try:
                self.process.communicate(timeout=60)
            finally:
                self.process.kill()


@pytest.fixture(scope="session")
def new_driver(chromium: Any) -> type[Driver]:
    """Start a driver; whoever does it closes it. Not without a browser that could look at it."""
    return Driver
