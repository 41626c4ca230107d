"""OpenSSH with a stanza of ours, for the tests of the ssh door."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import OURS

# Only turns a hang into a failure.
PATIENCE = 60


def needed(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


class SshHost:
    """The host `build`, which OpenSSH reaches by a stanza of ours."""

    def __init__(
        self,
        place: Path,
        url: str,
        *,
        hosts: tuple[str, ...] = ("build",),
        options: tuple[str, ...] = ("--linger", "0"),
    ) -> None:
        self.place = place
        self.config = place / "config"
        self.env = {
            **os.environ,
            "CODEX_HOME": str(place),
            "XDG_STATE_HOME": str(place / "state"),
            "HOME": str(place),
        }
        self.control = place / "c"
        self.name_server(url)
        stanza = self.ours("ssh-config", *options, *hosts).stdout
        self.config.write_bytes(stanza)

    def name_server(self, url: str) -> None:
        """Let the name `build` mean this server."""
        text = f'[[environments]]\nid = "build"\nurl = "{url}"\n'
        (self.place / "environments.toml").write_text(text)

    def ours(self, *words: str, status: int = 0) -> subprocess.CompletedProcess[bytes]:
        return self.call(*OURS, *words, status=status)

    def call(
        self, *words: str | Path, input: bytes = b"", status: int = 0, **env: str
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a program to its end, which has this exit status."""
        done = subprocess.run(
            words,
            input=input,
            capture_output=True,
            timeout=PATIENCE,
            env={**self.env, **env},
            check=False,
        )
        assert done.returncode == status, (
            done.returncode,
            done.stdout[-2000:],
            done.stderr[-2000:],
        )
        return done

    @property
    def options(self) -> list[str]:
        """The options of ssh, scp and sftp; they use the master if there is one."""
        return ["-F", str(self.config), "-o", f"ControlPath={self.control}"]

    @property
    def command(self) -> str:
        """The value of GIT_SSH_COMMAND and of rsync's -e."""
        return " ".join(["ssh", *self.options])

    def ssh(
        self, *words: str, input: bytes = b"", status: int = 0, **env: str
    ) -> subprocess.CompletedProcess[bytes]:
        return self.call("ssh", *self.options, *words, input=input, status=status, **env)

    def popen(self, *words: str, **rest: Any) -> subprocess.Popen[bytes]:
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, **rest}
        return subprocess.Popen(["ssh", *self.options, *words], env=self.env, **options)

    @contextlib.contextmanager
    def master(self) -> Iterator[None]:
        """One connection for all commands of the block."""
        # The local command runs when the socket for the others is there.
        ready = ("-o", "PermitLocalCommand=yes", "-o", "LocalCommand=echo ready")
        with self.popen("-M", "-N", "-o", "SendEnv=*", *ready, "build") as master:
            try:
                assert master.stdout is not None
                assert master.stdout.readline() == b"ready\n", "no connection"
                assert self.control.is_socket()
                yield
            finally:
                end_ssh(master)


def end_ssh(process: subprocess.Popen[bytes]) -> None:
    """Ask OpenSSH to end until it does: a signal just before its `poll` is noted, and not heard."""
    for _ in range(PATIENCE):
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
            return
    process.kill()
    raise AssertionError("ssh did not end")


@contextlib.contextmanager
def place_for_sockets() -> Iterator[Path]:
    """A directory whose path is short enough for the path of a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="door-") as made:
        yield Path(made)
