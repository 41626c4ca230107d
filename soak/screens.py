"""Wait for screens, apply changes, compare with other terminals: ``python soak/screens.py --help``.

The waits are of every kind, and each answer is checked: none may be stale, and none may be the echo
of what was typed. The changes since a version, applied to the screen of that version, have to give
the full screen. Recorded programs have to look the same on tmux and on xterm.js.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # A script finds its own folder on the path; the packages are found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import exec_server
from soak.compare_screens import compare

# A shell that marks its prompts: for each line it prints words, the line's number and the clock.
_SHELL = r"""
import sys, time
def prompt():
    sys.stdout.write("\x1b]133;A\x07$ \x1b]133;B\x07"); sys.stdout.flush()
prompt()
for number, line in enumerate(sys.stdin):
    # Each write is sent by itself: if the screen were cleared by another one, a wait could end
    # between the two.
    clear = "\x1b[H\x1b[2J" if "clear" in line else ""
    word = f"word {number} {time.perf_counter_ns()}"
    sys.stdout.write(f"\x1b]133;C\x07{clear}{word}\r\n\x1b]133;D;0\x07")
    prompt()
"""
_PIECES = (
    "plain words ", "\r\n", "\x1b[31mred\x1b[0m", "\x1b[H", "\x1b[K", "\x1b[2J", "\x1b[5;7H",
    "\x1b[3L", "\x1b[2M", "\x1b[4P", "漢字", "\x1b[?1049h", "\x1b[?1049l", "\x1b]2;title\x07",
    "\x1b[3;9r", "\x1b[r", "\x1bM", "\n\n\n", "\t", "\x1b[7m \x1b[m", "\x1b[?25l", "\x1b[?25h",
)  # fmt: skip


async def waits(client: exec_server.ExecServerClient, count: int, choose: random.Random) -> None:
    """Wait *count* times; raises AssertionError for an answer that is wrong."""
    took: list[float] = []
    argv = [sys.executable, "-u", "-c", _SHELL]
    async with await client.start(argv, tty=True, screen=True, rows=24, cols=80) as shell:
        reading = asyncio.create_task(_drain(shell))
        await shell.wait_for(prompt=True)
        for number in range(count):
            kind = choose.choice(("text", "regex", "gone", "prompt", "still"))
            # The pattern is typed as well: its echo must not count.
            line = f"clear word {number} 1" if kind == "gone" else f"word {number} 1"
            before = await shell.screen()
            await shell.write(f"{line}\n".encode())
            options: dict[str, dict[str, Any]] = {
                "text": {"text": f"word {number} "},
                "regex": {"regex": r"^word \d+ (\d+)$"},
                "gone": {"gone": f"word {number - 1} "},
                "prompt": {"prompt": True},
                "still": {"still": 0.005},
            }
            match = await shell.wait_for(**options[kind], after=before.version, timeout=60)
            now = time.perf_counter_ns()
            assert match.kind == kind, (number, match)
            if kind != "still":
                assert match.version > before.version, (number, match)
                shown = match.text if kind == "regex" else _row(await shell.screen(), number)
                words = (shown or "").split()
                assert words[:2] == ["word", str(number)], (number, kind, match, words)
                took.append((now - int(words[2])) / 1e6)
            else:
                await shell.wait_for(f"word {number} ", timeout=60)
        await shell.kill()
        await reading
    for _ in range(max(1, count // 100)):
        status = choose.randrange(100)
        ending = await client.start(["sh", "-c", f"exit {status}"], tty=True)
        ended = await ending.wait_for(exit=True, timeout=60)
        assert (ended.kind, ended.exit_code) == ("exit", status), ended
    took.sort()
    late = took[int(len(took) * 0.99)]
    print(
        f"{count} waits, none stale, none by an echo: p50 {statistics.median(took):.2f} ms, "
        f"p99 {late:.2f} ms after the deciding byte (load {os.getloadavg()[0]:.1f})",
        flush=True,
    )


def _row(screen: exec_server.Screen, number: int) -> str:
    return next((line for line in screen.lines if line.startswith(f"word {number} ")), "")


async def _drain(process: exec_server.RemoteProcess) -> None:
    async for _ in process:
        pass


async def steps(client: exec_server.ExecServerClient, count: int, choose: random.Random) -> None:
    """Print at random *count* times, and compare changes with full screens."""
    raw = ["sh", "-c", "stty raw -echo; echo ready; exec cat"]
    async with await client.start(raw, tty=True, screen=True, rows=12, cols=40) as process:
        reading = asyncio.create_task(_drain(process))
        await process.wait_for("ready")
        known = await process.screen(cells=True)
        for number in range(count):
            text = "".join(choose.choice(_PIECES) for _ in range(choose.randrange(1, 6)))
            await process.write(text.encode())
            if choose.random() < 0.02:
                await process.resize(choose.randrange(4, 20), choose.randrange(10, 60))
            # Some changes are taken together.
            if choose.random() < 0.7:
                known = await process.screen(cells=True, since=known)
                whole = await process.screen(cells=True)
                if whole.version != known.version:
                    known = await process.screen(cells=True, since=known)
                    whole = await process.screen(cells=True)
                if whole.version == known.version:
                    assert _facts(known) == _facts(whole), number
        await process.kill()
        await reading
    print(f"{count} steps: the changes give the full screen each time", flush=True)


def _facts(screen: exec_server.Screen) -> tuple[object, ...]:
    return screen.lines, screen.cells, screen.cursor, screen.title, screen.alternate


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waits", type=int, default=10_000, help="[default: %(default)s]")
    parser.add_argument("--steps", type=int, default=10_000, help="[default: %(default)s]")
    parser.add_argument("--programs", type=int, help="[default: all]")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="[default: the time]")
    options = parser.parse_args(words)
    print(f"seed {options.seed}", flush=True)
    choose = random.Random(options.seed)

    async def run() -> int:
        async with exec_server.local() as client:
            await waits(client, options.waits, choose)
            await steps(client, options.steps, choose)
        return await compare(options.programs)

    return 1 if asyncio.run(run()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
