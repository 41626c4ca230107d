"""`exec-server screen`: what a terminal shows, as text, JSON and pictures."""

from __future__ import annotations

import json

import pytest

import exec_server
from tests.requirements import requirement
from tests.support.cli import finished

pytestmark = [pytest.mark.one_loop, pytest.mark.usefixtures("home")]

SCRIPT = r"printf '\033]2;title\007one\n\033[31mtwo\033[0m'; read line"


@requirement("cli/screen:prints")
async def test_a_screen_is_printed_and_drawn_beside_the_one_who_follows(server, tmp_path):
    async with exec_server.connect(server.url) as agent:
        command = ["sh", "-c", SCRIPT]
        process = await agent.start(command, tty=True, name="work", rows=5, cols=20)
        await process.wait_for("two")
        printed = await finished("screen", server.url, "work")
        assert (printed.status, printed.stdout, printed.stderr) == (0, b"one\ntwo\n", "")
        facts = json.loads((await finished("screen", "-o", "json", server.url, "work")).stdout)
        assert facts["lines"] == ["one", "two", "", "", ""]
        assert (facts["rows"], facts["columns"], facts["title"]) == (5, 20, "title")
        assert facts["cursor"] == {"row": 1, "column": 3, "visible": True}
        picture = tmp_path / "work.svg"
        drawn = await finished("screen", "--svg", str(picture), server.url, "work")
        assert (drawn.status, drawn.stdout) == (0, b"")
        assert picture.read_text().startswith("<svg")
        # The process goes on, and its own client still drives.
        await process.write(b"\n")
        assert await process.wait() == 0


@requirement("cli/screen:prints")
async def test_what_cannot_be_shown_is_refused(server):
    words = ("run", "--detach", "--name", "pipes", server.url, "--", "sleep", "1000")
    assert (await finished(*words)).status == 0
    for options, status, text in (
        ([], 1, "has no terminal"),
        (["--svg", "x.txt"], 2, "has to end with .svg"),
        (["--history", "10001"], 2, "at most 10000 rows"),
    ):
        done = await finished("screen", *options, "pipes")
        assert done.status == status and text in done.stderr
    assert (await finished("kill", "-s", "KILL", "pipes")).status == 0
