"""Standard input and output beside the reference."""

from __future__ import annotations

import asyncio
import json
import tempfile
from typing import Any

import pytest

from tests.requirements import requirement
from tests.support.comparing import outcome
from tests.support.servers import OURS, reference_binary
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.one_loop

HELLO = b'{"id":0,"method":"initialize","params":{"clientName":"x"}}\n{"method":"initialized"}\n'

# Lines, and how many answers to wait for before the input ends.
CASES = {
    "one line": (b'{"id":1,"method":"environment/status"}\n', 1),
    "two lines": (b'{"id":1,"method":"x"}\n{"id":2,"method":"x"}\n', 2),
    "carriage return": (b'{"id":1,"method":"x"}\r\n', 1),
    "blank lines": (b'\n \t\n\r\n{"id":1,"method":"x"}\n\n', 1),
    "malformed": (b'hello\n{"id":1,"method":"x"}\n', 2),
    "two in a line": (b'{"id":1,"method":"x"}{"id":2,"method":"x"}\n{"id":3,"method":"x"}\n', 2),
    "header": (b'Content-Length: 5\n{"id":1,"method":"x"}\n', 2),
    "not UTF-8": (b'{"id":2,"method":"\xff"}\n{"id":3,"method":"x"}\n', 0),
    "unknown session": (
        b'{"id":1,"method":"initialize","params":{"clientName":"x","resumeSessionId":"y"}}\n',
        1,
    ),
    "byte-order mark": (b'\xef\xbb\xbf{"id":1,"method":"x"}\n', 1),
}


async def talk(command: list[str], lines: bytes, count: int) -> tuple[list[Any], int]:
    """Ids and outcomes of the answers, and the exit status once the input has ended."""
    process = await asyncio.create_subprocess_exec(
        *command,
        "--listen",
        "stdio",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            process.stdin.write(lines)
            answers = [json.loads(await process.stdout.readline()) for _ in range(count)]
            process.stdin.close()
            answers += map(json.loads, (await process.stdout.read()).splitlines())
            status = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return [(answer["id"], outcome(answer)) for answer in answers], status


@pytest.mark.parametrize("name", CASES)
@requirement("stdio:lines", "stdio:blank-lines", "stdio:malformed", "stdio:not-utf8")
async def test_lines_are_answered_alike(name):
    binary = reference_binary()
    if binary is None:
        pytest.skip("the reference could not be installed (npm is missing or has no network)")
    lines, count = CASES[name]
    if "environment" in lines.decode("latin-1"):
        lines, count = HELLO + lines, count + 1
    with tempfile.TemporaryDirectory() as home:
        reference = ["env", f"CODEX_HOME={home}", str(binary), "exec-server"]
        theirs = await talk(reference, lines, count)
    mine = await talk(OURS, lines, count)
    assert [request_id for request_id, _ in mine[0]] == [request_id for request_id, _ in theirs[0]]
    assert mine[1] == theirs[1] == 0
    for (_, my_outcome), (_, their_outcome) in zip(mine[0], theirs[0], strict=True):
        if not isinstance(my_outcome, dict) or "sessionId" not in my_outcome:
            assert my_outcome == their_outcome
