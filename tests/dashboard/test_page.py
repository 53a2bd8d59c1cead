"""The page before a desk that says whatever the test wants, without Spark.

Would catch a name that becomes code, the wrong query that is shown or moved, a token that stays in sight, and a map on
which bins that stay where they are change their places.
"""

import json
import re
from dataclasses import replace

import pyarrow as pa
import pytest

from megaphone import LocalEngine
from megaphone.bins import WorkerId
from megaphone.configuration import Assignment
from megaphone.dataflow.operators import Input, key_operator
from megaphone.service import views
from megaphone.service.answers import NO_QUERY, Answer, Refusal
from megaphone.service.directory import Query
from megaphone.service.office import Office
from megaphone.service.status import BinsStatus, Status, WorkerStatus
from megaphone.service.timeline import Timeline

WORD = pa.schema([("word", pa.string())])
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>&amp;"
STATUS = Status(
    *("aaaa-1111", 7, {"count": "8"}, {"count": 1}, {"count": 900}, Assignment([0, 1, 0, 1])),
    (WorkerStatus(WorkerId(0), HOSTILE, 11, 10, 2), WorkerStatus(WorkerId(1), "far", 12, 9, 2)),
    None,
    name=HOSTILE,
    run="r1",
    control="c1",
    units={"count": "epoch"},
)


class Play:
    """Some queries that do nothing."""

    def __init__(self, *statuses):
        self.statuses = {status.query: status for status in statuses}
        self.asked = []
        engine = LocalEngine(key_operator("count", Input(WORD, ("word",)), lambda *_: (1, []), WORD), 2, 4)
        self.bins = views.of_bins(BinsStatus.of(engine.epochs))

    def __call__(self, request):
        wish = json.loads(request.body or b"{}")
        query = wish.get("query") or request.options.get("query")
        self.asked.append((request.path, wish, query))
        if query is not None and query not in self.statuses:
            raise Refusal(404, f"no query '{query}'", NO_QUERY)
        if request.path == "/plan":
            raise Refusal(409, HOSTILE)
        answers = {
            "/status": [views.of_status(status) for status in self.statuses.values()],
            "/bins": self.bins,
            "/timeline": Timeline().since(-1),
            "/history": [],
        }
        return Answer.of(answers[request.path])


@pytest.fixture
def serve(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    offices = []

    def serve(play):
        offices.append(Office("c1", play))
        offices[-1].update([Query(query, None) for query in play.statuses])
        return offices[-1]

    yield serve
    for office in offices:
        office.update([])


@pytest.fixture
def expect(chromium):
    from playwright.sync_api import expect

    return expect


def test_names_stay_text(serve, tab, expect):
    page = tab(serve(Play(STATUS)).page, forgiven="409 (Conflict)").page
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    expect(page.locator("#name")).to_have_text(HOSTILE)
    expect(page.locator("#workers tbody td").nth(1)).to_have_text(HOSTILE)
    page.click("#ask")
    expect(page.locator("#refused")).to_have_text(HOSTILE)
    assert page.locator("img[onerror]").count() == 0


def test_token_leaves_the_address_and_a_reload_does_not_need_it(serve, tab, expect):
    office = serve(Play(STATUS))
    opened = tab(office.page)
    expect(opened.page.locator("#state")).to_have_text("running")
    assert opened.page.url == f"{office.address}/"
    opened.page.reload()
    expect(opened.page.locator("#state")).to_have_text("running")
    token = office.page.partition("token=")[2]
    # What a browser shows of a request has the fragment; what it sends has not.
    assert not [url for url in opened.asked if token in url.partition("#")[0]]


def test_address_without_a_token_shows_nothing(serve, tab, expect):
    play = Play(STATUS)
    page = tab(serve(play).address).page
    expect(page.locator("#alarm")).to_have_text(re.compile("^This page needs the token that is in its address"))
    assert play.asked == []


def test_one_of_several_queries_is_chosen(serve, tab, expect):
    other = replace(STATUS, query="bbbb-2222", name="other", run="r2")
    play = Play(replace(STATUS, name="words"), other)
    page = tab(serve(play).page, forgiven="409 (Conflict)").page
    expect(page.locator("#name")).to_have_text("words")
    page.locator("#queries select").select_option("other")
    expect(page.locator("#name")).to_have_text("other")
    page.click("#ask")
    expect(page.locator("#refused")).to_be_visible()
    assert [query for path, _, query in play.asked if path == "/plan"] == ["bbbb-2222"]
    del play.statuses["bbbb-2222"]
    expect(page.locator("#state")).to_have_text("gone")


def test_address_may_name_the_query(serve, tab, expect):
    play = Play(replace(STATUS, name="words"), replace(STATUS, query="bbbb-2222", name="other", run="r2"))
    page = tab(f"{serve(play).page}&query=bbbb-2222").page
    expect(page.locator("#name")).to_have_text("other")


def test_query_that_comes_back_is_shown_again(serve, tab, expect):
    play = Play(STATUS)
    page = tab(serve(play).page).page
    expect(page.locator("#state")).to_have_text("running")
    play.statuses.clear()
    expect(page.locator("#state")).to_have_text("gone")
    play.statuses["aaaa-1111"] = STATUS
    expect(page.locator("#state")).to_have_text("running")
    expect(page.locator("#alarm")).to_be_hidden()


def test_bins_that_stay_keep_their_places_until_all_have_moved(serve, tab, expect):
    play = Play(STATUS)
    page = tab(serve(play).page).page
    told = page.locator("#map output")
    first, second = {"x": 10, "y": 32}, {"x": 50, "y": 32}
    expect(page.locator("#state")).to_have_text("running")
    page.hover("#map canvas", position=first)
    expect(told).to_have_text(re.compile(r"^bin 0\s+worker 0\s"))
    play.bins = play.bins | {"owners": [1, 1, 0, 1], "expected": [1, 1, 0, 0]}
    expect(told).to_have_text(re.compile(r"^bin 0\s+worker 1\s"))
    page.hover("#map canvas", position=second)
    expect(told).to_have_text(re.compile(r"^bin 2\s+worker 0\s"))
    page.hover("#map canvas", position=first)
    expect(told).to_be_hidden()
    page.hover("#map canvas", position=second)
    play.bins = play.bins | {"owners": [1, 1, 0, 0], "expected": [1, 1, 0, 0], "records_per_s": [7.0] * 4}
    expect(told).to_have_text(re.compile(r"^bin 2\s+worker 0\s+7 records/s"))
    page.hover("#map canvas", position=first)
    expect(told).to_have_text(re.compile(r"^bin 2\s"))


@pytest.mark.parametrize("width", [700, 1280, 1900])
def test_nothing_is_wider_than_the_window(serve, tab, expect, width):
    opened = tab(serve(Play(replace(STATUS, name="words"))).page)
    opened.page.set_viewport_size({"width": width, "height": 800})
    expect(opened.page.locator("#state")).to_have_text("running")
    assert opened.page.evaluate("document.documentElement.scrollWidth") == width
