"""Would catch a run of a query that is not the one asked for, wrong arguments that start Spark, latency counted for an
event that is not done, and control characters where nobody can read them.
"""

import contextlib
import fcntl
import io
import os
import pty
import struct
import termios
from itertools import cycle

import pytest

from megaphone import cli
from megaphone.harness.nexmark.arguments import Wish, settings_of
from megaphone.harness.nexmark.course import Course
from megaphone.harness.nexmark.progress import Line
from megaphone.harness.schedule import SECOND_NS, Schedule
from megaphone.nexmark.queries import QUERIES


def refused(capsys, *arguments):
    """Exit code, and the sentence; nothing else may be said."""
    code = cli.main(["nexmark", *arguments])
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("megaphone: ")
    assert err.endswith("\n")
    return code, err.removeprefix("megaphone: ").rstrip("\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["q9"], "no query named 'q9'; choose q0 to q8, or list to see what they ask"),
        (["q5", "--rate", "fast"], "--rate: 'fast' is no number; choose one like 2500, 100k or 1.5M"),
        (["q5", "--rate", "0"], "rate is 0; choose more than 0"),
        (["q5", "--duration", "1y"], "--duration: '1y' is no length of time; choose one like 30s, 500ms, 2m or 1h"),
        (["q5", "--duration", "0"], "a duration of 0 s; choose more than 0"),
        (["q5", "--workers", "two"], "--workers is 'two'; choose a whole number"),
        (["q5", "--workers", "0"], "0 workers asked for; choose 1 or more"),
        (["q5", "--bins", "100"], "100 bins asked for; choose a power of two from 2 to 1048576"),
        (["q5", "--dilation", "0"], "dilation is 0; choose more than 0"),
        (["q5", "--version", "fast"], "no version named 'fast'; choose migrateable, native or spark"),
        (["q5", "--migrate", "fluid"], "'fluid' is no migration; choose a strategy and a time, like batched@30s"),
        (
            ["q5", "--migrate", "fluent@3s"],
            "no strategy named 'fluent'; choose adaptive, all_at_once, batched, fluid or optimized",
        ),
        (
            ["q5", "--migrate", "fluid@60s"],
            "a migration at 60 s, but the run has 60 s; choose an earlier time or a longer --duration",
        ),
        (["q5", "--migrate", "fluid@3s:bins=2"], "no option 'bins' of a migration; choose batch=, gap= or target="),
        (["q5", "--migrate", "fluid@3s:target=up"], "no target named 'up'; choose next, back or skew"),
        (["q5", "--migrate", "batched@3s:batch=0"], "batches of 0 bins; choose 1 or more"),
        (["q5", "--migrate", "batched@3s:gap=-1"], "a gap of -1 epochs; choose 0 or more"),
        (
            ["q5", "--workers", "1", "--migrate", "fluid@3s"],
            "one worker has nobody to move bins to; choose --workers 2 or more",
        ),
        (["q5", "--checkpoint", "/"], "/ is there already and not empty; choose another --checkpoint, or none"),
        (["q5", "--out", "/dev/null"], "cannot write to /dev/null: File exists; choose another --out"),
    ],
)
def test_wrong_argument_is_refused_in_one_sentence(capsys, arguments, sentence):
    assert refused(capsys, *arguments) == (2, sentence)


def test_list_has_every_query_with_its_question(capsys):
    assert cli.main(["nexmark", "list"]) == 0
    lines = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines.keys() == QUERIES.keys()
    assert lines["q5"] == "hot items: which auction had the most bids in the last minute? Told every second."
    assert all("?" in question for question in lines.values())


def settings(*arguments):
    return settings_of(cli._parser().parse_args(["nexmark", *arguments]))


def test_migrations_come_in_the_order_of_their_times_and_go_there_and_back():
    given = ["fluid@40s", "all_at_once@20s", "batched@0.8m:batch=4,gap=2,target=skew", "optimized@50s"]
    told = settings("q3", *(part for text in given for part in ("--migrate", text)))
    assert told.migrations == (
        Wish("all_at_once", 20.0, "next"),
        Wish("fluid", 40.0, "back"),
        Wish("batched", 48.0, "skew", 4, 2),
        Wish("optimized", 50.0, "back"),
    )


def test_rates_and_times_are_read_as_they_are_written():
    told = settings("q8", "--rate", "1.5M", "--duration", "2m", "--dilation", "79")
    assert (told.rate, told.duration_s, told.warm_up_s, told.dilation) == (1_500_000, 120.0, 10.0, 79)
    assert settings("q8", "--duration", "8s").warm_up_s == 2.0
    assert settings("q8", "--duration", "8s", "--warm-up", "500ms").warm_up_s == 0.5


def progress(done_s, *ends, starts=(SECOND_NS,)):
    """What Spark says of an epoch that was done so many seconds after 1970, whose log took a second more."""
    return {
        "timestamp": "1970-01-01T00:00:00.000Z",
        "durationMs": {"addBatch": 1, "commitOffsets": 1000, "triggerExecution": 1000 + 1000 * done_s},
        "sources": [
            *(
                {"endOffset": {"event": end, "start_ns": start}}
                for end, start in zip(ends, cycle(starts), strict=False)
            ),
            {"endOffset": {"megaphone_bell": 1}},
            {"endOffset": None},
        ],
    }


def test_event_is_done_when_every_stream_has_come_past_it():
    course = Course(Schedule(0, 1000), preload=0)
    course.take(progress(1, 1000, 900))
    course.take(progress(3, 1000, 2000))
    course.take(progress(4, 1000, 2000))
    course.take(progress(5, 3000, 2500))
    assert [(epoch.first, epoch.last) for epoch in course.epochs] == [(0, 900), (900, 1000), (1000, 2500)]
    assert course.events == 2500
    # The first event of the last epoch was due after one second, the one in its middle after 1.75.
    assert course.latency_ms() == (3250.0, 4000.0)
    timeline = course.timeline()
    assert sum(map(len, timeline.intervals.values())) == 2500
    assert timeline.between(0, 10 * SECOND_NS).max == 4 * SECOND_NS
    assert course.rate(5 * SECOND_NS) == 500.0


def test_events_that_came_at_once_do_not_count():
    assert Course.begun(progress(1, 500, 500, starts=(0,)), 1000, 500) is None
    course = Course.begun(progress(2, 500, 500, starts=(SECOND_NS + 7, SECOND_NS)), 1000, 500)
    course.take(progress(2, 500, 500))
    course.take(progress(3, 2500, 2500))
    assert (course.schedule.start_ns, course.events, course.latency_ms()[1]) == (SECOND_NS, 2000, 2000.0)


def test_line_that_stays_has_no_control_characters_and_comes_now_and_then():
    stream = io.StringIO()
    line = Line(stream, quiet=False)
    line.say("starting")
    for second in range(100):
        line.update(f"{second} s")
    line.say("stopping")
    line.clear()
    assert stream.getvalue() == "starting\nstopping\n"


def test_quiet_line_says_nothing():
    stream = io.StringIO()
    line = Line(stream, quiet=True)
    line.say("starting")
    line.clear()
    assert stream.getvalue() == ""


def test_line_on_a_terminal_is_written_over_and_fits(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
        line = Line(stream, quiet=False)
        line.say("a" * 100)
        line.update("b")
        line.clear()
    shown = "".join(written(ours))
    os.close(ours)
    assert shown == f"\r\x1b[2K{'a' * 19}\r\x1b[2Kb\r\x1b[2K"


def written(terminal):
    """What was written to a terminal that nobody has open any more."""
    with contextlib.suppress(OSError):
        while data := os.read(terminal, 4096):
            yield data.decode()
