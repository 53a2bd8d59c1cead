"""Would catch a stranger, or one of the user's group, who reaches a socket on which Spark asks for no secret."""

import os
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import megaphone
from megaphone.engine.spark import sockets
from megaphone.engine.spark.sockets import ENABLED, ENABLED_BY_ENVIRONMENT, FOLDER, LONGEST, private_sockets

CALL = """
for path in sys.argv[1:]:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        print("reached")
    except OSError as error:
        print(error.strerror)
"""


def test_group_does_not_reach_sparks_sockets_whatever_the_umask_has_left(spark, as_stranger):
    assert spark.range(1).mapInArrow(lambda batches: batches, "id long").count() == 1
    folder = Path(spark.sparkContext.getConf().get(FOLDER))
    paths = [str(path) for path in folder.iterdir()]
    assert paths
    for path in paths:
        Path(path).chmod(0o777)
    said = as_stranger(CALL, *paths, group=os.getegid())
    assert said.splitlines() == ["Permission denied"] * len(paths)


@pytest.fixture
def before(spark, monkeypatch):
    """As if no session had begun yet."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)


@pytest.mark.parametrize("master", ["local", "local[*]", "local-cluster[1,1,1024]"])
def test_sockets_are_private_where_spark_is_on_this_machine(before, master):
    settings = private_sockets({"spark.master": master})
    assert settings.keys() == {ENABLED, FOLDER}
    assert Path(settings[FOLDER]).stat().st_mode & 0o777 == 0o700


ELSEWHERE = [{"spark.master": master} for master in ("yarn", "spark://localhost:7077", "k8s://https://localhost")]
DECIDED = [{"spark.master": "local", name: value} for name, value in ((ENABLED, "false"), (FOLDER, "/run/mine"))]
REMOTE = [{"spark.remote": "sc://localhost"}, {"spark.master": "local", "spark.api.mode": "connect"}]


@pytest.mark.parametrize("given", ELSEWHERE + DECIDED + REMOTE, ids=str)
def test_nothing_is_set_elsewhere_or_where_the_user_has_decided(before, given):
    assert private_sockets(given) == {}


def test_environment_of_the_user_decides(before, monkeypatch):
    monkeypatch.setenv(ENABLED_BY_ENVIRONMENT, "false")
    assert private_sockets({"spark.master": "local"}) == {}


@pytest.mark.parametrize(("path", "mode"), [("x" * LONGEST, 0o700), ("open", 0o777)])
def test_nothing_is_set_where_no_folder_is_short_and_safe(before, tmp_path, monkeypatch, path, mode):
    (tmp_path / path).mkdir()
    (tmp_path / path).chmod(mode)
    monkeypatch.setattr(sockets.tempfile, "tempdir", str(tmp_path / path))
    assert private_sockets({"spark.master": "local"}) == {}
    assert list((tmp_path / path).iterdir()) == []


def test_session_that_is_there_gets_nothing_new(spark):
    assert private_sockets({"spark.master": "local"}) == {}


def test_master_may_be_named_after_the_session_is_tuned(before, monkeypatch):
    begun = []
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda builder: begun.append(dict(builder._options)))
    builder = megaphone.tuned(SparkSession.builder)
    for master in ("local[2]", "yarn"):
        builder.master(master).getOrCreate()
    assert [FOLDER in options for options in begun] == [True, False]
