"""The modes that a program switches on in a terminal, and how the terminal here is restored."""

from __future__ import annotations

import itertools
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.cli.process.own_terminal.terminal_modes import TerminalModes
from tests.requirements import requirement
from tests.support import cli
from tests.support.cli import MakeTerminal
from tests.support.fault_proxy import fault_proxy

pytestmark = [pytest.mark.one_loop, pytest.mark.usefixtures("home")]

ON = (
    b"\x1b[?1049h\x1b[?1h\x1b=\x1b[?1002;1006h\x1b[?2004h\x1b[?25l"
    b"\x1b[>4;2m\x1b[>1u\x1b[2 q\x1b[31m"
)
# A program that switches modes on, and draws its screen when the size of its terminal changes.
EDITOR = (
    "stty -echo; trap 'echo drawn $(stty size)' WINCH; "
    r"printf '\033[?1049h\033[?1h\033=\033[?1002;1006h\033[?2004h\033[?25l'; "
    "echo ready; while :; do sleep 0.01; done"
)
RESTORED = (
    b"\x1b[?1l",
    b"\x1b>",
    b"\x1b[?1002l",
    b"\x1b[?1006l",
    b"\x1b[?2004l",
    b"\x1b[?25h",
    b"\x1b[?1049l",
)


def modes_after(*pieces: bytes) -> TerminalModes:
    modes = TerminalModes()
    for piece in pieces:
        modes.feed(piece)
    return modes


@requirement("cli/modes:restored")
def test_what_was_switched_on_is_switched_off():
    left = modes_after(b"text", ON, b"more").leave()
    for sequence in (*RESTORED, b"\x1b[<1u", b"\x1b[>4m", b"\x1b[0 q", b"\x1b[m"):
        assert sequence in left
    # The cursor that was saved on the main screen is restored last.
    assert left.endswith(b"\x1b[?1049l")


@requirement("cli/modes:restored")
@pytest.mark.parametrize(
    "data",
    [
        b"plain text\r\n",
        b"\x1b[?1049h\x1b[?1049l",
        b"\x1b[?25l\x1b[?25h\x1b[?7l\x1b[?7h",
        b"\x1b=\x1b>",
        b"\x1b[1;31mred\x1b[0m",
        b"\x1b[>1u\x1b[>3u\x1b[<2u",
        b"\x1b[3;10r\x1b[r",
        b"\x1b(0lqqk\x1b(B",
        b"\x1b[4h\x1b[4l",
        ON + b"\x1bc",
        b"\x1b[?12h\x1b[?99999999999999999999h\x1b[?h\x1b[;;h",
        b"\x1b]0;title\x07\x1bP+q544e\x1b\\",
    ],
)
def test_nothing_is_written_where_nothing_is_on(data):
    assert modes_after(data).leave() == b""
    assert modes_after(data).enter() == b""


@requirement("cli/modes:restored")
@given(cuts=st.lists(st.integers(0, len(ON)), max_size=8))
def test_any_split_of_the_output_gives_the_same_modes(cuts):
    places = [0, *sorted(cuts), len(ON)]
    pieces = [ON[a:b] for a, b in itertools.pairwise(places)]
    assert modes_after(*pieces).leave() == modes_after(ON).leave()
    assert modes_after(*pieces).enter() == modes_after(ON).enter()


@requirement("cli/modes:restored")
@given(data=st.binary(max_size=300))
def test_any_bytes_can_be_followed(data):
    modes = modes_after(data)
    assert modes_after(modes.enter()).enter() == modes.enter()
    assert modes_after(data, modes.leave()).leave() in (b"", b"\x1b[m")


@requirement("sharing/prompt:title")
@pytest.mark.parametrize(
    ("data", "pops"),
    [
        (b"plain", 0),
        (b"\x1b]0;title\x07", 1),
        (b"\x1b]2;title\x1b\\", 1),
        (b"\x1b[22;0t\x1b]2;a\x07\x1b[22;2t\x1b[23;2t", 2),
        (b"\x1b[22t\x1b]2;a\x07\x1b[23t", 1),
        (b"\x1b]8;;http://x/\x07\x1b]11;?\x07", 0),
    ],
)
def test_the_title_comes_back_from_the_stack(data, pops):
    assert modes_after(data).leave_title() == b"\x1b[23;0t" * pops
    assert modes_after(*(data[i : i + 1] for i in range(len(data)))).leave_title() == (
        b"\x1b[23;0t" * pops
    )


@requirement("sharing/prompt:title")
async def test_a_shell_that_sets_a_title_leaves_the_one_before(server, terminal: MakeTerminal):
    screen = terminal("shell", server.url, "--", "sh", "-c", r"printf '\033]0;mine\007'; exit 0")
    assert await screen.status() == 0
    places = [screen.all.index(each) for each in (b"\x1b[22;0t", b"\x1b]0;mine", b"\x1b[23;0t")]
    assert places == sorted(places)


@requirement("cli/modes:attach")
def test_the_same_modes_can_be_entered_again():
    entered = modes_after(ON).enter()
    assert entered.startswith(b"\x1b[?1049h")
    assert modes_after(entered).enter() == entered


@requirement("cli/modes:restored", "cli/modes:attach")
async def test_a_terminal_is_restored_after_detaching_and_drawn_after_attaching(
    server, terminal: MakeTerminal
):
    first = terminal("shell", server.url, "--", "sh", "-c", EDITOR)
    await first.until(b"ready\r\n")
    first.type(b"~d")
    await first.until(b"exec-server attach ")
    assert await first.status() == 0
    shown, _, _ = first.all.partition(b"detached; come back")
    after = shown[shown.index(b"ready") :]
    for sequence in RESTORED:
        assert sequence in after
    session_id = first.shown.strip().decode()

    for _ in range(2):
        # The size is the same as before: the screen is painted, and the program is left alone.
        again = terminal("attach", session_id)
        await again.until(b"\x1b[?1049h")
        await again.until(b"ready")
        await again.until(b"\x1b[?2004h")
        await again.until(b"\x1b[?25l")
        again.type(b"\r~d")
        assert await again.status() == 0
        assert b"\x1b[?1049l" in again.all[again.all.index(b"ready") :]
    larger = terminal("attach", session_id, rows=31)
    await larger.until(b"drawn 31 90\r\n")
    larger.type(b"\r~d")
    assert await larger.status() == 0
    assert (await cli.finished("kill", "-s", "KILL", session_id)).status == 0


@requirement("cli/modes:restored")
@pytest.mark.parametrize("how", ["~.", "SIGTERM", "killed"])
@pytest.mark.parametrize("words", [["shell"], ["run", "-t"]])
async def test_every_way_out_restores_the_modes(server, terminal: MakeTerminal, words, how):
    screen = terminal(*words, server.url, "--", "sh", "-c", f"echo $$; {EDITOR}")
    await screen.until(b"ready\r\n")
    if how == "~." and words == ["shell"]:
        screen.type(b"\r~.")
    elif how == "killed":
        [child] = next(iter(server.core._sessions.values())).processes._entries.values()
        child.signal(signal.SIGKILL)
    else:
        screen.process.send_signal(signal.SIGTERM)
    assert await screen.status() != 0
    for sequence in RESTORED:
        assert sequence in screen.all[screen.all.index(b"ready") :]


@requirement("cli/modes:restored")
async def test_a_lost_connection_restores_the_modes(server, terminal: MakeTerminal):
    async with fault_proxy(server.url) as proxy:
        screen = terminal("shell", proxy.url, "--", "sh", "-c", EDITOR)
        await screen.until(b"ready\r\n")
        proxy.is_down = True
        proxy.cut()
        await screen.until(b"[connection lost, reconnecting...]")
        screen.type(b"\r~.")
        assert await screen.status() == 129
    for sequence in RESTORED:
        assert sequence in screen.all[screen.all.index(b"lost") :]
