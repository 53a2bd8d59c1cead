"""As many bins as anybody has, by event time. Would catch a map that does not show them all, or that stands still."""

import re

import pytest

BINS = 4096


@pytest.fixture(scope="module")
def driver(new_driver, tmp_path_factory):
    driver = new_driver(tmp_path_factory.mktemp("many"), BINS, "event")
    yield driver
    driver.close()


def test_map_shows_every_bin_and_sees_them_move(driver, tab):
    from playwright.sync_api import expect

    page = tab(driver.address).page
    expect(page.locator("#workers tbody tr")).to_have_count(2)
    expect(page.locator("#lag")).to_have_text(re.compile(r"^[\d.]+ s$"))
    assert ends(page) == ["bin 0\nworker 0", "bin 4095\nworker 1"]
    page.locator("[name=workers]").fill("3")
    page.locator("[name=strategy]").select_option("all_at_once")
    page.click("#ask")
    expect(page.locator("[data-plan=steps]")).to_have_text("1")
    page.click("#start")
    expect(page.locator("#under-way")).to_have_text(re.compile("all_at_once: done"))
    expect(page.locator("#workers tbody tr")).to_have_count(3)
    expect(page.locator("#workers tbody td:nth-child(6)").last).to_have_text(re.compile("^136[56]$"))
    assert [end.split("\n")[1] for end in ends(page)] == ["worker 0", "worker 2"]


def ends(page):
    """What the map says of its first and of its last cell."""
    page.focus("#map canvas")
    found = []
    for key in ("Home", "End"):
        page.keyboard.press(key)
        found.append("\n".join(page.locator("#map output").inner_text().split("\n")[:2]))
    return found
