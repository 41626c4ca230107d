"""The examples run, and say what they promise."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from tests.requirements import requirement
from tests.support.servers import ROOT

pytestmark = pytest.mark.one_loop

EXAMPLES = ROOT / "examples"


async def run_example(name: str, *arguments: str) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / name),
        *arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode().splitlines()


# What each of them prints when it is given a server alone.
PRINTED = {
    "quickstart.py": [
        "the server runs Linux",
        "stdout: who is there?",
        "stderr: hello world",
        "it ended with 3",
    ],
    "first_command.py": [
        r"stdout: b'out\n'",
        r"stderr: b'err\n'",
        "status: 3",
        "failed: 2 and said True",
    ],
    "expect.py": ["status: 0 output: 42", "rows in use: True"],
    "streaming.py": ["line 1", "line 2", "line 3", "status 0", "ping", "pong", "status 0"],
    "interactive_pty.py": ["size: True", "after resize: True", "interrupted", "status: 7"],
    "reconnect.py": [
        "first: connected",
        r"first: b'1\n'",
        r"first: b'2\n'",
        "first: closed",
        r"second: b'3\n'",
        r"second: b'4\n'",
        "second: status 0",
        "may have run: False worth a retry: True",
    ],
    "synchronous.py": [
        "Linux",
        "counted [b'1', b'2', b'3']",
        "note-of-the-synchronous-example says hello",
        "one two three",
    ],
    "timeout.py": [
        r"too slow, but said b'so far\n'",
        "still running: True",
        "killed: True 137",
    ],
    "prompts_and_errors.py": [
        "'name? '",
        "hello Ada",
        "up - left something behind: True",
        "1",
        "2",
        "[... 3885 bytes of output are missing here ...]",
        "000",
        "",
        "ended by SIGTERM",
        "missing: /no/such/file",
        "missing program no-such-program",
        "missing cwd /no/such/folder",
    ],
}
# Those that take more, and have a test of their own below.
OTHERS = {
    "embedded_server.py",
    "copy_tree.py",
    "upload_build_download.py",
    "several_environments.py",
}


@requirement("embedding:examples")
@pytest.mark.parametrize("name", PRINTED)
async def test_an_example_prints_what_it_promises(server, name):
    assert await run_example(name, server.url) == PRINTED[name]


@requirement("embedding:examples")
async def test_the_embedded_server_runs():
    printed = await run_example("embedded_server.py")
    assert printed == ["apple", "pear", "sleep took longer than 0.1 seconds"]


@requirement("embedding:examples")
async def test_a_tree_is_copied(server, tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    there, *back = await run_example("copy_tree.py", server.url, str(tmp_path))
    assert there.startswith("1 files, 7 bytes went to /tmp/copy-of-")
    assert back == ["1 files came back the same"]


@requirement("embedding:examples")
async def test_a_folder_is_built_elsewhere(server, tmp_path):
    (tmp_path / "source").write_text("hello")
    command = ["sh", "-c", "echo building; tr a-z A-Z < source > result", "result"]
    printed = await run_example("upload_build_download.py", server.url, str(tmp_path), *command)
    assert printed == ["sent 1 files", "building", "fetched 5 bytes"]
    assert (tmp_path / "result").read_text() == "HELLO"


@requirement("embedding:examples")
async def test_several_environments_greet(server, tmp_path):
    (tmp_path / "environments.toml").write_text(
        f'[[environments]]\nid = "box"\nurl = "{server.url}"\n'
        f'[[environments]]\nid = "child"\nprogram = "{sys.executable}"\n'
        'args = ["-m", "exec_server", "--listen", "stdio"]\n'
    )
    assert await run_example("several_environments.py", str(tmp_path)) == [
        "local: local (default)",
        "box: websocket",
        "child: program",
        "local says hello",
        "box says hello",
        "child says hello",
        "local is ready",
        "box is ready",
        "child is ready",
    ]


@requirement("embedding:examples")
def test_every_example_has_a_test_and_is_short():
    paths = sorted(EXAMPLES.glob("*.py"))
    assert {path.name for path in paths} == {*PRINTED, *OTHERS}
    assert all(20 <= len(path.read_text().splitlines()) <= 60 for path in paths)
