"""The command `megaphone nexmark`: run a query, say how it is meanwhile, and tell how it was.

The answer goes to standard output; what is said meanwhile, and what is wrong, goes to standard error, and what Spark
has to say to a file.  From: cli.py.
"""

import argparse
import os
import shutil
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from megaphone.errors import PlanError
from megaphone.harness.nexmark.arguments import Settings, settings_of
from megaphone.harness.nexmark.interruption import Interruption, interruption
from megaphone.harness.nexmark.progress import Line, told
from megaphone.harness.nexmark.questions import listed
from megaphone.harness.quiet import errors_to
from megaphone.service.terminal import complain, say

if TYPE_CHECKING:
    from megaphone.harness.nexmark.job import Job

TICK_S = 0.2
LOG, PICTURE, SUMMARY = "log.txt", "latency.png", "summary.json"


class Failed(Exception):
    """Said in one line; the rest is in the log."""


def nexmark(arguments: argparse.Namespace) -> int:
    """Do what was said; the exit code."""
    if arguments.query == "list":
        say(listed())
        return 0
    try:
        settings = settings_of(arguments)
        _prepare(settings)
    except PlanError as error:
        return _refuse(error, 2)
    try:
        with _terminal() as stream, interruption() as asked:
            line = Line(stream, arguments.quiet)
            job = _run(settings, line, asked)
            return tell(job, line, asked, arguments.json)
    except Failed as error:
        return _refuse(error, 1)


def _refuse(error: Exception, code: int) -> int:
    complain(error)
    return code


def _prepare(settings: Settings) -> None:
    try:
        settings.out.mkdir(parents=True, exist_ok=True)
        for name in (LOG, PICTURE, SUMMARY):
            # Nobody must take the last run's for this one's.
            (settings.out / name).unlink(missing_ok=True)
    except OSError as error:
        raise PlanError(f"cannot write to {settings.out}: {error.strerror}; choose another --out") from None


@contextmanager
def _terminal() -> Iterator[TextIO]:
    """Standard error, also while everything else that goes there is kept in a file."""
    with os.fdopen(os.dup(2), "w") as stream:
        yield stream


@contextmanager
def _checkpoint(settings: Settings) -> Iterator[str]:
    if settings.checkpoint is not None:
        yield settings.checkpoint
        return
    folder = tempfile.mkdtemp(prefix="megaphone-nexmark-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(settings: Settings, line: Line, asked: Interruption) -> "Job":
    log = settings.out / LOG
    with errors_to(log), _checkpoint(settings) as checkpoint:
        try:
            return _measure(settings, checkpoint, line, asked)
        except Exception as error:
            traceback.print_exc()
            line.clear()
            first = (str(error).strip() or repr(error)).splitlines()[0]
            raise Failed(f"{first.rstrip('.')}; all that was said is in {log}") from None


def _measure(settings: Settings, checkpoint: str, line: Line, asked: Interruption) -> "Job":
    line.say("starting Spark")
    from megaphone.harness.nexmark.job import Job
    from megaphone.harness.session import quiet_session

    spark = quiet_session(f"megaphone nexmark {settings.query}", settings.master)
    try:
        # Spark has put itself in our place.
        asked.listen()
        line.say(f"starting {settings.query}")
        job = Job(spark, settings, checkpoint)
        follow(job, line, asked)
        return job
    finally:
        spark.stop()


def follow(job: "Job", line: Line, asked: Interruption) -> None:
    """Say how a query is until it has come to its end, or somebody asks for it; then it is stopped."""
    while not (asked.signal or job.complete or job.hopeless):
        if reading := job.step():
            line.update(told(reading, job.holders))
        time.sleep(TICK_S)
    line.say("stopping")
    job.stop()


def tell(job: "Job", line: Line, asked: Interruption, as_json: bool) -> int:
    """How it was, in text, figures and a picture; the exit code."""
    from megaphone.harness.nexmark.course import Course
    from megaphone.harness.nexmark.page import page
    from megaphone.harness.nexmark.picture import draw
    from megaphone.harness.nexmark.summary import summarise

    line.say("counting")
    ended = "interrupted" if asked.signal else "complete" if job.complete else "behind"
    out, course = job.settings.out, job.course or Course.empty(job.settings.rate)
    timeline = course.timeline()
    summary = summarise(job, course, timeline, ended)
    (out / SUMMARY).write_text(summary.as_json())
    picture = draw(summary, timeline, out / PICTURE)
    line.clear()
    say(summary.as_json() if as_json else f"{page(summary)}picture: {picture}\nsummary: {out / SUMMARY}\n")
    if ended == "behind":
        return _refuse(Failed("the query did not keep up; choose a lower --rate"), 1)
    return asked.exit_code
