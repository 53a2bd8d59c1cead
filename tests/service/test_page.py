"""Would catch a page that needs anything from elsewhere, that a name could make run code, or that is not shipped.

And a token that gets into a request, a process list, or another opening; and data that is given without it.
"""

import http.client
import json
import re
import stat
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from megaphone import cli
from megaphone.service import directory
from megaphone.service.answers import Answer
from megaphone.service.directory import Query
from megaphone.service.office import Office
from megaphone.service.page import KINDS, page

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src" / "megaphone" / "dashboard"
WORDS, OTHER = Query("aaaa-1111", "words"), Query("bbbb-2222", None)
LINK = re.compile(r"""(?:from |src=|href=)["']\.?(/[^"']+)["']""")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "megaphone"


class Counting:
    """Counts who gets through to it."""

    def __init__(self):
        self.seen = []

    def __call__(self, request):
        self.seen.append(request.path)
        return Answer.of([])


@pytest.fixture
def desk():
    return Counting()


@pytest.fixture
def office(desk):
    office = Office("c1", desk)
    office.update([WORDS])
    yield office
    office.update([])


def get(office, path, method="GET", **headers):
    connection = http.client.HTTPConnection(office.address.removeprefix("http://"), timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.headers), body


def token(office):
    return office.page.partition("token=")[2]


@pytest.mark.parametrize("path", sorted(page()))
def test_file_of_the_page_is_given_to_anybody(office, desk, path):
    status, headers, body = get(office, path)
    name = "index.html" if path == "/" else path[1:]
    assert (status, body) == (200, (FOLDER / name).read_bytes())
    assert headers["Content-Type"] == KINDS[name.rpartition(".")[2]]
    assert desk.seen == []


def test_all_files_are_there_and_few_bytes():
    assert {"/", "/page.js", "/page.css", "/icon.svg"} <= page().keys()
    assert len(page()) == len(list(FOLDER.iterdir()))
    assert sum(len(answer.body) for answer in page().values()) < 80_000


def test_every_link_leads_to_one_of_our_files():
    linked = {target for file in FOLDER.iterdir() for target in LINK.findall(file.read_text())}
    assert linked <= page().keys()
    assert page().keys() - linked == {"/"}


def test_nothing_comes_from_elsewhere():
    named = {address for file in FOLDER.iterdir() for address in re.findall(r"\w+://[^\"'\s]+", file.read_text())}
    assert named == {"http://www.w3.org/2000/svg"}


def test_browser_is_told_to_run_nothing_but_our_files(office):
    policy = get(office, "/")[1]["Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert {rules[f"{kind}-src"] for kind in ("script", "style", "img", "connect")} == {"'self'"}
    assert rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert "unsafe" not in policy


class Inline(HTMLParser):
    """What the policy would not let run: code and looks within the page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.found += [(tag, name) for name in given if name.startswith("on") or name == "style"]
        if tag == "style" or (tag == "script" and "src" not in given):
            self.found.append((tag, ""))


def test_page_has_nothing_in_line():
    parser = Inline()
    parser.feed((FOLDER / "index.html").read_text())
    assert parser.found == []
    code = "".join(file.read_text() for file in FOLDER.glob("*.js"))
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", code) == []


def test_wheel_has_the_page():
    shipped = {file.relative_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {f"src/megaphone/dashboard/{file.name}" for file in FOLDER.iterdir()} <= shipped


@pytest.mark.parametrize("path", ["/status", "/nowhere", "/page.js/x", "/../page.js", "/dashboard/page.js"])
def test_nothing_else_is_given_without_the_token(office, desk, path):
    assert get(office, path)[0] == 401
    assert desk.seen == []


@pytest.mark.parametrize(
    ("headers", "expected"), [({"Host": "evil.example"}, 421), ({"Origin": "https://evil.example"}, 403)]
)
def test_page_is_not_given_by_another_name_or_to_another_page(office, headers, expected):
    assert get(office, "/", **headers)[0] == expected


def test_page_is_for_looking_at(office, desk):
    body = {"Content-Type": "application/json", "Content-Length": "0"}
    assert get(office, "/", "POST", **body)[0] == 401
    assert get(office, "/?since=1")[0] == 200
    assert desk.seen == []


def test_with_the_token_the_desk_is_asked(office, desk):
    assert get(office, "/status", Authorization=f"Bearer {token(office)}")[0] == 200
    assert desk.seen == ["/status"]


def test_every_opening_has_a_token_of_its_own(office):
    """A page that was left open goes on asking, whoever listens there by then."""
    before = token(office)
    office.update([])
    assert office.page is None
    office.update([WORDS])
    assert get(office, "/status", Authorization=f"Bearer {before}")[0] == 401
    assert get(office, "/status", Authorization=f"Bearer {token(office)}")[0] == 200


def test_address_is_announced_once_for_every_opening(desk):
    told = []
    office = Office("c1", desk, announce=told.append)
    office.update([WORDS])
    assert told == [office.page]
    office.update([WORDS, OTHER])
    office.update([])
    assert len(told) == 1
    office.update([WORDS])
    assert told[1:] == [office.page]
    office.update([])


def test_command_prints_the_address(capsys, office):
    assert cli.main(["dashboard", "words"]) == 0
    assert capsys.readouterr().out == f"{office.page}\n"
    assert cli.main(["dashboard", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"address": office.page}
    assert cli.main(["dashboard", "nothing"]) == 3


def test_address_names_the_query_if_there_are_several(capsys, office):
    office.update([WORDS, OTHER])
    assert cli.main(["dashboard", "bbbb"]) == 0
    assert capsys.readouterr().out == f"{office.page}&query=bbbb-2222\n"


def test_browser_is_opened_without_the_token_in_a_process_list(capsys, office, home, monkeypatch):
    """Whatever opens a browser passes the address on its command line, which every user of the machine can read."""
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    assert cli.main(["dashboard", "--open"]) == 0
    assert token(office) not in opened[0]
    door = Path(opened[0].removeprefix("file://"))
    assert stat.S_IMODE(door.stat().st_mode) == 0o600
    assert f'content="0;url={office.page}"' in door.read_text()
    office.update([])
    assert list(home.glob("*")) == []


def test_what_led_to_a_killed_process_is_swept_with_it(office, home):
    (entry,) = directory.entries()
    dead = directory.Entry("dead", "x", "y", (), 1, 1.0)
    directory.enter(dead)
    directory.enter_door(dead, "z")
    assert directory.entries() == [entry]
    assert [path.name for path in home.iterdir()] == [f"{entry.pid}-c1.json"]


def test_no_browser_is_one_sentence(capsys, office, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    assert cli.main(["dashboard", "--open"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == (f"{office.page}\n", "megaphone: no browser could be opened; copy the address into one\n")
