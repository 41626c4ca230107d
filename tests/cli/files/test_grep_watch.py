"""`exec-server grep` and `watch`, as people and programs see them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from exec_server.files.agents import searches
from tests.cli.files.conftest import done, run
from tests.requirements import requirement
from tests.support.cli import finished
from tests.support.servers import OURS
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.one_loop


@pytest.fixture
def code(tmp_path: Path) -> Path:
    root = tmp_path / "code"
    (root / "sub").mkdir(parents=True)
    (root / "a.py").write_text("one\ntwo = 2\nthree\n")
    (root / "sub" / "b.txt").write_text("TWO\nand two\n")
    return root


@requirement("cli/files:grep")
async def test_grep_prints_as_rg_does(server, code):
    there = f"{server.url}:{code}"
    lines = (await done("grep", "two", there)).splitlines()
    assert sorted(lines) == [f"{code}/a.py:2:two = 2", f"{code}/sub/b.txt:2:and two"]
    around = await done("grep", "-C", "1", "-g", "*.py", "two", there)
    assert around == f"{code}/a.py-1-one\n{code}/a.py:2:two = 2\n{code}/a.py-3-three\n"
    counted = await done("grep", "-i", "-c", "two", there)
    assert sorted(counted.splitlines()) == [f"{code}/a.py:1", f"{code}/sub/b.txt:2"]
    assert await done("grep", "-l", "-F", "= 2", there) == f"{code}/a.py\n"
    assert await done("grep", "--names", r"\.txt$", there) == f"{code}/sub/b.txt\n"
    coloured = await done("grep", "--color", "always", "= 2", there)
    assert "\x1b[1;31m= 2\x1b[0m" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == f"{code}/a.py:2:two = 2\n"
    (hit,) = json.loads(await done("grep", "-o", "json", "one", there))
    assert hit == {
        "path": f"{code}/a.py",
        "text": "one",
        "line": 1,
        "ranges": [[0, 3]],
        "isContext": False,
    }


@requirement("cli/files:grep")
async def test_grep_accepts_the_options_that_people_type_out_of_habit(server, code):
    there = f"{server.url}:{code}"
    expected = f"{code}/a.py:2:two = 2\n"
    for words in (("-n",), ("-rn",), ("-Rin",), ("-rnwH",), ("-E",)):
        assert await done("grep", *words, "--include", "*.py", "two", there) == expected
    assert await done("grep", there, "-g*.py", "-e", "two") == expected
    two = await run("grep", "-e", "a", "-e", "b", there)
    assert two.status == 2 and "only one -e can be given; join patterns with |" in two.stderr
    for missing in ((), ("x",), ("-e", "x")):
        assert (await run("grep", *missing)).status == 2
    quiet = [await run("grep", "-q", word, there) for word in ("two", "not there")]
    assert [(each.status, each.stdout, each.stderr) for each in quiet] == [(0, "", ""), (1, "", "")]


@requirement("cli/files:grep")
async def test_grep_has_headings_and_colours_on_a_terminal(server, code):
    (code / "a.py").write_text("two \x1b[2J\n")
    ours, theirs = os.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            *OURS, "grep", "-g", "*.py", "two", f"{server.url}:{code}", stdout=theirs
        )
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 0
        printed = os.read(ours, 65536).decode().replace("\r\n", "\n")
    finally:
        os.close(ours)
        os.close(theirs)
    heading = f"\x1b[35m{code}/a.py\x1b[0m\n"
    assert printed == heading + "\x1b[32m1\x1b[0m:\x1b[1;31mtwo\x1b[0m ?[2J\n"


@requirement("cli/files:grep")
@pytest.mark.parametrize("options", [(), ("--color", "always")])
async def test_grep_prints_hits_while_the_search_goes_on(server, code, monkeypatch, options):
    gate, program = code / "gate", code / "rg"
    os.mkfifo(gate)
    begin = '{"type":"begin","data":{"path":{"text":"/x"}}}'
    match = '{"type":"match","data":{"path":{"text":"/x"},"lines":{"text":"hit"},"line_number":1}}'
    summary = '{"type":"summary","data":{"stats":{"searches":1}}}'
    program.write_text(
        f"#!/bin/sh\necho '{begin}\n{match}'\nread line < {gate}\necho '{summary}'\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(searches, "_ripgrep", lambda: [str(program)])
    process = await asyncio.create_subprocess_exec(
        *OURS, "grep", *options, "hit", f"{server.url}:{code}", stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            assert b"hit" in await process.stdout.readline()
            await asyncio.to_thread(gate.write_text, "go on\n")
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@requirement("cli/files:grep")
async def test_grep_loses_nothing_where_the_locale_has_no_such_characters(server, tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "café").write_text("one €\ntwo\n")
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = ("grep", ".", f"{server.url}:{tmp_path}/tree")
    for options in ((), ("-C1",)):
        found = await run(*words, *options, env={**os.environ, **ascii_only})
        assert (found.status, found.stderr) == (0, "")
        assert "caf" in found.stdout and "one €\n" in found.stdout and "two\n" in found.stdout


@requirement("cli/files:grep")
async def test_grep_has_the_statuses_of_grep(server, code):
    none = await run("grep", "not there", f"{server.url}:{code}")
    assert (none.status, none.stdout, none.stderr) == (1, "", "")
    wrong = await run("grep", "(", f"{server.url}:{code}")
    # The words of rg, or those of our own search.
    assert wrong.status == 2 and ("unclosed" in wrong.stderr or "unterminated" in wrong.stderr)
    assert "?" not in wrong.stderr and wrong.stderr.count("\n") == 1
    here = await run("grep", "x", str(code))
    assert here.status == 2 and "is not on a server" in here.stderr


@requirement("cli/files:watch")
async def test_watch_prints_changes_until_it_is_interrupted(server, code):
    process = await asyncio.create_subprocess_exec(
        *OURS,
        *("watch", "-o", "json", "-x", "*.tmp", f"{server.url}:{code}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE):
            while b"watching" not in await process.stderr.readline():
                pass
            (code / "x.tmp").write_text("x")
            (code / "new").mkdir()
            first = json.loads(await process.stdout.readline())
            assert first["seq"] >= 1
            assert {**first, "seq": 1} == {
                "kind": "created",
                "path": str(code / "new"),
                "type": "directory",
                "seq": 1,
            }
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@requirement("cli/files:watch")
async def test_watch_ends_after_a_number_of_changes(server, code):
    process = await asyncio.create_subprocess_exec(
        *OURS,
        *("watch", "-n", "1", f"{server.url}:{code}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE):
            while b"watching" not in await process.stderr.readline():
                pass
            (code / "new").mkdir()
            assert await process.stdout.read() == f"created  {code}/new\n".encode()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@requirement("cli/files:watch")
async def test_what_cannot_be_watched_is_named_as_it_was_written(server, tmp_path):
    done = await finished("watch", f"{server.url}:{tmp_path}/nope")
    assert done.status == 1
    assert done.stderr == f"Error: {server.url}:{tmp_path}/nope: No such file or directory\n"
