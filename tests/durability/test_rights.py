"""Would catch a folder or a file that others can change and that is taken for the user's own, and the reverse."""

import os

import pytest

from megaphone.durability.rights import fault_of_file, fault_of_folder, remarks_on, resolved, rightless

OTHER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def base(tmp_path):
    """A folder with one above it and one below."""
    base = tmp_path / "above" / "base"
    (base / "below").mkdir(parents=True)
    for folder in (base.parent, base, base / "below"):
        folder.chmod(0o755)
    return base


def fault(base, folder="below"):
    return fault_of_folder(resolved(str(base / folder)), resolved(str(base)))


def test_folder_of_this_user_is_no_fault(base):
    assert fault(base) is None
    assert list(remarks_on(str(base / "below"), str(base))) == []


@pytest.mark.parametrize("place", ["..", ".", "below"])
def test_folder_that_everybody_can_write_to_is_one(base, place):
    (base / place).chmod(0o757)
    assert (
        fault(base)
        == f"{(base / place).resolve()}, which belongs to uid {os.geteuid()}, can be written to by everybody"
    )


def test_folder_above_may_be_one_where_nobody_can_rename_what_belongs_to_others(base):
    base.parent.chmod(0o1777)
    assert fault(base) is None
    base.chmod(0o1777)
    assert "can be written to by everybody" in fault(base)


@needs_root
@pytest.mark.parametrize("place", ["..", ".", "below"])
def test_folder_of_another_user_is_one(base, place):
    os.chown(base / place, OTHER, -1)
    who = f"belongs to uid {OTHER}, who is neither this user ({os.geteuid()}) nor root"
    assert fault(base) == f"{(base / place).resolve()} {who}"


def test_links_are_followed(base, tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "open" / "link").symlink_to(base)
    assert fault(tmp_path / "open" / "link") is None
    (base / "out").symlink_to(tmp_path / "open")
    assert "can be written to by everybody" in fault(base, "out")
    (base / "circle").symlink_to("circle")
    assert "that leads nowhere" in fault(base, "circle")


def test_link_that_was_put_there_since_is_a_fault(base):
    (base / "link").symlink_to("below")
    assert f"link is a link of uid {os.geteuid()}'s" in fault_of_folder(str(base / "link"), str(base))


def test_folder_that_is_not_there_yet_is_judged_by_those_above(base):
    assert fault(base, "new/newer") is None
    base.chmod(0o777)
    assert "can be written to by everybody" in fault(base, "new/newer")


def test_group_is_remarked_on_and_no_fault(base):
    base.chmod(0o775)
    assert fault(base) is None
    assert list(remarks_on(str(base / "below"), str(base))) == [f"group {os.getegid()} can write to {base}"]


@needs_root
def test_file_of_another_user_is_one_in_a_good_folder_too(base):
    (base / "file").touch()
    assert fault_of_file(base / "file") is None
    os.chown(base / "file", OTHER, -1)
    assert f"belongs to uid {OTHER}" in fault_of_file(base / "file")


def test_file_that_everybody_can_write_to_is_one_where_they_can_reach_it(base):
    (base / "file").touch()
    (base / "file").chmod(0o666)
    assert "can be written to by everybody" in fault_of_file(base / "file")
    base.chmod(0o700)
    assert fault_of_file(base / "file") is None


@pytest.mark.parametrize(
    ("mount", "meaning"),
    [
        ("fuse.sshfs me@there: rw,user_id=0,group_id=0", False),
        ("fuse.sshfs me@there: rw,user_id=0,group_id=0,default_permissions", True),
        ("fuse somebody rw,user_id=4242,group_id=4242,allow_other", True),
        ("fusectl fusectl rw", True),
        ("cifs //there/share rw,uid=0,noperm", False),
        ("cifs //there/share rw,uid=0", True),
        ("ext4 /dev/vda1 rw", True),
        ("vfat /dev/sdb1 rw,uid=0,umask=000", True),
    ],
)
def test_rights_are_looked_at_where_they_decide_something(mount, meaning):
    device = os.makedev(8, 17)
    assert (device not in rightless(f"36 25 8:17 / /mnt/a rw shared:7 - {mount}")) is meaning


def test_path_through_another_process_is_not_shortened(tmp_path):
    through = f"/proc/{os.getpid()}/root{tmp_path}"
    assert resolved(through) == str(tmp_path)
    assert resolved(f"{through}/new/newer") == f"{tmp_path}/new/newer"
