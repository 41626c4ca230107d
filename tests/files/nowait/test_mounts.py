"""The list of mounts: which are quick, which are slow, and when that changes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from exec_server.files.nowait.mounts import Mounts, Pace
from tests.requirements import requirement
from tests.support.files import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no list of mounts")

TABLE = rb"""
1 0 0:1 / / rw - rootfs rootfs rw
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:20 / /proc rw - proc proc rw
24 22 0:6 / /dev rw - devtmpfs devtmpfs rw
25 24 0:22 / /dev/shm rw master:2 propagate_from:3 - tmpfs tmpfs rw
26 22 0:40 / /mnt/far\040away rw - nfs4 server:/ rw
27 26 254:1 / /mnt/far\040away/near rw - xfs /dev/vdb rw
28 27 0:41 / /mnt/far\040away/near/far rw - fuse.sshfs me rw
29 22 0:42 / /etc/hosts rw - 9p host rw
""".lstrip()


@pytest.fixture
def mounts():
    found = Mounts()
    found._take(TABLE)
    yield found
    found.close()


@requirement("fs:quick-is-slow")
@pytest.mark.parametrize(
    ("path", "is_plain"),
    [
        (b"/", True),
        (b"/home/me/file", True),
        (b"/mnt", True),
        (b"/mnt/far", True),
        (b"/proc", False),
        (b"/proc/version", False),
        (b"/dev/null", False),
        (b"/dev/shm/file", True),
        (b"/mnt/far away", False),
        (b"/mnt/far away/file", False),
        # A mount below it is quick, but has a slow mount below itself.
        (b"/mnt/far away/near/far/file", False),
        (b"/etc/hosts", False),
        (b"/etc/passwd", True),
    ],
)
def test_paths_that_stay_clear_of_slow_mounts(mounts, path, is_plain):
    assert mounts.is_plain(path) is is_plain


@requirement("fs:quick-is-slow")
def test_devices_have_the_pace_of_their_file_system(mounts):
    expected = {
        (254, 0): Pace.DISK,
        (254, 1): Pace.DISK,
        (0, 22): Pace.MEMORY,
        (0, 20): Pace.SLOW,
        (0, 40): Pace.SLOW,
        (0, 41): Pace.SLOW,
        (0, 42): Pace.SLOW,
        (9, 9): Pace.SLOW,
    }
    for (major, minor), pace in expected.items():
        assert mounts.pace_of(os.makedev(major, minor)) is pace


def test_a_mount_point_may_contain_a_carriage_return(mounts):
    mounts._take(TABLE + b"30 22 0:50 / /odd\rname rw - fuse.far far rw\n")
    assert not mounts.is_plain(b"/odd\rname/file")


@requirement("fs:quick-is-slow")
def test_some_file_systems_have_more_devices_than_mounts(mounts):
    mounts._take(TABLE + b"30 22 0:50 / /data rw - btrfs /dev/vdc rw\n")
    assert mounts.pace_of(os.makedev(0, 51)) is Pace.DISK
    assert mounts.pace_of(os.makedev(0, 40)) is Pace.SLOW


def test_the_real_list_is_understood():
    found = Mounts()
    assert not found.is_plain(b"/proc/version")
    assert found.pace_of(os.stat("/proc").st_dev) is Pace.SLOW
    if os.path.ismount("/dev/shm"):
        assert found.pace_of(os.stat("/dev/shm").st_dev) is Pace.MEMORY
    found.close()


def test_without_a_list_everything_is_slow(monkeypatch):
    monkeypatch.setattr("exec_server.files.nowait.mounts._TABLE", "/no/such/list")
    found = Mounts()
    assert not found.is_plain(b"/")
    assert found.pace_of(os.stat("/").st_dev) is Pace.SLOW
    found.close()


@requirement("fs:quick-is-slow")
async def test_changes_are_followed(tmp_path):
    found = Mounts()
    found.follow_changes()
    path = os.fsencode(tmp_path)
    for _ in range(3):
        if subprocess.run(["mount", "-t", "proc", "none", tmp_path], check=False).returncode:
            found.close()
            pytest.skip("only root can mount")
        try:
            await until(lambda: not found.is_plain(path))
        finally:
            subprocess.run(["umount", tmp_path], check=True)
        await until(lambda: found.is_plain(path))
    found.close()
