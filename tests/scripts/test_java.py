"""The script that finds Java, on a PATH where all that could change the machine only writes down what it was asked.

Would catch an installation that is not announced, or that is made although it was forbidden.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "java.sh"
TOOLS = ("sh", "sed", "head", "dirname", "readlink", "env", "true")
JAVA = "#!/bin/sh\necho 'openjdk version \"{version}.0.1\" 2024-01-16' >&2\n"
APT_GET = """#!/bin/sh
echo "apt-get $*" >>"$RECORD"
echo "apt-get runs" >&2
case "$*" in *install*"$OFFERED"*) mkdir -p "$NEW" && cp "$NEW_JAVA" "$NEW/java";; *install*) exit 100;; esac
"""


class Machine:
    """A PATH of its own, without Java, and with an apt-get that writes down what it is asked."""

    def __init__(self, folder, uid):
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in (*TOOLS, "mkdir", "cp"):
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.record = folder / "record"
        self.record.touch()
        self._add(folder / "new-java", JAVA.format(version=17))
        self.add("apt-get", APT_GET)
        self.add("id", f"#!/bin/sh\necho {uid}\n")
        self.add("sudo", '#!/bin/sh\necho "sudo $*" >>"$RECORD"\nshift\nexec "$@"\n')
        self.environment = {
            "PATH": str(self.bin),
            "RECORD": str(self.record),
            "NEW": str(self.bin),
            "NEW_JAVA": str(folder / "new-java"),
            "OFFERED": "openjdk-17-jre-headless",
        }

    def add(self, name, text):
        """A program."""
        self._add(self.bin / name, text)

    def _add(self, path, text):
        path.write_text(text)
        path.chmod(0o755)

    def run(self, *arguments, **variables):
        """What the script says and answers."""
        return subprocess.run(
            [self.bin / "sh", SCRIPT, *arguments],
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=30,
        )

    @property
    def asked(self):
        """What apt-get and sudo were asked."""
        return self.record.read_text().splitlines()


@pytest.fixture
def machine(tmp_path):
    return lambda uid=0: Machine(tmp_path, uid)


@pytest.mark.parametrize(("uid", "whom"), [(0, "apt-get as root:"), (1000, "apt-get as root, through sudo:")])
def test_installation_is_announced_in_one_line_before_anything_is_done(machine, uid, whom):
    made = machine(uid)
    done = made.run()
    first, *later = done.stderr.splitlines()
    assert later[0] == "apt-get runs"
    for fact in ("openjdk-17-jre-headless", "on this machine", whom, "NO_INSTALL=1 forbids it"):
        assert fact in first
    assert done.returncode == 0
    assert Path(done.stdout.strip()) == made.bin.parent
    assert any(line.endswith("install -y -qq --no-install-recommends openjdk-17-jre-headless") for line in made.asked)


@pytest.mark.parametrize("uid", [0, 1000])
@pytest.mark.parametrize("value", ["1", "yes", "true"])
def test_nothing_is_installed_nor_tried_where_it_is_forbidden(machine, uid, value):
    made = machine(uid)
    done = made.run(NO_INSTALL=value)
    assert (done.returncode, done.stdout, made.asked) == (1, "", [])
    assert done.stderr.startswith("Spark needs Java 17 or later: install one")


@pytest.mark.parametrize("value", ["", "0"])
def test_it_is_forbidden_by_no_empty_word(machine, value):
    assert machine().run(NO_INSTALL=value).returncode == 0


def test_second_package_is_tried_where_the_first_is_not_offered(machine):
    made = machine()
    done = made.run(OFFERED="default-jre-headless")
    assert done.returncode == 0
    assert "default-jre-headless" in done.stderr.splitlines()[0]


def test_finding_installs_nothing(machine):
    made = machine()
    done = made.run("--find")
    assert (done.returncode, done.stdout, done.stderr, made.asked) == (1, "", "", [])


def test_java_that_is_there_is_taken(machine):
    made = machine()
    made.add("java", JAVA.format(version=21))
    done = made.run()
    assert (done.returncode, done.stdout.strip(), done.stderr, made.asked) == (0, str(made.bin.parent), "", [])


def test_java_that_is_too_old_is_not(machine):
    made = machine()
    made.add("java", JAVA.format(version=11))
    assert made.run("--find").returncode == 1


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_make_passes_on_that_it_is_forbidden(machine):
    made = machine()
    (made.bin / "make").symlink_to(shutil.which("make"))
    for arguments, variables in ((["NO_INSTALL=1"], {}), ([], {"NO_INSTALL": "1"})):
        done = subprocess.run(
            [made.bin / "make", *arguments, "java"],
            cwd=SCRIPT.parents[1],
            env={**made.environment, **variables, "SHELL": os.fspath(made.bin / "sh")},
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert (done.returncode, made.asked) == (2, [])
        assert "Spark needs Java 17 or later" in done.stderr
