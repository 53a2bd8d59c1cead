"""The command line, as people and programs use it.

Would catch a traceback where a sentence would do, an exit code that lies, and a table that a pipe or a narrow terminal
garbles.
"""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pyarrow as pa
import pytest

from megaphone import cli
from megaphone.dataflow.operators import Input, key_operator
from megaphone.durability import inspection

COMMAND = [sys.executable, "-m", "megaphone.cli"]
ROWS = [(word,) for word in ["to", "be", "or", "not", "to", "be"]]


class Count:
    """A fold, for a checkpoint whose fold nobody calls."""

    def __call__(self, word, _, n):
        return (n or 0) + 1, []


@pytest.fixture
def checkpoint(stored_query):
    """A small query in the middle of a migration."""
    words = Input(pa.schema([("word", pa.string())]), ("word",))
    query = stored_query(key_operator("count", words, Count(), pa.schema([("n", pa.int64())])), bins=4)
    query.run(ROWS, ROWS)
    query.snapshot("count", 0, 0)
    query.migrate([1] * 4, "fluid")
    query.run(ROWS)
    return str(query.checkpoint)


def run(capsys, *arguments):
    """Exit code, standard output and standard error."""
    code = cli.main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_tables(capsys, checkpoint):
    code, out, err = run(capsys, "state", checkpoint)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "control0: epoch 2 committed, attempt 1, 4 bins"
    assert lines[1].startswith("on disk: ")
    assert lines[2] == "under way: fluid running: 1 of 2 steps, 1 of 2 bins"
    assert lines[4] == "count: state per key, keyed by word, time by epoch, reads (word string)"
    assert lines[5] == "18 records applied, 0 late"
    assert lines[6].split() == ["worker", "bins", "snapshots", "oldest", "newest", "log", "to", "redo", "frontier"]
    first, second = (line.split() for line in lines[7:])
    assert (first[:2], first[-2:]) == (["0", "1"], ["3", "3"])
    assert (second[:2], second[-2:]) == (["1", "3"], ["3", "3"])


def test_bins(capsys, checkpoint):
    code, out, _ = run(capsys, "state", checkpoint, "--bins")
    rows = [line.split() for line in out.splitlines()]
    assert code == 0
    assert rows[0] == ["control", "operator", "bin", "worker", "snapshot", "bytes"]
    assert [row[2:5] for row in rows[1:]] == [["0", "1", "1"], ["1", "1", "-"], ["2", "0", "-"], ["3", "1", "-"]]


def test_json(capsys, checkpoint):
    code, out, _ = run(capsys, "state", checkpoint, "--json")
    found = json.loads(out)
    assert (code, found["checkpoint"], found["controls"][0]["committed"]) == (0, checkpoint, 2)
    assert found["controls"][0]["operators"][0]["workers"][1]["bins"] == 3
    code, out, _ = run(capsys, "state", checkpoint, "--bins", "--json")
    assert (code, [bin["worker"] for bin in json.loads(out)]) == (0, [1, 1, 0, 1])


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("megaphone 0.")


@pytest.mark.parametrize("arguments", [[], ["state"], ["stat", "x"], ["state", "x", "--bin=1"], ["state", ""]])
def test_wrong_arguments(capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: megaphone")


def test_error_is_one_sentence(capsys, checkpoint, tmp_path):
    assert run(capsys, "state", f"{tmp_path}/nowhere") == (
        1,
        "",
        f"megaphone: there is no {tmp_path}/nowhere; give the checkpoint location of a query\n",
    )
    manifest = f"{checkpoint}/megaphone/control0/manifest"
    Path(manifest).write_bytes(b"torn")
    code, out, err = run(capsys, "state", checkpoint)
    assert (code, out) == (1, "")
    assert err == f"megaphone: {manifest} is not a manifest of Megaphone's: it begins with b'torn'\n"


def test_names_are_shown_as_they_are(capsys, checkpoint, tmp_path):
    odd = tmp_path / "[bold] a:b :smile: ü"
    Path(checkpoint).rename(odd)
    code, out, _ = run(capsys, "state", str(odd), "--json")
    assert (code, json.loads(out)["checkpoint"]) == (0, str(odd))
    code, _, err = run(capsys, "state", f"{odd}/offsets")
    assert (code, f"{odd}/offsets is no checkpoint" in err) == (1, True)


def test_pipe_gets_plain_lines_of_any_length(checkpoint):
    done = subprocess.run([*COMMAND, "state", checkpoint], capture_output=True, text=True, env=narrow())
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    table = [line for line in done.stdout.splitlines() if line.startswith((" ", "worker"))]
    assert len(table) == 3
    assert len({len(line) for line in table}) == 1


def test_pipe_that_nobody_reads(checkpoint):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*COMMAND, "state", checkpoint], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_full_disk(checkpoint):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*COMMAND, "state", checkpoint], stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, b"megaphone: cannot write the answer: No space left on device\n")


@pytest.mark.parametrize("columns", [100, 40])
def test_terminal(checkpoint, columns):
    shown = on_terminal([*COMMAND, "state", checkpoint], columns)
    if columns == 100:
        assert "worker" in shown
        assert "frontier" in shown
    else:
        assert "worker 0, bins 1, snapshots 0 B, oldest -, newest -, log " in shown
    assert "…" not in shown


def test_interrupt(monkeypatch, capsys, checkpoint):
    def interrupted(_):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(inspection, "inspect", interrupted)
    assert run(capsys, "state", checkpoint) == (130, "", "")


def narrow():
    return {**os.environ, "COLUMNS": "20"}


def on_terminal(command, columns):
    """What a command shows on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment["TERM"] = "xterm"
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
