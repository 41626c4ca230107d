"""Processes on a terminal beside the reference."""

from __future__ import annotations

import base64

import pytest

from tests.requirements import requirement
from tests.support.comparing import ask, finished, ran, try_start

pytestmark = pytest.mark.one_loop

CATCHES = "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.01; done"


@pytest.mark.parametrize(
    "argv",
    [
        ["stty", "size"],
        ["stty", "-a"],
        ["sh", "-c", "tty | sed 's/[0-9]*$//'; test -t 0 -a -t 1 -a -t 2; echo $?"],
        ["sh", "-c", "echo out; echo err >&2; printf 'no end'"],
        ["sh", "-c", "ls /proc/self/fd | tr '\\n' ' '"],
        ["sh", "-c", "ps -o pgid= -o sid= -o tpgid= -p $$ | tr -d ' ' | sed s/$$/me/g"],
        ["sh", "-c", "grep ^SigBlk /proc/self/status"],
        ["sh", "-c", "env | grep -v ^PWD= | grep -v ^_= | sort"],
        ["sh", "-c", "printf 'a\\tb\\r\\n\\033[1mx'"],
    ],
    ids=lambda argv: " ".join(argv)[:50],
)
@requirement(
    "process/start:terminal", "process/start:terminal-settings", "process/start.env:tty-shell"
)
async def test_a_terminal_is_the_same(both, argv):
    async def conversation(wire):
        return await ran(wire, argv, tty=True)

    said = await both.agree(conversation)
    assert said["exitCode"] == 0


@pytest.mark.parametrize(
    ("argv", "typed"),
    [
        (["sh", "-c", "read x; echo got:$x"], b"hey\n"),
        (["sh", "-c", "read x; echo got:$x"], b"hey\r"),
        (["sh", "-c", "read x; echo got:$x"], b"a\x7fb\n"),
        (["sh", "-c", "stty -echo; echo ready; cat"], b"abc\n\x04"),
        (["sh", "-c", CATCHES], b"\x03"),
        (["cat"], b"\x04"),
        (["cat"], b"abc\n\x04"),
        (["cat"], b"abc\x04\x04"),
        (["cat"], b"\x03"),
    ],
)
@requirement("process/start:terminal-input", "process/start:terminal-keys")
async def test_what_is_typed_does_the_same(both, argv, typed):
    async def conversation(wire):
        await try_start(wire, "p", argv, tty=True)
        if "ready" in argv[-1]:
            await wire.output_until("p", b"ready\r\n")
        params = {"processId": "p", "chunk": base64.b64encode(typed).decode(), "writeId": "1"}
        status = await ask(wire, "process/write", params)
        exited = await wire.event("p", "process/exited")
        page = await ask(wire, "process/read", {"processId": "p", "afterSeq": 0})
        said = b"".join(base64.b64decode(chunk["chunk"]) for chunk in page["chunks"])
        return status, exited["exitCode"], said

    await both.agree(conversation)


# What section 22 leaves free: ours does the same as on pipes.


@pytest.mark.parametrize(
    ("params", "theirs", "mine"),
    [
        # The reference starts in the home directory instead.
        ({"argv": ["true"], "cwd": "file:///no/such"}, 0, -32603),
        ({"argv": ["true"], "cwd": "file:///etc/passwd"}, 0, -32603),
        # The reference runs `arg0` as the program.
        ({"argv": ["sh", "-c", "exit 4"], "arg0": "true"}, 0, 4),
        ({"argv": ["sh", "-c", "exit 4"], "arg0": "no-such-program"}, -32603, 4),
        # The reference has no default PATH here, and looks up names with a slash in PATH.
        ({"argv": ["true"], "env": {}}, -32603, 0),
        ({"argv": ["bin/true"], "cwd": "file:///usr"}, -32603, 0),
        # The reference finds out too late.
        ({"argv": ["true", "x" * 200_000]}, 1, -32603),
    ],
    ids=["missing cwd", "file as cwd", "arg0", "missing arg0", "no PATH", "slash", "long argument"],
)
@requirement("oddity:terminal-cwd", "oddity:terminal-arg0", "oddity:terminal-lookup")
async def test_oddities_of_the_reference_that_are_not_ours(both, params, theirs, mine):
    async def conversation(wire):
        started = await try_start(wire, "p", **params, tty=True)
        return started if isinstance(started, int) else (await finished(wire, "p"))["exitCode"]

    assert await both.hear(conversation) == (theirs, mine)


@pytest.mark.parametrize(
    "params",
    [
        {"argv": ["/no/such"]},
        {"argv": ["no-such-program"]},
        {"argv": ["/etc/passwd"]},
        {"argv": [""]},
        {"argv": ["true", "a\0b"]},
        {"argv": ["./bin/true"], "cwd": "file:///usr"},
        {"argv": ["/bin/true"], "env": {}},
    ],
)
@requirement("process/start:spawn-failure")
async def test_the_rest_of_the_lookup_is_the_same(both, params):
    async def conversation(wire):
        started = await try_start(wire, "p", **params, tty=True)
        return started if isinstance(started, int) else (await finished(wire, "p"))["exitCode"]

    await both.agree(conversation)
