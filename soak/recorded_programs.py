"""Programs whose output is recorded, key by key, for comparisons of terminals."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import exec_server
from soak.more_programs import further

COLUMNS, ROWS = 80, 24
_TEXT = "/usr/share/common-licenses/GPL-3"
_STILL_SECONDS = 0.15
_HERE = Path(__file__).resolve().parent.parent
_DIALOGS = (
    ["--yesno", "Go on?", "8", "40"],
    ["--msgbox", "A message of some words", "8", "40"],
    ["--inputbox", "Your name", "10", "40", "ann"],
    ["--menu", "Choose", "14", "40", "4", "a", "first", "b", "second", "c", "third"],
    ["--checklist", "Choose", "14", "40", "4", "a", "first", "on", "b", "second", "off"],
    ["--radiolist", "Choose", "14", "40", "4", "a", "first", "on", "b", "second", "off"],
    ["--calendar", "A day", "3", "40", "1", "2", "2026"],
    ["--timebox", "A time", "3", "40", "1", "2", "3"],
    ["--textbox", _TEXT, "20", "70"],
    ["--passwordbox", "Secret", "10", "40"],
    ["--gauge", "Progress", "8", "40", "40"],
)


@dataclass(frozen=True)
class Program:
    """A command line, and the keys that are typed, one step after another."""

    argv: list[str]
    steps: tuple[tuple[str, ...], ...] = ()

    @property
    def name(self) -> str:
        return " ".join(self.argv)[:60]


@dataclass(frozen=True)
class Recording:
    """What a program has printed, and where each step ended."""

    program: Program
    data: bytes
    ends: list[int]


def programs(folder: Path) -> list[Program]:
    """Those that this machine has; files that they need are made in *folder*."""
    wide = folder / "wide.txt"
    wide.write_text("漢字かな交じり文 emoji 🙂 and naïve café e\u0301 → ┌──┐\n" * 40)
    text = _TEXT if Path(_TEXT).exists() else str(wide)
    shell = ("ls -la --color=always /", "enter"), ("echo $((6*7)); false", "enter")
    editing = ("abc def", "left", "left", "X"), ("ctrl-a", "#"), ("enter",), ("up",), ("ctrl-c",)
    found = [
        Program(["ls", "-la", "--color=always", "/usr/bin"]),
        Program(["ls", "-C", "--color=always", "/etc"]),
        Program(["git", "--no-pager", "log", "--color=always", "-n", "30", "--stat"]),
        Program(["git", "--no-pager", "log", "--color=always", "--graph", "--oneline", "-n", "40"]),
        Program(["git", "--no-pager", "diff", "--color=always", "HEAD~3", "HEAD", "--", "*.md"]),
        Program(["git", "log", "-p", "-n", "5"], (("space",), ("space",), ("G",), ("b",), ("q",))),
        Program(["cat", str(wide)]),
        Program(["bash", "--norc", "--noprofile"], (*shell, *editing)),
        Program(["zsh", "-f"], (*shell, *editing)),
        Program(["fish", "--no-config"], (*shell, *editing)),
        Program(["python3", "-q"], (("1+1", "enter"), ("help()", "enter"), ("quit", "enter"))),
        Program(["top", "-d", "1000"], (("1",), ("m",), ("t",), ("h",), ("q",), ("q",))),
        Program(["htop", "-d", "100"], (("down", "down"), ("f1",), ("escape",), ("f6",))),
        Program(
            ["less", text], (("space",), ("/warranty", "enter"), ("n",), ("G",), ("g",), ("h",))
        ),
        Program(["less", str(wide)], (("down", "down"), ("space",), ("-S", "enter"), ("right",))),
        Program(["man", "bash"], (("space",), ("/PROMPT", "enter"), ("n",), ("G",))),
        Program(["man", "ls"], (("space",), ("b",))),
        Program(
            ["vim", "-n", "-u", "NONE", "-N", text],
            (
                ("ctrl-f",),
                (":set number", "enter"),
                (":split", "enter"),
                ("dd", "p"),
                ("ggVGd",),
                ("u",),
            ),
        ),
        Program(
            ["vim", "-n", "-u", "NONE", "-N", "--cmd", "syntax on", __file__],
            (("j" * 10,), ("o", "a new line", "escape"), (":vsplit", "enter"), (":help", "enter")),
        ),
        Program(
            ["vim", "-n", "-u", "NONE", "-N", str(wide)],
            (("G",), ("x", "x"), ("gg", "O", "漢", "escape")),
        ),
        Program(
            ["nano", "-I", text],
            (("hello", "enter"), ("ctrl-w", "the", "enter"), ("pagedown",), ("ctrl-g",)),
        ),
        Program(
            ["mc", "-u", "/", "/usr"],
            (("down", "down"), ("tab",), ("f1",), ("escape", "escape"), ("f9",)),
        ),
        Program(["ncdu", "-x", str(folder)], (("down",), ("?",), ("q",))),
        Program(["watch", "-t", "-n", "100", "ls", "-la", "/etc"]),
        *(Program(["dialog", *words], (("tab",), ("down",), ("left",))) for words in _DIALOGS),
        *(Program(["vttest"], _vttest(menu)) for menu in ("1", "2", "3", "6")),
        *(Program(["tput", *words]) for words in (["clear"], ["cup", "5", "5"], ["smacs"])),
        *(Program(["sh", "-c", script]) for script in _SCRIPTS),
        *_codex(),
        *(
            Program(argv, tuple(map(tuple, steps)))
            for argv, steps in further(folder, text, str(wide))
        ),
    ]
    return [each for each in found if shutil.which(each.argv[0])]


def _codex() -> list[Program]:
    """The Codex CLI, if `make reference` has installed it; without a network, and not signed in."""
    path = _HERE / ".reference/node_modules/.bin/codex"
    alone = ["unshare", "--map-root-user", "--net", str(path)]
    return [Program(alone, (("down",), ("down",), ("ctrl-c",)))] if path.exists() else []


def _vttest(menu: str) -> tuple[tuple[str, ...], ...]:
    """Open a menu, and go through its pages."""
    pages = 14 if menu in "12" else 6
    return ((menu, "enter"), *([("enter",)] * pages))


# What the programs above rarely do.
_SCRIPTS = (
    r"printf 'a\tb\tc\r\n\033[3g\033[10C\033H\r\tx\r\n'",
    r"printf '\033[5;10r\033[5;1H'; seq 1 20; printf '\033[r'",
    r"printf '\033[?6h\033[3;8r\033[1;1Hhere\033[?6l\033[r'",
    r"printf 'one two three\033[5D\033[2P\033[3@\033[4X'; echo",
    r"seq 1 30; printf '\033[5;1H\033[3L\033[10;1H\033[2M'",
    r"printf '\033(0lqqqk\r\nx   x\r\nmqqqj\033(B\r\n'",
    r"printf '\033[?7l'; seq -s' ' 1 60; printf '\033[?7h'; seq -s' ' 1 60",
    r"printf '\033[4hinsert\033[3D___\033[4l\r\n'",
    r"printf '\033[?1049hinside\033[?1049loutside\r\n'",
    r"printf '\033#8'; printf '\033[5;5H\033[1J'",
    r"seq 1 40; printf '\033[10;1H\033M\033M\033D\033E'",
    r"printf '\033[38;5;200mpink\033[48;2;1;2;3mrgb\033[0m\033[7mreverse\033[m\r\n'",
    r"printf 'x\033[5b\r\n\033[10;10Habs\033[3Gcol\033[7drow'",
    r"printf '\033[?5h\033[?5l\033[!p\033c after a reset'",
    r"printf '\033[2;20Hsave\0337\033[10;1Hmoved\0338restored'",
    r"seq -s, 1 300; printf '\r\033[2Kgone'",
    r"printf '%79s|' x; printf 'wrapped\r\n%80s' y; printf 'z\r\n'",
    r"printf '漢字%75s漢字\r\n' x; printf '🙂🙂\b\bX\r\n'",
    r"printf '\033[?69h\033[10;40s\033[5;20Hmargins that wrap at the right one\033[?69l'",
    r"printf '\033[3S'; seq 1 25; printf '\033[2T\033[4S'",
)


async def record(client: exec_server.ExecServerClient, program: Program) -> Recording:
    """Run a program with our model as its terminal; it is ended after its last step."""
    with tempfile.TemporaryDirectory(prefix="screens-") as home:
        return await _record_in(client, program, home)


async def _record_in(
    client: exec_server.ExecServerClient, program: Program, home: str
) -> Recording:
    env = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "HOME": home, "PS1": "$ "}
    env |= {"HISTFILE": "", "LESSHISTFILE": "-"}
    data, ends = bytearray(), []
    starting = client.start(
        program.argv, tty=True, screen=True, rows=ROWS, cols=COLUMNS, env=env, cwd=str(_HERE)
    )
    async with await starting as process:
        reading = asyncio.create_task(_read(process, data))
        for keys in ((), *program.steps):
            if keys:
                await process.send_keys(*keys)
            done = await process.wait_for(exit=True, still=_STILL_SECONDS, timeout=20)
            # What was printed before the answer has come before it, and is about to be read.
            for _ in range(5):
                await asyncio.sleep(0)
            ends.append(len(data))
            if done.kind == "exit":
                break
        await process.kill()
        await reading
    return Recording(program, bytes(data), ends)


async def _read(process: exec_server.RemoteProcess, data: bytearray) -> None:
    async for chunk in process:
        data += chunk.data
