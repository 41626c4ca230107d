"""`exec-server ssh`, called by hand, and by git, rsync, sftp and execnet."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from exec_server.cli.process.ssh_words import parse_ssh
from exec_server.errors import ConfigurationError
from tests.requirements import requirement
from tests.support.cli import finished
from tests.support.servers import OURS

pytestmark = pytest.mark.one_loop

SSH = shlex.join([*OURS, "ssh"])


def needed(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


@pytest.fixture
def build(server, tmp_path, monkeypatch) -> str:
    """The name of a server."""
    (tmp_path / "codex").mkdir()
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    configured = f'[[environments]]\nid = "build"\nurl = "{server.url}"\n'
    (tmp_path / "codex/environments.toml").write_text(configured)
    return "build"


async def check(*words: str | Path, **env: str) -> str:
    """Run a program to its end; its output, if it succeeds."""
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **env},
    )
    async with asyncio.timeout(30):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


@requirement("integrations/ssh:words", "integrations/ssh:options")
async def test_a_command_is_joined_for_the_shell(build):
    done = await finished(
        *("ssh", "-o", "BatchMode=yes", "-C", "-p", "22", "-lme", f"git@{build}", "-x", "--"),
        *("echo", "$HOME;", "cat; exit 7"),
        input=b"\x00in\xff",
    )
    assert done.status == 7
    assert done.stdout == os.environ["HOME"].encode() + b"\n\x00in\xff"


@requirement("integrations/ssh:255")
async def test_what_fails_before_the_command_is_255(build, tmp_path):
    assert (await finished("ssh", "-q", "ws://127.0.0.1:1", "true")).status == 255
    unknown = await finished("ssh", "nonesuch", "true")
    assert unknown.status == 255 and "nonesuch" in unknown.stderr
    assert (await finished("ssh", "-L", "1:h:2", build)).status == 255
    assert (await finished("ssh", "-T")).status == 255
    nothing = await finished("ssh")
    assert nothing.status == 255 and "see `exec-server ssh --help`" in nothing.stderr


@requirement("integrations/ssh:terminal")
async def test_a_terminal_is_there_if_it_is_forced(build):
    assert (await finished("ssh", "-tt", build, "test -t 0 && echo yes")).stdout == b"yes\r\n"
    assert (await finished("ssh", "-t", build, "test -t 0 || echo no")).stdout == b"no\n"


@requirement("integrations/ssh:options")
def test_the_options_of_openssh_are_understood():
    words = ["-tt", "-oSendEnv=GIT_*", "-o", "SetEnv A=b C=d", "-i", "key", "user@box", "ls", "-l"]
    found = parse_ssh(words)
    assert (found.server, found.command, found.terminals) == ("box", ["ls", "-l"], 2)
    assert found.variables({"GIT_X": "1", "HOME": "/"}) == {"GIT_X": "1", "A": "b", "C": "d"}
    assert parse_ssh(["ws://127.0.0.1:1", "-n", "true"]).has_input is False
    assert parse_ssh(["-Gp", "22", "box"]).asks_configuration
    for wrong in (["-f", "box"], ["-o"], ["-ZZ", "box"], ["-D1080", "box"], []):
        with pytest.raises(ConfigurationError):
            parse_ssh(wrong)


@requirement("integrations/ssh:git")
async def test_git_clones_and_pushes(build, tmp_path):
    needed("git")
    names = {
        f"GIT_{who}_{what}": f"{what.lower()}@example"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    env = {**names, "GIT_SSH_COMMAND": SSH, "GIT_CONFIG_GLOBAL": "/dev/null"}
    far, near = tmp_path / "far.git", tmp_path / "near"
    await check("git", "init", "-q", "--bare", far, **env)
    await check("git", "clone", "-q", f"{build}:{far}", near, **env)
    (near / "blob").write_bytes(os.urandom(1 << 20))
    await check("git", "-C", near, "add", ".", **env)
    await check("git", "-C", near, "commit", "-qm", "one", **env)
    await check("git", "-C", near, "push", "-q", "origin", "HEAD:main", **env)
    await check("git", "clone", "-q", "-b", "main", f"git@{build}:{far}", tmp_path / "b", **env)
    assert (tmp_path / "b/blob").read_bytes() == (near / "blob").read_bytes()


@requirement("integrations/ssh:rsync")
async def test_rsync_copies_there_and_back(build, tmp_path):
    needed("rsync")
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub/blob").write_bytes(os.urandom(1 << 20))
    (source / "link").symlink_to("sub/blob")
    await check("rsync", "-a", "-e", SSH, f"{source}/", f"{build}:{tmp_path}/there/")
    await check("rsync", "-a", "-e", SSH, f"{build}:{tmp_path}/there/", tmp_path / "back")
    blob = (tmp_path / "back/sub/blob").read_bytes()
    assert blob == (source / "sub/blob").read_bytes()
    assert (tmp_path / "back/link").readlink() == Path("sub/blob")


@pytest.fixture
def program(tmp_path) -> Path:
    """The command as one program, for callers that take no arguments with it."""
    path: Path = tmp_path / "bin/ssh"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {SSH} "$@"\n')
    path.chmod(0o755)
    return path


@requirement("integrations/ssh:sftp")
async def test_sftp_works_where_there_is_a_server_for_it(build, program, tmp_path):
    needed("sftp")
    if not any(Path(d, "sftp-server").exists() for d in ("/usr/lib/openssh", "/usr/lib/ssh")):
        pytest.skip("there is no sftp-server on this machine")
    (tmp_path / "a").write_text("content")
    (tmp_path / "batch").write_text(f"put {tmp_path}/a {tmp_path}/b\n")
    await check("sftp", "-b", tmp_path / "batch", "-S", program, build)
    assert (tmp_path / "b").read_text() == "content"


@requirement("integrations/ssh:execnet")
async def test_execnet_starts_a_gateway(build, program):
    execnet = pytest.importorskip("execnet")
    path = f"{program.parent}:{os.environ['PATH']}"

    def use() -> int:
        group = execnet.Group()
        try:
            gateway = group.makegateway(f"ssh={build}//python=python3")
            channel = gateway.remote_exec("channel.send(channel.receive() + 1)")
            channel.send(41)
            return int(channel.receive(20))
        finally:
            group.terminate(timeout=5)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", path)
        assert await asyncio.to_thread(use) == 42
