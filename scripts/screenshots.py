"""Takes the pictures of docs/dashboard.md from a running query: before, during and after a rescale from its own page.

python scripts/screenshots.py [FOLDER]     needs Chromium and Java; two minutes
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import expect, sync_playwright

ROOT = Path(__file__).parents[1]
PATIENCE_MS = 120_000
SIZE = {"width": 1280, "height": 800}


def main(pictures: Path) -> None:
    """Take all three."""
    with query() as address, browser() as page:
        page.goto(address)
        page.locator("[name=range][value='60']").check(force=True)
        time.sleep(75)
        rescale(page)
        take(page, pictures / "dashboard-plan.png")
        page.click("#start")
        expect(page.locator("#state")).to_have_text(re.compile("migrating, [456]. %"))
        take(page, pictures / "dashboard-moving.png")
        expect(page.locator("#under-way")).to_contain_text("done in")
        time.sleep(8)
        take(page, pictures / "dashboard-after.png")


@contextmanager
def query() -> Iterator[str]:
    """One of NEXMark's; the address of its page."""
    with tempfile.TemporaryDirectory(prefix="screenshots-") as folder:
        environment = {**os.environ, "XDG_RUNTIME_DIR": folder}
        options = ["--rate", "20k", "--bins", "128", "--duration", "5m", "--out", folder, "--quiet", "--json"]
        program = [sys.executable, "-m", "megaphone.cli", "nexmark", "q5", *options]
        with subprocess.Popen(program, env=environment, stdout=subprocess.DEVNULL) as process:
            try:
                yield address(environment)
            finally:
                process.terminate()


def address(environment: dict[str, str]) -> str:
    """Where the page is, as soon as it is there."""
    command = [sys.executable, "-m", "megaphone.cli", "dashboard", "--json"]
    while (asked := subprocess.run(command, env=environment, capture_output=True)).returncode:
        time.sleep(1)
    return json.loads(asked.stdout)["address"]


@contextmanager
def browser() -> Iterator[Any]:
    """A page of a laptop's size."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), chromium_sandbox=os.geteuid() != 0
        )
        page = chromium.new_context(viewport=SIZE, device_scale_factor=1.5).new_page()
        page.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        yield page
        chromium.close()


def rescale(page: Any) -> None:
    """Ask what going from two workers to four would mean."""
    page.fill("[name=workers]", "4")
    page.select_option("[name=strategy]", "fluid")
    page.click("#ask")
    page.locator("#plan").wait_for()


def take(page: Any, path: Path) -> None:
    """In few colours, which is what makes it small."""
    picture = Image.open(BytesIO(page.screenshot(full_page=True))).convert("RGB")
    picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures")
