"""The screen of a durable process is exact after its server was killed."""

from __future__ import annotations

import sys

import pytest

import exec_server
from exec_server.process.durable.stored_screen import StoredScreen
from tests.requirements import requirement
from tests.support.durable import until

pytestmark = pytest.mark.one_loop

# For each line, it asks its terminal where the cursor is, and tells what it has heard.
_ASKS = r"""
import os, sys, termios, tty
tty.setcbreak(0, termios.TCSANOW)
mode = termios.tcgetattr(0); mode[3] &= ~termios.ECHO
termios.tcsetattr(0, termios.TCSANOW, mode)
sys.stdout.write("\x1b]0;asker\x07on the primary screen\r\n\x1b[?1049h\x1b[H\x1b[31mready\x1b[0m")
sys.stdout.flush()
heard = b""
while b"q" not in heard:
    got = os.read(0, 100)
    heard += got
    if b"a" in got:
        sys.stdout.write("\x1b[6n")
    if got.endswith(b"R"):
        sys.stdout.write(f"\x1b[2;1H{heard.count(b'R')} answers")
    if b"w" in got:
        # It asks while there is no server.
        while not os.path.exists(sys.argv[1]):
            import time; time.sleep(0.01)
        sys.stdout.write("\x1b[6n\x1b[3;1Hasked alone")
        open(sys.argv[1] + ".asked", "w").close()
    sys.stdout.flush()
sys.stdout.write("\x1b[?1049l"); sys.stdout.flush()
"""


@requirement("screen:restart")
async def test_a_screen_is_exact_after_kill_9(servers, tmp_path):
    alone = tmp_path / "alone"
    argv = [sys.executable, "-c", _ASKS, str(alone)]
    async with exec_server.connect(servers.url) as client:
        process = await client.start(argv, tty=True, screen=True, durable=True, rows=10, cols=40)
        await process.wait_for("ready")
        await process.resize(12, 50)
        await process.write(b"a")
        await process.wait_for("1 answers")
        await process.write(b"w")
        before = await process.screen(cells=True)
        token = client.session_token()
        servers.kill()
    alone.touch()
    await until((tmp_path / "alone.asked").exists)
    servers.start()
    async with exec_server.connect(servers.url, session_token=token) as client:
        process = await client.attach(process.process_id)
        # No question makes the model: it has to answer what was asked meanwhile by itself.
        async for chunk in process:
            if b"2 answers" in chunk.data:
                break
        after = await process.screen(cells=True)
        assert after.lines[:3] == ["ready", "2 answers", "asked alone"]
        assert (after.rows, after.columns, after.alternate) == (12, 50, True)
        assert (after.title, after.inexact) == ("asker", False)
        assert after.cells and before.cells and after.cells[0] == before.cells[0]
        assert after.version > before.version
        await process.write(b"q")
        await process.wait_for("on the primary screen")


def test_sizes_and_checkpoints_are_bounded(tmp_path):
    stored = StoredScreen(tmp_path)
    assert (stored.answered, stored.sizes(), stored.checkpoint()) == (0, ([], 0), None)
    stored.answered = 7
    for number in range(5000):
        stored.add_size((number, number % 100 + 1, 80))
    sizes, dropped = StoredScreen(tmp_path).sizes()
    assert (len(sizes), dropped + len(sizes), sizes[-1]) == (999, 5000, (4999, 100, 80))
    assert StoredScreen(tmp_path).answered == 7
    assert (tmp_path / "sizes").stat().st_size < 100_000
    stored.add_checkpoint(3, b"early", 1000)
    assert stored.checkpoint() is None
    stored.add_checkpoint(4, b"dump", 17 << 20)
    stored.add_checkpoint(5, b"too soon", 18 << 20)
    assert StoredScreen(tmp_path).checkpoint() == (4, b"dump")
    (tmp_path / "checkpoint").write_bytes(b"cut")
    (tmp_path / "sizes").write_bytes(b"cut")
    assert (stored.answered, stored.sizes(), stored.checkpoint()) == (0, ([], 0), None)


def test_a_damaged_file_is_no_more_than_a_lost_one(tmp_path):
    stored = StoredScreen(tmp_path)
    # A host of models, which all terminals share, takes no larger packet than a dump needs.
    (tmp_path / "checkpoint").write_bytes(bytes(8) + b"x" * (1 << 20))
    assert stored.checkpoint() is None
    (tmp_path / "sizes").write_bytes(b"\xff" * (16 + 5000 * 16))
    stored.add_size((1, 24, 80))
    assert stored.sizes()[0][-1] == (1, 24, 80)
