"""Files by scp, sftp, rsync, git and sshfs."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import asyncssh
import pytest

from tests.requirements import requirement
from tests.support.ssh_host import PATIENCE, SshHost, needed


def sftp(host: SshHost, *lines: str, status: int = 0) -> str:
    """Run a batch of sftp; its output."""
    batch = "\n".join(lines).encode() + b"\n"
    return host.call(
        "sftp", *host.options, "-b", "-", "build", input=batch, status=status
    ).stdout.decode()


@pytest.fixture
def tree(tmp_path) -> Path:
    """Files of several kinds."""
    made: Path = tmp_path / "tree"
    (made / "sub").mkdir(parents=True)
    (made / "sub/blob").write_bytes(os.urandom(3 << 20))
    (made / "run me").write_text("#!/bin/sh\n")
    (made / "run me").chmod(0o750)
    os.utime(made / "run me", (1_000_000_000, 1_000_000_000))
    (made / "link").symlink_to("sub/blob")
    return made


def assert_alike(one: Path, other: Path, *, links: bool = True) -> None:
    assert (other / "sub/blob").read_bytes() == (one / "sub/blob").read_bytes()
    found = (other / "run me").stat()
    assert (found.st_mode & 0o777, found.st_mtime) == (0o750, 1_000_000_000)
    if links:
        assert (other / "link").readlink() == Path("sub/blob")


@requirement("ssh:sftp", "ssh:sftp-extensions")
def test_sftp_does_what_a_file_system_does(host, tmp_path):
    (tmp_path / "here").write_bytes(os.urandom(2_500_000))
    far = tmp_path / "far"
    shown = sftp(
        host,
        f"mkdir {far}",
        f"cd {far}",
        f"put {tmp_path}/here one",
        "rename one two",
        "ln two hard",
        "symlink two soft",
        "chmod 640 two",
        f"get -f two {tmp_path}/back",
        f"put -f {tmp_path}/here flushed",
        "df",
        "ls -la",
        "rm flushed",
        "mkdir empty",
        "rmdir empty",
        "pwd",
    )
    assert f"Remote working directory: {far}" in shown and "%Capacity" in shown
    assert "lrwxrwxrwx" in shown and "-rw-r-----    2" in shown
    assert (tmp_path / "back").read_bytes() == (tmp_path / "here").read_bytes()
    assert (far / "two").samefile(far / "hard") and (far / "soft").readlink() == Path("two")
    assert sorted(os.listdir(far)) == ["hard", "soft", "two"]


@requirement("ssh:sftp")
def test_sftp_tells_what_is_wrong(host, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "full/inside").mkdir(parents=True)
    for line, said in (
        (f"get {tmp_path}/missing /dev/null", "not found"),
        (f"rmdir {tmp_path}/full", "Failure"),
        (f"rm {tmp_path}/full", "Failure"),
        (f"mkdir {tmp_path}/file/sub", "No such file"),
        (f"ln {tmp_path}/missing {tmp_path}/b", "No such file"),
        (f"rmdir {tmp_path}/file", "No such file"),
    ):
        batch = f"{line}\n".encode()
        failed = host.call("sftp", *host.options, "-b", "-", "build", input=batch, status=1)
        assert said in failed.stderr.decode() + failed.stdout.decode(), line
    assert (tmp_path / "full/inside").is_dir() and (tmp_path / "file").exists()


@requirement("ssh:sftp")
def test_an_sftp_client_that_says_nothing_is_no_error(host):
    assert host.ssh("-s", "build", "sftp").stderr == b""


@requirement("ssh:sftp-update")
def test_sftp_continues_a_transfer(host, tmp_path):
    content = os.urandom(2_000_000)
    (tmp_path / "whole").write_bytes(content)
    (tmp_path / "up").write_bytes(content[:1_200_000])
    (tmp_path / "down").write_bytes(content[:700_000])
    sftp(
        host,
        f"reput {tmp_path}/whole {tmp_path}/up",
        f"reget {tmp_path}/whole {tmp_path}/down",
    )
    assert (tmp_path / "up").read_bytes() == (tmp_path / "down").read_bytes() == content


@requirement("ssh:scp")
@pytest.mark.parametrize("protocol", ["-s", "-O"])
def test_scp_copies_trees_both_ways(host, tree, tmp_path, protocol):
    words = ("scp", *host.options, protocol, "-rpq")
    host.call(*words, tree, f"build:{tmp_path}/there")
    host.call(*words, f"build:{tmp_path}/there", tmp_path / "back")
    # scp follows links.
    assert_alike(tree, tmp_path / "back", links=False)
    host.call("scp", *host.options, protocol, "-q", f"build:{tmp_path}/nope", tmp_path, status=1)


@requirement("ssh:rsync")
def test_rsync_copies_there_and_back(host, tree, tmp_path):
    needed("rsync")
    words = ("rsync", "-a", "-e", host.command)
    host.call(*words, f"{tree}/", f"build:{tmp_path}/there/")
    (tree / "sub/blob").write_bytes((tree / "sub/blob").read_bytes() + b"more")
    (tree / "extra").touch()
    host.call(*words, "--delete", f"{tree}/", f"build:{tmp_path}/there/")
    host.call(*words, f"build:{tmp_path}/there/", tmp_path / "back")
    assert_alike(tree, tmp_path / "back")


@requirement("ssh:git")
def test_git_clones_and_pushes(host, tmp_path):
    needed("git")
    env = {
        f"GIT_{who}_{what}": f"{what.lower()}@example"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    env |= {"GIT_SSH_COMMAND": host.command, "GIT_CONFIG_GLOBAL": "/dev/null"}
    far, near, again = tmp_path / "far.git", tmp_path / "near", tmp_path / "again"
    host.call("git", "init", "-q", "--bare", far, **env)
    host.call("git", "clone", "-q", f"build:{far}", near, **env)
    (near / "blob").write_bytes(os.urandom(1 << 20))
    host.call("git", "-C", near, "add", ".", **env)
    host.call("git", "-C", near, "commit", "-qm", "one", **env)
    host.call("git", "-C", near, "push", "-q", "origin", "HEAD:main", **env)
    host.call("git", "clone", "-q", "-b", "main", f"git@build:{far}", again, **env)
    assert (again / "blob").read_bytes() == (near / "blob").read_bytes()


@requirement("ssh:sshfs")
def test_sshfs_mounts_a_directory(host, tmp_path):
    needed("sshfs", "fusermount")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("/dev/fuse cannot be used here")
    far, mount = tmp_path / "far", tmp_path / "mount"
    far.mkdir()
    mount.mkdir()
    (far / "file").write_text("there")
    words = ["sshfs", "-F", host.config, "-o", f"ControlPath={host.control}", f"build:{far}", mount]
    mounted = subprocess.run(
        words, env=host.env, capture_output=True, timeout=PATIENCE, check=False
    )
    if mounted.returncode:
        pytest.skip(f"sshfs cannot mount here: {mounted.stderr.decode()}")
    try:
        assert (mount / "file").read_text() == "there"
        with open(mount / "file", "r+") as file:
            file.seek(2)
            file.write("E")
        with open(mount / "file", "a") as file:
            file.write("!")
        (mount / "dir").mkdir()
        (mount / "file").rename(mount / "dir/moved")
        os.truncate(mount / "dir/moved", 5)
        assert (far / "dir/moved").read_text() == "thEre"
    finally:
        subprocess.run(["fusermount", "-u", mount], timeout=PATIENCE, check=True)


def test_a_name_that_is_not_utf_8_is_a_name(host, tmp_path):
    name = os.fsencode(tmp_path) + b"/caf\xe9"
    done = subprocess.run(
        [b"ssh", *map(os.fsencode, host.options), b"build", b"touch " + name],
        env=host.env,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0 and os.path.exists(name)


@requirement("ssh:sftp")
async def test_other_clients_make_links_as_with_openssh(unshared, tmp_path, monkeypatch):
    """The order of the two paths is that of OpenSSH, as whose like the server presents itself."""
    for name in ("CODEX_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.setenv(name, unshared.env[name])
    connecting = asyncssh.connect("build", config=[str(unshared.config)], known_hosts=None)
    async with asyncio.timeout(PATIENCE), connecting as connection:
        async with connection.start_sftp_client() as client:
            await client.symlink("to/nothing", str(tmp_path / "link"))
            with pytest.raises(asyncssh.SFTPFailure, match="absolute path"):
                await client.stat("/a\0b")
    assert os.readlink(tmp_path / "link") == "to/nothing"
