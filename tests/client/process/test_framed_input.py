"""The helper that ends the input of a command leaves the command as it was asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from exec_server.client.process.framed_input import with_helper
from tests.requirements import requirement
from tests.support.wire import PATIENCE


def framed(*parts: bytes) -> bytes:
    """The parts as the helper gets them, and the end."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in (*parts, b""))


def with_input(
    argv: list[str], data: bytes, *, cwd: Path, env: dict[str, str]
) -> subprocess.CompletedProcess[bytes]:
    env = {"PATH": os.environ["PATH"], **env}
    # A `python3` on the path may be a script that sets variables.
    words = [sys.executable, *with_helper(argv)[1:]]
    return subprocess.run(
        words, input=data, cwd=cwd, env=env, capture_output=True, timeout=PATIENCE, check=False
    )


@requirement("cli/run:stdin")
def test_modules_in_the_directory_of_the_command_and_its_variables_do_not_touch_the_helper(
    tmp_path: Path,
) -> None:
    for name in ("os", "select", "signal", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken over')\n")
    env = {"PYTHONHOME": "/nowhere", "PYTHONPATH": str(tmp_path)}
    done = with_input(["cat"], framed(b"one\n", b"two\n"), cwd=tmp_path, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"one\ntwo\n", b"")


@pytest.mark.skipif(sys.platform != "linux", reason="the environment is read from /proc")
@requirement("cli/run:stdin")
def test_the_command_has_the_environment_that_it_was_given(tmp_path: Path) -> None:
    done = with_input(["env", "-0"], framed(), cwd=tmp_path, env={"LC_CTYPE": "C", "A": "1\n=2"})
    assert sorted(done.stdout.rstrip(b"\0").split(b"\0")) == sorted(
        [b"A=1\n=2", b"LC_CTYPE=C", b"PATH=" + os.fsencode(os.environ["PATH"])]
    )
    assert b"LC_CTYPE" not in with_input(["env"], framed(), cwd=tmp_path, env={}).stdout


@requirement("cli/run:stdin")
def test_words_status_and_signal_are_those_of_the_command(tmp_path: Path) -> None:
    words = ["-c", "two\nlines", "", "--", "-I"]
    said = with_input(["printf", "%s|", *words], framed(), cwd=tmp_path, env={})
    assert said.stdout == "".join(f"{word}|" for word in words).encode()
    killed = with_input(["sh", "-c", "kill -TERM $$"], framed(), cwd=tmp_path, env={})
    assert killed.returncode == -15
    # Input that the command does not read is no error.
    early = with_input(["sh", "-c", "exit 7"], framed(b"x" * (1 << 20)), cwd=tmp_path, env={})
    assert early.returncode == 7
