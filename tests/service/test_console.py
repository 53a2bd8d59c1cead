"""The verbs at the command line, against a server that plays one migration.

Would catch an exit code that lies, the wrong query that is moved, and progress that garbles a pipe or a terminal.
"""

import fcntl
import json
import os
import pty
import socket
import struct
import subprocess
import sys
import termios

import pytest

from megaphone import cli
from megaphone.bins import WorkerId
from megaphone.configuration import Assignment
from megaphone.control.controller import Migration
from megaphone.control.plan import Estimate
from megaphone.control.strategies import make_plan
from megaphone.service import directory, views
from megaphone.service.answers import NO_QUERY, Answer, Refusal
from megaphone.service.directory import Entry, Query
from megaphone.service.office import Office
from megaphone.service.status import Status, WorkerStatus
from megaphone.service.tables import left

HERE, THERE = Assignment([0] * 4), Assignment([1] * 4)
WORDS, OTHER = Query("aaaa-1111", "words"), Query("bbbb-2222", None)

STATUS = Status(
    *("aaaa-1111", 7, {"count": "8"}, {"count": 1}, {"count": 900}, HERE),
    (WorkerStatus(WorkerId(0), "here", 11, 10, 4, 120.4, 0.25, 3_000), WorkerStatus(WorkerId(1), "far-away", 12, 9, 0)),
    Migration(make_plan(HERE, THERE, "fluid"), number=5, phase="paused", completed=1, bytes_moved=1_000_000),
    name="words",
    control="c1",
    last_epoch_s=0.125,
    imbalance=2.0,
    state_bytes={"count": 3_000},
    measured=0.5,
)


class Play:
    """A migration that goes on by one step with every look at it."""

    def __init__(self, ends="done"):
        self.asked = []
        self.ends = ends
        self.migration = Migration(make_plan(HERE, THERE, "fluid"), number=5, began_s=0.0)

    def __call__(self, request):
        self.asked.append((request.path, json.loads(request.body or b"{}")))
        if request.path == "/status":
            return Answer.of([views.of_status(STATUS, Estimate(1, 2_000_000, 1.5, 1.0))])
        if request.path == "/refused":
            raise Refusal(409, "no")
        if request.path == "/history":
            self._go_on()
        elif request.path == "/cancel":
            raise Refusal(409, "no migration is under way")
        elif request.path == "/plan":
            return Answer.of(views.of_plan(self.migration.plan))
        return Answer.of(self._view(), 202) if request.path != "/history" else Answer.of([self._view()])

    def _view(self):
        return views.of_migration(self.migration, None if self.migration.ended_s else Estimate(1, 2_000_000, 1.5, 1.0))

    def _go_on(self):
        if self.ends == "gone" and self.migration.completed == 2:
            raise Refusal(404, "no query", NO_QUERY)
        self.migration.phase, self.migration.completed = "running", self.migration.completed + 1
        self.migration.bytes_moved += 1_000_000
        if self.migration.completed == (4 if self.ends == "done" else 3):
            self.migration.end(self.ends)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def serve():
    offices = []

    def serve(play, *queries, control="c1"):
        offices.append(Office(control, play))
        offices[-1].update(queries)
        return play

    yield serve
    for office in offices:
        office.update([])


def run(capsys, *arguments):
    code = cli.main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_without_a_query_there_is_nothing_to_do(capsys):
    assert run(capsys, "status") == (3, "", "megaphone: no query of yours runs on this machine\n")
    assert run(capsys, "ps")[:2] == (0, "query  name  control  pid  epoch  workers  bins  migration\n")
    assert run(capsys, "ps", "--json")[:2] == (0, "[]\n")


def test_people_get_tables(capsys, serve):
    serve(Play(), WORDS)
    assert run(capsys, "status")[1].splitlines() == [
        "query aaaa-1111 (words), control c1: epoch 7, the last took 0.12 s, 4 bins",
        "count: 900 records applied, 1 late, frontier 8, state ~3.0 kB",
        "worker      host  pid  bins  records/s  busy    state",
        "0           here   11     4        120   25%  ~3.0 kB",
        "1       far-away   12     0          0    0%     ~0 B",
        "busiest worker: 2.00 times the mean; moved: 0 B",
        "under way: fluid paused: 1 of 4 steps, 1 of 4 bins, 1.0 MB moved, about 2.0 MB and 1.5 s left",
    ]
    _, row = run(capsys, "ps")[1].splitlines()
    assert row.split()[:3] == ["aaaa-1111", "words", "c1"]
    assert row.endswith("fluid paused: 1 of 4 steps, 1 of 4 bins")
    heads, first = (line.split() for line in run(capsys, "history")[1].splitlines())
    assert heads == ["number", "strategy", "phase", "bins", "moved", "bytes", "seconds"]
    assert first[:-1] == ["5", "fluid", "running", "4", "1", "1.0", "MB"]


def test_only_query_need_not_be_named(capsys, serve):
    play = serve(Play(), WORDS)
    assert run(capsys, "rebalance", "--no-wait")[:2] == (0, "fluid waiting: 0 of 4 steps, 0 of 4 bins\n")
    assert play.asked == [("/rebalance", {"query": "aaaa-1111", "by": "load"})]


@pytest.mark.parametrize("wanted", ["words", "aaaa", "c1"])
def test_query_is_found_by_name_id_or_control(capsys, serve, wanted):
    mine, other = serve(Play(), WORDS), serve(Play(), OTHER, control="c2")
    assert run(capsys, "pause", wanted)[0] == 0
    assert (len(mine.asked), len(other.asked)) == (1, 0)


def test_wrong_query_is_one_sentence(capsys, serve):
    serve(Play(), WORDS, OTHER)
    assert run(capsys, "pause", "word") == (3, "", "megaphone: no query 'word' runs here; choose words, bbbb-2222\n")
    assert run(capsys, "pause") == (2, "", "megaphone: 2 queries of yours run here; choose words, bbbb-2222\n")


def test_what_the_query_refuses_is_told_as_it_says_it(capsys, serve):
    serve(Play(), WORDS)
    assert run(capsys, "cancel") == (2, "", "megaphone: no migration is under way\n")


def test_wish_is_sent_as_it_was_said(capsys, serve):
    play = serve(Play(), WORDS)
    said = ["--strategy", "batched", "--batch", "3", "--gap", "2", "--at", "99", "--no-wait"]
    run(capsys, "rescale", "words", "--workers", "4", *said)
    run(capsys, "drain", "host7", "--latency-target", "500ms", "--no-wait")
    run(capsys, "migrate", "--move", "3=1,5=0", "--no-wait")
    run(capsys, "migrate", "--to", "0,1,0,1", "--no-wait")
    query = {"query": "aaaa-1111"}
    assert play.asked == [
        ("/rescale", {**query, "workers": 4, "strategy": "batched", "batch": 3, "gap": 2, "at": 99}),
        ("/drain", {**query, "who": "host7", "latency_target": 0.5}),
        ("/migrate", {**query, "target": {"3": 1, "5": 0}}),
        ("/migrate", {**query, "target": [0, 1, 0, 1]}),
    ]


def test_pipe_gets_a_line_for_everything_that_moves(capsys, serve):
    serve(Play(), WORDS)
    code, out, err = run(capsys, "rebalance")
    assert (code, out) == (0, "fluid done: 4 of 4 steps, 4 of 4 bins\n")
    assert err.splitlines() == [
        "waiting: 0 of 4 bins, 0 B, about 2.0 MB and 1.5 s left",
        *[f"running: {n} of 4 bins, {n}.0 MB, about 2.0 MB and 1.5 s left" for n in (1, 2, 3)],
        "done: 4 of 4 bins, 4.0 MB",
    ]


def test_cancelled_migration_is_a_failure(capsys, serve):
    serve(Play(ends="cancelled"), WORDS)
    code, out, _ = run(capsys, "rebalance", "--json")
    assert (code, json.loads(out)["phase"], json.loads(out)["bins_moved"]) == (1, "cancelled", 3)


def test_query_that_ends_first_is_a_failure(capsys, serve):
    serve(Play(ends="gone"), WORDS)
    code, out, err = run(capsys, "rebalance", "--json")
    text = "megaphone: the query has ended before its migration; fluid running: 2 of 4 steps, 2 of 4 bins\n"
    assert (code, out, err) == (1, "", text)


def test_plan_is_saved_and_followed(capsys, serve, tmp_path):
    play = serve(Play(), WORDS)
    code, out, _ = run(capsys, "plan", "drain", "0", "--save", f"{tmp_path}/plan.json")
    assert (code, out.splitlines()[0]) == (0, "fluid: 4 bins in 4 steps")
    assert play.asked[0] == ("/plan", {"query": "aaaa-1111", "verb": "drain", "who": 0})
    assert run(capsys, "migrate", "--plan", f"{tmp_path}/plan.json")[0] == 0
    assert play.asked[1][1]["plan"] == json.loads(make_plan(HERE, THERE, "fluid").to_json())


def test_what_is_said_beside_a_plan_is_sent_with_it(capsys, serve, tmp_path):
    """And refused there, as anywhere: it was dropped."""
    play = serve(Play(), WORDS)
    (tmp_path / "plan").write_text("{}")
    run(capsys, "migrate", "--plan", f"{tmp_path}/plan", "--strategy", "fluid", "--no-wait")
    assert play.asked == [("/migrate", {"query": "aaaa-1111", "plan": {}, "strategy": "fluid"})]


def test_migration_that_waits_for_a_time_promises_no_end():
    view = views.of_migration(STATUS.migration, Estimate(1, 2_000_000, None, 1.0, not_before=70))
    assert left(view) == "about 2.0 MB left, not before time 70"


def test_plan_that_cannot_be_read_is_one_sentence(capsys, serve, tmp_path):
    play = serve(Play(), WORDS)
    (tmp_path / "noise").write_text("{")
    (tmp_path / "twice").write_text('{"gap": 1, "gap": 2}')
    told = {"noise": "is not a plan: ", "twice": "contains field `gap` twice", "nowhere": "No such file or directory"}
    for path, reason in told.items():
        code, _, err = run(capsys, "migrate", "--plan", f"{tmp_path}/{path}")
        assert (code, reason in err, err.count("\n")) == (2, True, 1)
    assert play.asked == []


WRONG = [
    ["rescale"],
    ["rescale", "--workers", "many"],
    ["drain"],
    ["migrate"],
    ["migrate", "--move", "3"],
    ["migrate", "--to", "a,b"],
    ["migrate", "--to", "0", "--move", "0=1"],
    ["rebalance", "--by", "luck"],
    ["rebalance", "--latency-target", "soon"],
    ["rebalance", "--latency-target", "0"],
    ["rebalance", "--latency-target", "9" * 400],
    ["rescale", "--workers", "\u0663"],
    ["rescale", "--workers", "1_0"],
    ["rescale", "--workers", "9" * 5000],
    ["rebalance", "--gap", "1.5"],
    ["migrate", "--move", "3=1,3=0"],
    ["migrate", "--move", "3=1,"],
    ["migrate", "--to", "0, 1"],
    ["plan"],
    ["plan", "pause"],
    ["pause", "a", "b"],
]


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_arguments(capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: megaphone")


def test_terminal_gets_a_bar(serve):
    serve(Play(), WORDS)
    shown = on_terminal([sys.executable, "-m", "megaphone.cli", "rebalance"])
    assert "4 of 4 bins, 4.0 MB" in shown
    assert "fluid done: 4 of 4 steps, 4 of 4 bins" in shown
    assert "━" in shown


def test_server_that_does_not_answer_is_one_sentence(capsys):
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        directory.enter(Entry.of_this_process("c1", address, "token", (WORDS,)))
        code, _, err = run(capsys, "pause")
        assert (code, err.startswith("megaphone: control c1 of process "), err.count("\n")) == (1, True, 1)
        assert run(capsys, "ps", "--json")[:2] == (0, "[]\n")


def on_terminal(command):
    """What a command shows on a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 4096):
            shown += data
    except OSError:
        # The terminal is gone with its last user.
        pass
    os.close(ours)
    assert process.wait() == 0
    return shown.decode()
