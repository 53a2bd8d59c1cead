"""Would catch a stranger's pickle that is run, a checkpoint that its own user cannot use, and a name that leads out."""

import logging
import os
import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

from bomb import Bomb
from megaphone import CheckpointError
from megaphone.dataflow.operators import Input, key_operator
from megaphone.durability import trust
from megaphone.durability.contents import contents, judge, shares
from megaphone.durability.files import Folder
from megaphone.durability.inspection import inspect
from megaphone.durability.store import Store
from megaphone.durability.trust import SWITCH, is_trusted

OTHER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")

WORD = pa.schema([("word", pa.string())])
COUNT = key_operator("count", Input(WORD, ("word",)), lambda word, _, n: ((n or 0) + 1, []), WORD)


@pytest.fixture
def query(stored_query):
    """A query with two epochs."""
    query = stored_query(COUNT)
    query.run([("a",), ("b",)], [("a",)])
    return query


@pytest.fixture
def bomb(query, tmp_path):
    """A pickle in the place of the operator."""
    mark = tmp_path / "it went off"
    query.store.write_spec(1, "count", pickle.dumps(Bomb(mark)))
    return query.checkpoint / "megaphone/control0/operators/0001-count", mark


def read(query, trusted=False):
    return [entry for share in shares(str(query.checkpoint)) for entry in contents(share, trusted)]


def give_away(path):
    os.chown(path, OTHER, -1)


@needs_root
def test_pickle_of_another_user_is_not_run(query, bomb):
    file, mark = bomb
    give_away(file)
    with pytest.raises(CheckpointError, match=rf"0001-count belongs to uid {OTHER}, .* or set {SWITCH}=true"):
        read(query)
    assert not mark.exists()
    with pytest.raises(CheckpointError, match="cannot be read here"):
        read(query, trusted=True)
    assert mark.exists()


@needs_root
@pytest.mark.parametrize("place", [".", "megaphone", "megaphone/control0", "megaphone/control0/operators"])
def test_checkpoint_of_another_user_is_neither_read_nor_gone_on_from(query, stored_query, place):
    give_away(query.checkpoint / place)
    with pytest.raises(CheckpointError, match=f"belongs to uid {OTHER}"):
        read(query)
    with pytest.raises(CheckpointError, match=f"belongs to uid {OTHER}"):
        stored_query(COUNT).run([("a",)])


def test_checkpoint_that_everybody_can_write_to_is_refused_for_reading_and_for_running(query, stored_query):
    query.checkpoint.chmod(0o777)
    refused = f"which belongs to uid {os.geteuid()}, can be written to by everybody, and what is read from"
    for use in (lambda: read(query), lambda: judge(shares(str(query.checkpoint))), lambda: stored_query(COUNT)):
        with pytest.raises(CheckpointError, match=refused):
            use()
    assert sorted(key for *_, key, _ in read(query, trusted=True)) == ["a", "b"]


@needs_root
def test_what_is_not_unpickled_may_be_anybodys(query):
    give_away(query.checkpoint)
    (control,) = inspect(str(query.checkpoint)).controls
    assert control.operators[0].applied == 3


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "link"])
def test_checkpoint_is_judged_however_it_is_named(query, tmp_path, monkeypatch, form):
    query.checkpoint.chmod(0o777)
    (tmp_path / "link").symlink_to(query.checkpoint)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="can be written to by everybody"):
        Store(form.format(query.checkpoint), "control0").judge()


def test_link_that_is_changed_leads_nobody_astray(query, tmp_path):
    (tmp_path / "link").symlink_to(query.checkpoint)
    store = Store(str(tmp_path / "link"), "control0")
    store.judge()
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("/nowhere")
    assert store.read_manifest().operators.keys() == {"count"}


def test_query_that_begins_with_any_umask_can_go_on(stored_query, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir(mode=0o700)
    before = os.umask(0)
    try:
        query = stored_query(COUNT)
        query.run([("a",)])
        query.snapshot("count", 0, 0)
        assert read(query) != []
        stored_query(COUNT)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (checkpoint / "megaphone").rglob("*") if path.is_dir()} == {0o700}


def test_group_is_told_of_once(query, monkeypatch, caplog):
    monkeypatch.setattr(trust, "_told", set())
    query.checkpoint.chmod(0o770)
    with caplog.at_level(logging.WARNING, "megaphone"):
        for _ in range(2):
            Store(str(query.checkpoint), "control0").judge()
            assert read(query) != []
    (record,) = caplog.records
    assert f"group {os.getegid()} can write to {query.checkpoint}: let nobody write there whom" in record.getMessage()


def test_where_rights_are_not_looked_at_that_is_told_once(query, monkeypatch, caplog):
    monkeypatch.setattr(trust, "_told", set())
    with caplog.at_level(logging.WARNING, "megaphone"):
        for _ in range(2):
            Folder("mock://bucket/checkpoint", "mock://bucket").judge()
        Folder("mock://bucket/checkpoint").judge()
    (record,) = caplog.records
    assert "who can write to mock://bucket/checkpoint is not looked at: let nobody write there" in record.getMessage()


@pytest.mark.parametrize("name", ["../../escape", "a/b", "..", "\x1b[2J", ""])
def test_names_in_a_manifest_are_checked_when_they_are_read(query, name):
    manifest = query.store.read_manifest()
    (shape,) = manifest.operators.values()
    query.store.put("manifest", "manifest", replace(manifest, operators={name: shape}))
    for use in (lambda: read(query), lambda: inspect(str(query.checkpoint))):
        with pytest.raises(CheckpointError, match=r"manifest: operator name '.*', which is none of Megaphone's"):
            use()


@pytest.mark.parametrize("name", ["../..", "a/b", ".", "\x1b[2J"])
def test_names_of_controls_are_checked(tmp_path, name):
    with pytest.raises(CheckpointError, match=r"megaphone: control name '.*', which is none of Megaphone's"):
        Store(str(tmp_path), name)


def test_only_true_is_the_users_word():
    assert [is_trusted(said) for said in ("true", " TRUE", "1", "yes", "", None)] == [True, True, *[False] * 4]
