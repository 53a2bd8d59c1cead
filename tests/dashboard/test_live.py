"""A real query, looked at and moved from its page.

Would catch a button that does nothing or the wrong thing, a plan that is followed though it was not shown, a page that
does not see the end of what it began, and one that pretends a dead query to be alive.
"""

import json
import re
import subprocess
import sys

import pytest

BINS = 16


@pytest.fixture(scope="module")
def driver(new_driver, tmp_path_factory):
    driver = new_driver(tmp_path_factory.mktemp("live"), BINS)
    yield driver
    driver.close()


@pytest.fixture
def page(driver, tab):
    return tab(driver.address).page


@pytest.fixture
def expect(chromium):
    from playwright.sync_api import expect

    return expect


@pytest.fixture
def command(driver):
    """What `megaphone` answers in a process of its own."""

    def command(*arguments):
        words = [sys.executable, "-m", "megaphone.cli", *arguments, "--json"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=driver.environment)
        return json.loads(done.stdout)

    return command


def cells(page, table, column):
    return page.locator(f"#{table} tbody td:nth-child({column})").all_inner_texts()


def ask(page, verb, **fields):
    """Fill the form, and ask for a dry run."""
    page.locator(f"[name=verb][value={verb}]").check(force=True)
    for name, value in fields.items():
        field = page.locator(f"[name={name}]")
        field.select_option(value) if name in ("strategy", "who", "by") else field.fill(value)
    page.click("#ask")


def planned(page):
    page.locator("#plan").wait_for()
    return {name: page.locator(f"[data-plan={name}]").inner_text() for name in ("bins", "steps", "bytes", "seconds")}


def test_page_shows_the_query(page, expect, command):
    expect(page.locator("#state")).to_have_text("running")
    expect(page.locator("#name")).to_have_text("counts")
    assert page.title() == "counts: running – Megaphone"
    expect(page.locator("#workers tbody tr")).to_have_count(2)
    expect(page.locator("#p99")).to_have_text(re.compile(r"^[\d.]+ m?s$"))
    expect(page.locator("#rate")).to_have_text(re.compile(r"^[1-9][\d,]*$"))
    expect(page.locator("#workers tbody td:nth-child(4)").first).to_have_text(re.compile(r"^\d+ MB$"))
    status = command("status")
    assert cells(page, "workers", 3) == [str(worker["pid"]) for worker in status["workers"]]
    assert cells(page, "workers", 2) == [worker["host"] for worker in status["workers"]]
    assert cells(page, "workers", 6) == [str(BINS // 2)] * 2
    expect(page.locator("#lag")).to_have_text("none")


def test_address_is_the_one_that_the_command_prints(driver, command):
    assert command("dashboard")["address"] == driver.address


def test_bin_that_is_pointed_at_is_told(page, expect, command):
    expect(page.locator("#state")).to_have_text("running")
    told = page.locator("#map output")
    page.hover("#map canvas", position={"x": 10, "y": 32})
    expect(told).to_have_text(re.compile(r"^bin 0\s+worker 0\s+[\d.,]+ records/s"))
    page.focus("#map canvas")
    page.mouse.move(0, 0)
    for key in ("ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    owned = [bin for bin, owner in enumerate(command("status")["owners"]) if owner == 0]
    expect(told).to_have_text(re.compile(rf"^bin {owned[1]}\s+worker 0\s"))


def test_rescale_from_the_page_is_seen_to_its_end(page, expect, command):
    expect(page.locator("#workers tbody tr")).to_have_count(2)
    ask(page, "rescale", workers="4", strategy="fluid")
    plan = planned(page)
    assert (plan["bins"], plan["steps"]) == (str(BINS // 2), str(BINS // 2))
    assert command("history") == []
    page.click("#start")
    expect(page.locator("#state")).to_have_text(re.compile("^migrat"))
    expect(page.locator("#under-way")).to_have_text(re.compile(r"fluid: done in [\d.]+ m?s$"))
    expect(page.locator("#state")).to_have_text("running")
    expect(page.locator("#workers tbody tr")).to_have_count(4)
    assert cells(page, "workers", 6) == [str(BINS // 4)] * 4
    assert cells(page, "history", 5) == [f"{BINS // 2} of {BINS // 2}"]
    expect(page.locator("#plan")).to_be_hidden()
    (migration,) = command("history")
    assert (migration["phase"], migration["strategy"], migration["bins_moved"]) == ("done", "fluid", BINS // 2)
    moved = re.compile(r"epochs, [1-9]\d* of them with moves")
    expect(page.locator("#timeline canvas")).to_have_attribute("aria-label", moved)


def test_migration_is_paused_resumed_and_cancelled_from_the_page(page, expect, command):
    expect(page.locator("#workers tbody tr")).to_have_count(4)
    # A gap that never ends: cancelled, not complete, whatever the machine does.
    ask(page, "drain", who="3", strategy="fluid", gap="10000")
    assert planned(page)["bins"] == str(BINS // 4)
    page.click("#start")
    expect(page.locator("#left")).to_have_text(re.compile(rf"^1 of {BINS // 4} bins, .* left$"))
    page.click("#pause")
    expect(page.locator("#state")).to_have_text("migration paused, 25 %")
    expect(page.locator("#pause")).to_be_disabled()
    assert command("status")["migration"]["phase"] == "paused"
    page.click("#resume")
    expect(page.locator("#state")).to_have_text("migrating, 25 %")
    expect(page.locator("#resume")).to_be_disabled()
    page.click("#cancel")
    expect(page.locator("#state")).to_have_text("running")
    expect(page.locator("#under-way")).to_have_text(re.compile("fluid: cancelled in "))
    assert cells(page, "history", 4)[0] == "cancelled"
    assert [one["phase"] for one in command("history")] == ["done", "cancelled"]
    for button in ("#pause", "#resume", "#cancel"):
        expect(page.locator(button)).to_be_disabled()


def test_rebalance_goes_by_keyboard_alone(page, expect, command):
    expect(page.locator("#workers tbody tr")).to_have_count(4)
    page.focus("[name=verb][value=rescale]")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    page.keyboard.press("n")
    page.locator("[name=target]").focus()
    page.keyboard.type("30000")
    page.keyboard.press("Enter")
    expect(page.locator("#start")).to_be_focused()
    expect(page.locator("#plan-title")).to_have_text("The plan: rebalance, adaptive")
    page.keyboard.press("Enter")
    expect(page.locator("#under-way")).to_have_text(re.compile(r"adaptive, records within 30.0 s: done in "))
    migration = command("history")[-1]
    assert (migration["latency_target"], migration["bins_moved"]) == (30.0, 1)
    assert cells(page, "workers", 6) == [str(BINS // 4)] * 4


def test_what_is_refused_is_told_and_nothing_moves(driver, tab, expect, command):
    page = tab(driver.address, forgiven="409 (Conflict)").page
    expect(page.locator("#workers tbody tr")).to_have_count(4)
    before = len(command("history"))
    ask(page, "rescale", workers="2", strategy="fluid", target="100")
    refused = page.locator("#refused")
    expect(refused).to_have_text(re.compile("latency target"))
    expect(page.locator("#plan")).to_be_hidden()
    page.locator("[name=target]").fill("")
    expect(refused).to_be_hidden()
    page.click("#ask")
    planned(page)
    page.locator("[name=workers]").fill("3")
    expect(page.locator("#plan")).to_be_hidden()
    assert len(command("history")) == before


def test_no_other_token_will_do(driver, tab, expect):
    page = tab(driver.address[:-1], forgiven="401 (Unauthorized)").page
    expect(page.locator("#alarm")).to_have_text(re.compile("^This page needs the token"))
    expect(page.locator("#workers tbody tr")).to_have_count(0)


def test_query_that_is_gone_is_said_to_be(driver, tab, expect):
    """The last test: the driver is killed, and has no time to say goodbye."""
    page = tab(driver.address, forgiven="ERR_CONNECTION_REFUSED").page
    expect(page.locator("#state")).to_have_text("running")
    driver.process.kill()
    expect(page.locator("#state")).to_have_text("gone")
    expect(page.locator("#alarm")).to_have_text(re.compile(r"^The query is gone: .* since \d\d:\d\d:\d\d"))
    assert page.title() == "counts: gone – Megaphone"
    assert page.locator("#workers tbody tr").count() == 4
    assert page.evaluate("document.querySelector('.right').inert")
