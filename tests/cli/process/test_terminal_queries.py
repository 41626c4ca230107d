"""Queries that a program has sent to its terminal are not repeated to the terminal of `attach`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.cli.process.own_terminal.terminal_queries import TerminalQueries
from tests.requirements import requirement
from tests.support import cli
from tests.support.cli import MakeTerminal

pytestmark = [pytest.mark.one_loop, pytest.mark.usefixtures("home")]

QUERIES = [
    b"\x05",
    b"\x1bZ",
    b"\x1b[c",
    b"\x1b[0c",
    b"\x1b[>c",
    b"\x1b[>0c",
    b"\x1b[=c",
    b"\x1b[5n",
    b"\x1b[6n",
    b"\x1b[?6n",
    b"\x1b[?996n",
    b"\x1b[x",
    b"\x1b[1x",
    b"\x1b[?2026$p",
    b"\x1b[4$p",
    b"\x1b[1$w",
    b"\x1b[>q",
    b"\x1b[>0q",
    b"\x1b[?u",
    b"\x1b[?4m",
    b"\x1b[14t",
    b"\x1b[18t",
    b"\x1b[21t",
    b"\x1b[14;2t",
    b"\x1b[?1;1;0S",
    b"\x1b]10;?\x07",
    b"\x1b]11;?\x1b\\",
    b"\x1b]4;1;?\x07",
    b"\x1b]52;c;?\x07",
    b"\x1bP$qm\x1b\\",
    b"\x1bP+q544e\x1b\\",
    b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\",
]
OTHERS = [
    b"text",
    b"\x1b[m",
    b"\x1b[31;1m",
    b"\x1b[>4;2m",
    b"\x1b[?25h",
    b"\x1b[>4n",
    b"\x1b[2 q",
    b"\x1b[>1u",
    b"\x1b[<u",
    b"\x1b[u",
    b"\x1b[22;0t",
    b"\x1b[8;24;80t",
    b"\x1b[3S",
    b"\x1b[!p",
    b"\x1b]0;what?\x07",
    b"\x1b]8;;https://example.net/?\x1b\\",
    b"\x1b]11;#000000\x07",
    b"\x1b]52;c;aGk=\x07",
    b"\x1bP1$r0m\x1b\\",
    b"\x1b7",
    b"\x1b",
    b"\x1b[",
    b"\x1b]10;" + b"x" * 5000,
]
ASKS = (
    r"stty -echo; printf 'old\033[6n\033[c\n'; read key; "
    r"printf 'new\033[6n\n'; while :; do sleep 0.01; done"
)


def shown(*pieces: bytes) -> bytes:
    queries = TerminalQueries()
    return b"".join(map(queries.remove, pieces)) + queries.rest()


@requirement("cli/queries:old")
@pytest.mark.parametrize("query", QUERIES)
def test_a_query_is_left_out(query):
    assert shown(b"before" + query + b"after") == b"beforeafter"


@requirement("cli/queries:old")
@pytest.mark.parametrize("data", OTHERS)
def test_everything_else_is_shown(data):
    assert shown(data) == data
    assert shown(b"a\r\n" + data + b"\x1b[mb") == b"a\r\n" + data + b"\x1b[mb"


@requirement("cli/queries:old")
@pytest.mark.parametrize(
    ("data", "left"),
    [
        (b"\x1b\x1b[6n[6n", b"[6n"),
        (b"\x1b[\x1b[6n6n", b"6n"),
        (b"\x1b]1\x1b[6n1;?\x07", b"1;?\x07"),
        (b"\x1b\x1b[\x1b]0;\x1b[\x1b[6n6n", b"6n"),
        (b"\x1b[6\nn", b"\n"),
        (b"\x1b\r\n[\r6n", b"\r\n\r"),
        (b"\x1b[3\n1m", b"\n\x1b[31m"),
    ],
)
def test_no_query_is_hidden_or_made_of_parts(data, left):
    assert shown(data) == left
    for cut in range(len(data)):
        assert shown(data[:cut], data[cut:]) == left


@requirement("cli/queries:old")
@given(st.lists(st.sampled_from(QUERIES + OTHERS[:-3])), st.data())
def test_any_split_gives_the_same(parts, data):
    whole = b"".join(parts)
    cut = data.draw(st.integers(0, len(whole)))
    assert shown(whole) == b"".join(part for part in parts if part not in QUERIES)
    assert shown(whole[:cut], whole[cut:]) == shown(whole)


@requirement("cli/queries:old")
async def test_logs_and_attach_leave_old_queries_out(server, terminal: MakeTerminal):
    started = await cli.finished("run", "--detach", "--tty", server.url, "--", "sh", "-c", ASKS)
    session_id = started.stdout.decode().strip()
    logs = terminal("logs", "-f", session_id)
    # The terminal here is not raw, and adds a carriage return.
    await logs.until(b"old\r\r\n")
    logs.type(b"\x03")
    assert await logs.status() == 130
    printed = terminal("logs", session_id)
    assert await printed.status() == 0
    assert printed.all == b"old\r\r\n"
    # A file gets the exact output.
    assert (await cli.finished("logs", session_id)).stdout == b"old\x1b[6n\x1b[c\r\n"

    again = terminal("attach", session_id)
    # The screen is painted without queries, and what follows is shown as it is.
    await again.until(b"old\x1b[0m")
    assert b"\x1b[6n" not in again.all
    again.type(b"key\r")
    await again.until(b"new\x1b[6n\r\n")
    again.type(b"\r~d")
    assert await again.status() == 0
    assert (await cli.finished("kill", "-s", "KILL", session_id)).status == 0
