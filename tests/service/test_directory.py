"""Would catch a token that others can read, a query that is not found, and one that is found and long gone."""

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from megaphone import cli
from megaphone.errors import MegaphoneError
from megaphone.service import directory
from megaphone.service.answers import Answer
from megaphone.service.directory import Entry, Query
from megaphone.service.office import Office

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
QUERIES = (Query("aaaa-1", "words"), Query("bbbb-2", None))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "megaphone"


def entry(control="c1"):
    return Entry.of_this_process(control, "http://127.0.0.1:9", "secret", QUERIES)


def test_what_was_entered_is_found():
    directory.enter(entry("c2"))
    directory.enter(entry())
    assert directory.entries() == [entry(), entry("c2")]
    directory.enter(replace(entry(), queries=()))
    assert [len(found.queries) for found in directory.entries()] == [0, 2]


def test_only_the_user_can_read_it(folder):
    path = directory.enter(entry())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert "secret" not in repr(entry())


@pytest.mark.parametrize("mode", [0o777, 0o750, 0o701])
def test_folder_that_others_can_enter_is_not_used(folder, mode):
    folder.mkdir()
    folder.chmod(mode)
    for use in (directory.entries, lambda: directory.enter(entry())):
        with pytest.raises(MegaphoneError, match="is not a folder that is private to you; remove it, or set"):
            use()


def test_folder_that_is_a_link_is_not_used(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MegaphoneError, match="is not a folder"):
        directory.enter(entry())


def test_without_a_runtime_folder_it_is_among_the_temporary_files(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "nowhere"))
    assert directory.home().name == f"megaphone-{os.getuid()}"


def test_what_a_killed_process_left_is_swept(folder):
    code = (
        "import os, signal; from megaphone.service.directory import *\n"
        "enter(Entry.of_this_process('dead', 'x', 'y', ()))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code])
    assert [path.name.split("-")[1] for path in folder.iterdir()] == ["dead.json"]
    assert directory.entries() == []
    assert list(folder.glob("*")) == []


def test_process_that_got_the_number_of_a_dead_one_is_not_it(folder):
    directory.enter(replace(entry(), began_s=1.0))
    assert directory.entries() == []


def test_what_is_not_an_entry_is_ignored(folder):
    directory.enter(entry())
    (folder / "1-x.json").write_text("{")
    (folder / "2-x.json").write_text(json.dumps({"control": "x"}))
    assert directory.entries() == [entry()]


def test_query_is_known_by_its_name_and_by_the_beginning_of_its_id():
    (first, *_) = entry().queries
    known = {
        wanted
        for wanted in ("words", first.id, first.id[:4], "c1", first.id[1:], "", "w")
        if directory.query_matches(first, wanted)
    }
    assert known == {"words", first.id, first.id[:4]}


def test_office_is_open_as_long_as_a_query_runs(folder):
    office = Office("c1", lambda request: Answer.of(1))
    assert office.address is None
    office.update([QUERIES[0]])
    address = office.address
    office.update(QUERIES)
    (found,) = directory.entries()
    assert (found.address, found.queries) == (address, QUERIES)
    office.update([])
    assert (office.address, directory.entries(), list(folder.glob("*"))) == (None, [], [])


def squat(folder, how):
    """Make what has the folder's name, as somebody who came first."""
    if how == "file":
        folder.touch()
    elif how == "link":
        folder.symlink_to(folder.parent / "nowhere")
    else:
        folder.mkdir()
        folder.chmod(0o755 if how == "open" else 0o700)
    if how == "another's":
        os.chown(folder, 65534, -1)


SQUATS = ["open", "file", "link", pytest.param("another's", marks=needs_root)]


@pytest.mark.parametrize("how", SQUATS)
def test_squatted_folder_costs_http_and_the_verbs_and_nothing_else(folder, caplog, capsys, how):
    squat(folder, how)
    before, announced = listening(), []
    office = Office("c1", lambda request: Answer.of(1), announce=announced.append)
    for queries in (QUERIES[:1], QUERIES, [], QUERIES):
        office.update(queries)
    (record,) = caplog.records
    assert "control c1 is not served over HTTP, and the command line does not find it: " in record.getMessage()
    assert f"{folder} is not a folder that is private to you; remove it, or set XDG_RUNTIME_DIR" in record.getMessage()
    assert (office.address, office.page, announced, listening()) == (None, None, [], before)
    assert cli.main(["ps"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "is not a folder that is private to you" in err


def test_port_is_closed_when_the_folder_is_not_private_any_more_and_opened_when_it_is(folder, caplog):
    before = listening()
    office = Office("c1", lambda request: Answer.of(1))
    office.update(QUERIES[:1])
    assert len(listening() - before) == 1
    folder.chmod(0o755)
    office.update(QUERIES)
    assert (office.address, listening(), len(caplog.records)) == (None, before, 1)
    assert not folder.exists()
    office.update(QUERIES)
    assert [entry.address for entry in directory.entries()] == [office.address]
    office.update([])
    assert listening() == before


def listening():
    return {port.laddr for port in psutil.Process().net_connections("tcp") if port.status == psutil.CONN_LISTEN}
