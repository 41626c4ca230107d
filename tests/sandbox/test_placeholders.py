"""Mount points on the host: made once, shared, and removed with the last user of them."""

from __future__ import annotations

import fcntl
import os

import pytest

from exec_server.sandbox.placeholders import Folder, release
from tests.requirements import requirement


@pytest.fixture
def folder(tmp_path):
    made = Folder(os.fsencode(tmp_path / "private"))
    made.prepare()
    return made


@pytest.fixture
def workspace(tmp_path):
    path = tmp_path / "workspace"
    path.mkdir()
    return path


def markers(folder: Folder) -> list[bytes]:
    return os.listdir(os.path.join(folder.path, b"placeholders"))


def names(*paths: object, is_directory: bool = True) -> list[tuple[bytes, bool]]:
    return [(os.fsencode(str(path)), is_directory) for path in paths]


@requirement("sandbox/placeholders:removed")
@pytest.mark.parametrize("is_directory", [True, False], ids=["directory", "file"])
def test_a_placeholder_is_made_and_removed(folder, workspace, is_directory):
    path = workspace / ".git"
    [held] = folder.hold(names(path, is_directory=is_directory))
    assert path.is_dir() is is_directory
    release(*held)
    assert not path.exists()
    assert markers(folder) == []


@requirement("sandbox/placeholders:removed")
def test_the_last_who_needs_it_removes_it(folder, workspace):
    path = workspace / ".git"
    [first] = folder.hold(names(path))
    # This is another server of the same user.
    [second] = Folder(folder.path).hold(names(path))
    release(*first)
    assert path.is_dir()
    release(*second)
    assert not path.exists()


@requirement("sandbox/placeholders:not-ours")
def test_what_was_there_before_is_neither_held_nor_removed(folder, workspace):
    path = workspace / ".git"
    path.mkdir()
    assert folder.hold(names(path)) == []
    assert path.is_dir()


@requirement("sandbox/placeholders:not-ours")
@pytest.mark.parametrize("is_directory", [True, False], ids=["directory", "file"])
def test_a_placeholder_in_use_stays(folder, workspace, is_directory):
    path = workspace / ".git"
    [held] = folder.hold(names(path, is_directory=is_directory))
    (path / "HEAD" if is_directory else path).write_text("theirs")
    release(*held)
    assert path.exists()
    assert markers(folder) == []


@requirement("sandbox/placeholders:not-ours")
def test_what_was_put_in_its_place_stays(folder, workspace):
    path = workspace / ".git"
    [held] = folder.hold(names(path))
    path.rename(workspace / "moved")
    path.mkdir()
    release(*held)
    assert path.is_dir()


@requirement("sandbox/placeholders:not-ours")
def test_a_link_on_the_way_is_not_followed(folder, workspace, tmp_path):
    (tmp_path / "link").symlink_to(workspace)
    with pytest.raises(OSError, match=r"symbolic|Not a directory"):
        folder.hold(names(tmp_path / "link" / ".git"))
    assert list(workspace.iterdir()) == []


@requirement("sandbox/placeholders:removed")
def test_nothing_is_held_when_one_of_them_cannot_be_made(folder, workspace):
    with pytest.raises(FileNotFoundError):
        folder.hold(names(workspace / ".git", workspace / "missing" / ".git"))
    assert list(workspace.iterdir()) == []
    assert markers(folder) == []


@requirement("sandbox/placeholders:swept")
def test_what_its_holder_left_is_swept(folder, workspace):
    path = workspace / ".git"
    [(fd, _)] = folder.hold(names(path))
    folder.sweep()
    assert path.is_dir(), "another holder has it"
    # The kernel does this when the holder of the lock is killed.
    os.close(fd)
    folder.sweep()
    assert not path.exists()
    assert markers(folder) == []


@requirement("sandbox/placeholders:swept")
def test_a_maker_that_was_killed_at_the_worst_moment_is_swept_up_after(folder, workspace):
    path = workspace / ".git"
    [(fd, marker)] = folder.hold(names(path))
    # The process was killed before it could note what it had made.
    os.truncate(marker, len(os.fsencode(path)) + 1)
    os.utime(marker, ns=(0, 0))
    os.close(fd)
    folder.sweep()
    assert not path.exists()


def test_a_private_folder_that_is_another_thing_is_refused(tmp_path):
    (tmp_path / "private").symlink_to(tmp_path)
    with pytest.raises(FileExistsError):
        Folder(os.fsencode(tmp_path / "private")).prepare()


def test_the_private_folder_is_for_its_owner_alone(folder):
    assert os.stat(folder.path).st_mode & 0o777 == 0o700
    assert os.stat(folder.empty_file(is_readable=False)).st_mode & 0o777 == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
@requirement("sandbox/placeholders:other-users")
@pytest.mark.parametrize("is_directory", [True, False], ids=["directory", "file"])
def test_a_placeholder_stays_while_a_sandbox_of_another_user_needs_it(
    folder, workspace, tmp_path, is_directory
):
    path = workspace / ".git"
    [held] = folder.hold(names(path, is_directory=is_directory))
    os.chown(path, 65534, 65534)
    other = Folder(os.fsencode(tmp_path / "other"))
    other.prepare()
    [theirs] = other.hold(names(path, is_directory=is_directory))
    assert theirs[1] == b"" and markers(other) == []
    release(*held)
    assert path.exists()
    release(*theirs)
    # Its maker finds it again, with the next server or the next sandbox here.
    folder.sweep()
    assert not path.exists() and markers(folder) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
@requirement("sandbox/placeholders:other-users")
def test_files_of_others_with_content_are_not_touched(folder, workspace):
    path = workspace / ".git"
    path.write_text("gitdir: elsewhere")
    os.chown(path, 65534, 65534)
    assert folder.hold(names(path, is_directory=False)) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
@requirement("sandbox/placeholders:other-users")
def test_a_lock_on_a_directory_of_another_user_with_content_is_not_waited_for(folder, workspace):
    path = workspace / ".git"
    path.mkdir()
    (path / "config").touch()
    os.chown(path, 65534, 65534)
    locked = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(locked, fcntl.LOCK_EX)
        assert folder.hold(names(path)) == []
    finally:
        os.close(locked)
