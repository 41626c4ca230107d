"""The helper that ends the input of a command leaves the command as it was asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from exec_server.client.process.framed_input import (
    EndlessInputProcess,
    FramedProcess,
    can_end_input,
    start_with_input,
    with_helper,
)
from exec_server.client.process.python_helper import INTERPRETERS
from exec_server.client_urls import connect
from exec_server.limits import Limits
from tests.requirements import requirement
from tests.support.fake_server import Talk, fake_server
from tests.support.wire import PATIENCE

MISSING = "No such file or directory (os error 2)"


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


async def refuse_helpers(talk: Talk, count: int) -> None:
    """The machine does not have the first *count* interpreters."""
    await talk.shake_hands()
    await talk.refuse(await talk.expect("environment/info"), -32601, "no")
    for interpreter in INTERPRETERS[:count]:
        start = await talk.expect("process/start")
        assert start["params"]["argv"][0] == interpreter
        await talk.refuse(start, -32603, MISSING)
        # What is missing, the program or its directory?
        about = await talk.expect("fs/getMetadata")
        facts = {"isDirectory": True, "isFile": False, "isSymlink": False, "size": 0}
        await talk.answer(about, {**facts, "createdAtMs": 0, "modifiedAtMs": 0})


@requirement("cli/run:stdin")
async def test_a_path_that_leads_to_no_python_is_no_obstacle() -> None:
    async def script(talk: Talk) -> None:
        await refuse_helpers(talk, 1)
        params = await talk.start()
        assert params["argv"][0] == INTERPRETERS[1] and params["env"] == {"PATH": ""}
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        process = await start_with_input(client, ["/bin/cat"], cwd="/", env={"PATH": ""})
        assert isinstance(process, FramedProcess)


@requirement("cli/run:endless-input")
async def test_a_command_does_not_wait_for_ever_for_an_end_that_it_cannot_be_told() -> None:
    async def script(talk: Talk) -> None:
        await refuse_helpers(talk, len(INTERPRETERS))
        process_id = (await talk.start())["processId"]
        await talk.output(process_id, 1, b"fine")
        ending = await talk.expect("process/terminate")
        await talk.answer(ending, {"running": True})
        await talk.event("process/exited", process_id, seq=2, exitCode=137)
        await talk.event("process/closed", process_id, seq=3)
        await talk.gone()

    limits = Limits(endless_input_seconds=0.01)
    async with fake_server(script) as url, connect(url, limits=limits) as client:
        process = await start_with_input(client, ["cat"], cwd="/")
        assert isinstance(process, EndlessInputProcess)
        assert not await can_end_input(client, process)
        assert (await anext(process)).data == b"fine"
        await process.close_stdin()
        assert process.why_ended is not None and "0.01 seconds" in process.why_ended
        assert await process.wait() == 137


@requirement("cli/run:endless-input")
async def test_a_command_that_ends_by_itself_is_left_alone() -> None:
    async def script(talk: Talk) -> None:
        await refuse_helpers(talk, len(INTERPRETERS))
        process_id = (await talk.start())["processId"]
        await talk.event("process/exited", process_id, seq=1, exitCode=0)
        await talk.event("process/closed", process_id, seq=2)
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        process = await start_with_input(client, ["true"], cwd="/")
        await process.close_stdin()
        assert isinstance(process, EndlessInputProcess) and process.why_ended is None
