"""The verbs of an operator, in Python, at the command line and over HTTP, on one query that counts all the while.

Would catch a verb that one of the three ways lacks or does differently, an exit code that lies, a migration that loses
or doubles records when it is paused, resumed, cancelled or drained from outside, metrics that do not add up, and a
query that is still found when it is gone.
"""

import json
import random
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

import megaphone
from megaphone import PlanError, cli
from megaphone.service import directory
from megaphone.service.client import NoSuchQuery, Refused, ask, ask_for

WORKERS, BINS, KEYS = 2, 16, 40


def count(key, _, n):
    """How often a key was seen."""
    n = (n or 0) + 1
    return n, [(key, n)]


@dataclass
class Counting:
    """A running count, and those who ask it."""

    control: megaphone.Control
    feed: Any
    rows: list[Any]
    query: Any
    ended: threading.Event

    @property
    def entry(self) -> directory.Entry:
        (entry,) = [entry for entry in directory.entries() if entry.control == "verbs"]
        return entry

    @property
    def status(self) -> megaphone.Status:
        (status,) = self.control.status()
        return status

    def get(self, path: str, **options: Any) -> Any:
        return ask_for(self.entry, "GET", path, **options)

    def post(self, path: str, **wish: Any) -> Any:
        return ask_for(self.entry, "POST", path, wish)

    def expected(self) -> Counter[tuple[int, int]]:
        totals = Counter(key for rows in self.feed.sent for (key,) in rows)
        return Counter((key, n) for key, total in totals.items() for n in range(1, total + 1))


@pytest.fixture(scope="module")
def counting(spark, new_feed, tmp_path_factory):
    """A count with a name, to which keys come all the while."""
    folder = tmp_path_factory.mktemp("verbs")
    random.seed(11)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        control = megaphone.Control(spark, workers=WORKERS, bins=BINS, name="verbs")
        assert control.address is None
        feed = new_feed(folder / "feed", "k long")
        rows: list[Any] = []
        frame = megaphone.state_machine(control, feed.frame, "k", count, "k long, n long")
        writer = frame.writeStream.queryName("counts").foreachBatch(lambda frame, _: rows.extend(frame.collect()))
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
        ended = threading.Event()
        feeder = threading.Thread(target=keep_feeding, args=(feed, ended), name="feeder")
        feeder.start()
        try:
            yield Counting(control, feed, rows, query, ended)
        finally:
            ended.set()
            feeder.join()
            query.stop()


def keep_feeding(feed, ended):
    while not ended.wait(0.5):
        feed.send([(random.randrange(KEYS),) for _ in range(20)])


@pytest.fixture(scope="module", autouse=True)
def _started(counting, wait_until):
    wait_until(lambda: counting.control.status() and counting.status.epoch > 1, "the first epochs")
    wait_until(lambda: len(counting.status.workers) == WORKERS, "the workers")


@pytest.fixture
def command(capsys):
    """Run the command in this process: its exit code, and what it answered."""

    def command(*arguments):
        code = cli.main([*arguments, "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else err

    return command


def test_query_is_found_by_another_process(counting):
    done = subprocess.run(
        [sys.executable, "-m", "megaphone.cli", "ps", "--json"], capture_output=True, text=True, timeout=60
    )
    (found,) = json.loads(done.stdout)
    assert (done.returncode, found["name"], found["control"]) == (0, "counts", "verbs")
    assert (found["query"], found["address"]) == (str(counting.query.id), counting.control.address)


def test_status_and_history_are_the_same_three_ways(counting, command):
    (over_http,) = counting.get("/status")
    code, at_command = command("status", "counts")
    status = counting.status
    assert code == 0
    for view in (over_http, at_command):
        assert view["owners"] == status.assignment.owners.tolist()
        assert [worker["pid"] for worker in view["workers"]] == [worker.pid for worker in status.workers]
    assert counting.get("/history") == command("history")[1] == []
    assert counting.control.history() == []


@pytest.mark.parametrize("verb", ["rescale", "drain", "rebalance", "migrate"])
def test_plan_is_the_same_three_ways_and_moves_nothing(counting, command, verb):
    to = [(owner + 1) % WORKERS for owner in counting.status.assignment.owners.tolist()]
    said = {
        "rescale": ({"workers": 5}, ["--workers", "5"]),
        "drain": ({"who": 1}, ["1"]),
        "rebalance": ({"by": "bins"}, ["--by", "bins"]),
        "migrate": ({"target": to}, ["--to", ",".join(map(str, to))]),
    }
    wish, words = said[verb]
    pace = {"strategy": "batched", "batch": 3, "gap": 1}
    before = counting.status.assignment
    python = counting.control.plan(to if verb == "migrate" else verb, **(wish if verb != "migrate" else {}), **pace)
    http = counting.post("/plan", verb=verb, **wish, **pace)
    code, line = command("plan", verb, *words, "--strategy", "batched", "--batch", "3", "--gap", "1")
    assert code == 0
    assert http["plan"] == line["plan"] == json.loads(python.to_json())
    assert http["bins"] == len(python.moves)
    assert http["steps"] == python.estimate.steps == -(-len(python.moves) // 3)
    assert counting.status.assignment == before
    assert counting.get("/history") == []


def test_rescale_at_the_command_line_goes_up_and_down(counting, command, wait_until):
    code, migration = command("rescale", "counts", "--workers", "4", "--strategy", "optimized")
    assert (code, migration["phase"], migration["bins_moved"]) == (0, "done", BINS // 2)
    assert sorted(worker.worker for worker in counting.status.workers) == [0, 1, 2, 3]
    code, migration = command("rescale", "--workers", "2", "--latency-target", "30")
    assert (code, migration["strategy"], migration["phase"]) == (0, "adaptive", "done")
    wait_until(lambda: len(counting.status.workers) == WORKERS, "the end of the emptied workers")
    assert counting.get("/history")[-1]["bytes_moved"] == migration["bytes_moved"] > 0


def test_drain_over_http_and_rebalance_at_the_command_line(counting, command, wait_until):
    migration = counting.post("/drain", who=1, strategy="all_at_once", query="counts")
    wait_until(lambda: counting.get("/history", number=migration["number"])[0]["phase"] == "done", "the drain")
    assert 1 not in counting.status.assignment.workers()
    wait_until(lambda: counting.status.imbalance == pytest.approx(WORKERS), "the load to be seen")
    code, balanced = command("rebalance", "verbs", "--strategy", "all_at_once")
    assert (code, balanced["phase"], balanced["bins_moved"] > 0) == (0, "done", True)
    assert counting.status.imbalance < 1.5


def test_migration_is_paused_resumed_and_cancelled_from_outside(counting, command, wait_until):
    owners = counting.status.assignment.owners.tolist()
    to = {bin: 1 - owner for bin, owner in enumerate(owners)}
    words = ["migrate", "counts", "--move", ",".join(f"{bin}={worker}" for bin, worker in to.items())]
    # A gap that never ends: cancelled, not complete, whatever the machine does.
    waiting = subprocess.Popen(
        [sys.executable, "-m", "megaphone.cli", *words, "--strategy", "fluid", "--gap", "10000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: (m := counting.status.migration) is not None and m.completed == 1, "the first step")
        code, paused = command("pause")
        assert (code, paused["phase"], paused["number"]) == (0, "paused", counting.get("/history")[-1]["number"])
        assert counting.get("/status")[0]["migration"]["phase"] == "paused"
        assert "megaphone_migration_paused" in ask(counting.entry, "GET", "/metrics").decode()
        assert counting.post("/resume")["phase"] == "running"
        code, cancelled = command("cancel", "counts")
        assert (code, cancelled["phase"]) == (0, "cancelled")
        out, err = waiting.communicate(timeout=60)
    finally:
        waiting.kill()
    assert (waiting.returncode, out) == (1, f"fluid cancelled: 1 of {BINS} steps, 1 of {BINS} bins\n")
    assert f": 1 of {BINS} bins, " in err
    assert counting.status.assignment.owners.tolist() == [to[0], *owners[1:]]


def test_saved_plan_is_followed(counting, command, tmp_path):
    path = tmp_path / "plan.json"
    assert command("plan", "rebalance", "--by", "bins", "--save", str(path))[0] == 0
    code, migration = command("migrate", "--plan", str(path), "counts")
    assert (code, migration["phase"]) == (0, "done")
    assert sorted(Counter(counting.status.assignment.owners.tolist()).values()) == [BINS // 2] * 2


REFUSED = {
    "strange host": ("drain", {"who": "nowhere"}, ["nowhere"], "no worker on host 'nowhere'; choose a worker's number"),
    "strange worker": ("drain", {"who": 7}, ["7"], "worker 7 of 2; choose 0 to 1"),
    "no workers": ("rescale", {"workers": 0}, ["--workers", "0"], "0 workers asked for; choose 1 or more"),
    "strange strategy": (
        "rebalance",
        {"strategy": "fluent"},
        ["--strategy", "fluent"],
        "no strategy named 'fluent'; choose adaptive, all_at_once, batched, fluid or optimized",
    ),
    "strange bin": ("migrate", {"target": {"99": 0}}, ["--move", "99=0"], "bin 99 of 16; choose 0 to 15"),
    "map too short": ("migrate", {"target": [0]}, ["--to", "0"], "a map of 1 owners for 16 bins; give one owner"),
    "gap below zero": ("rebalance", {"gap": -1}, ["--gap", "-1"], "a gap of -1 epochs; choose 0 or more"),
    "nothing to pause": ("pause", {}, [], "no migration is under way"),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_what_is_refused_is_refused_alike_and_changes_nothing(counting, command, refused):
    verb, wish, words, sentence = REFUSED[refused]
    before = (counting.status.assignment, len(counting.get("/history")))
    with pytest.raises(Refused) as over_http:
        counting.post(f"/{verb}", **wish)
    assert command(verb, *words) == (2, f"megaphone: {over_http.value}\n")
    arguments = {"target": {99: 0}} if refused == "strange bin" else wish
    with pytest.raises(PlanError) as in_python:
        getattr(counting.control, verb)(**arguments)
    assert str(in_python.value) == str(over_http.value)
    assert str(over_http.value).startswith(sentence)
    assert (counting.status.assignment, len(counting.get("/history"))) == before


PLAN = {"megaphone_plan": 1, "bins": BINS, "steps": []}

MALFORMED = {
    "no target": ("/migrate", {}, "a migration to where"),
    "unknown field": ("/drain", {"who": 1, "whom": 2}, "not what this takes: Object contains unknown field `whom`"),
    "missing field": ("/rescale", {}, "not what this takes: Object missing required field `workers`"),
    "wrong type": ("/rescale", {"workers": "two"}, "not what this takes: Expected `int`, got `str` - at `$.workers`"),
    "no plan": ("/migrate", {"plan": {"bins": 16}}, "not a plan of format 1"),
    "true for a number": ("/rescale", {"workers": True}, "not what this takes: Expected `int`, got `bool`"),
    "fraction": ("/rescale", {"workers": 2.0}, "not what this takes: Expected `int`, got `float`"),
    "plan and target": ("/migrate", {"plan": PLAN, "target": [0]}, "a plan has no use for target; leave it out"),
    "plan and strategy": ("/migrate", {"plan": PLAN, "strategy": "fluid"}, "a plan has no use for strategy"),
    "plan with a word too many": ("/migrate", {"plan": {**PLAN, "tmie": 3}}, "malformed plan: Object contains unknown"),
    "dry run with options of another": (
        "/plan",
        {"verb": "drain", "who": 1, "by": "load"},
        "a drain has no use for by",
    ),
    "dry run with a target of another": ("/plan", {"verb": "rebalance", "target": [0]}, "a rebalance has no use for"),
    "parameter of a verb": ("/pause?query=x", {}, "no parameter 'query' of POST /pause; it takes none"),
    "no path": ("/nowhere", {}, "nothing at '/nowhere'; choose one of /status"),
    "wrong method": ("/status", {}, "/status by POST; use GET"),
}


@pytest.mark.parametrize("malformed", MALFORMED)
def test_malformed_request_is_one_sentence(counting, malformed):
    path, wish, sentence = MALFORMED[malformed]
    with pytest.raises(Refused) as refused:
        counting.post(path, **wish)
    assert str(refused.value).startswith(sentence)


STRANGE = {
    "letters": ("/timeline", {"since": "abc"}, "since='abc'; choose a whole number"),
    "digits of elsewhere": ("/progress", {"since": "\u0663"}, "since='\u0663'; choose a whole number"),
    "below any epoch": ("/timeline", {"since": -5}, "since=-5; choose -1 or more"),
    "beyond any epoch": ("/progress", {"since": 10**30}, f"since={10**30}; choose -1 to"),
    "fraction": ("/history", {"number": "1.0"}, "number='1.0'; choose a whole number"),
    "unknown": ("/status", {"querry": "counts"}, "no parameter 'querry' of GET /status; choose query"),
    "of another path": ("/metrics", {"query": "counts"}, "no parameter 'query' of GET /metrics; it takes none"),
}


@pytest.mark.parametrize("strange", STRANGE)
def test_strange_parameter_is_refused(counting, strange):
    path, options, sentence = STRANGE[strange]
    with pytest.raises(Refused) as refused:
        counting.get(path, **options)
    assert str(refused.value).startswith(sentence)


def test_other_query_is_not_found(counting, command):
    assert command("status", "other")[0] == 3
    with pytest.raises(NoSuchQuery, match="no query 'other' runs on control verbs"):
        counting.post("/pause", query="other")


# -- the end: from here on nothing is fed, and the last test stops the query ------------------------------------------


def test_everything_was_counted_once_and_metrics_and_progress_add_up(counting, wait_until):
    counting.ended.set()
    wait_until(lambda: not any(thread.name == "feeder" for thread in threading.enumerate()), "the end of the feed")
    counting.query.processAllAvailable()
    total = sum(map(len, counting.feed.sent))
    assert Counter((row.k, row.n) for row in counting.rows) == counting.expected()
    assert sum(counting.status.applied.values()) == total
    text = ask(counting.entry, "GET", "/metrics").decode()
    (applied,) = [line for line in text.splitlines() if line.startswith("megaphone_records_applied_total{")]
    assert float(applied.split()[-1]) == total
    lines = [json.loads(line) for line in ask(counting.entry, "GET", "/progress").splitlines()]
    assert [line["batchId"] for line in lines] == list(range(len(lines)))
    # The epoch that is open has no line yet.
    assert sum(line["numInputRows"] for line in lines) == pytest.approx(total, abs=40)
    assert counting.status.late == dict.fromkeys(counting.status.late, 0)


def test_query_that_has_ended_is_not_found(counting, command, wait_until):
    counting.query.stop()
    wait_until(lambda: directory.entries() == [], "the end of the office")
    assert counting.control.address is None
    assert command("status") == (3, "megaphone: no query of yours runs on this machine\n")
