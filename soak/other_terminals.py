"""Other terminals without a window, for comparisons: tmux, and xterm.js in Node.js."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

_HERE = Path(__file__).resolve().parent
_NPM = _HERE.parent / "build" / "xterm"
_PACKAGES = ("@xterm/headless@6", "@xterm/addon-unicode11@0.9")
_SECONDS = 60.0


class ShownScreen(NamedTuple):
    lines: list[str]
    # Row and column, counted from 0.
    cursor: tuple[int, int]


class OtherTerminal(Protocol):
    def feed(self, data: bytes) -> ShownScreen:
        """Show *data*, which ends between two sequences."""


class Tmux:
    """A window of a tmux server of its own, in which `cat` prints what it is fed with."""

    def __init__(self, folder: Path, columns: int, rows: int) -> None:
        self._socket = folder / "tmux"
        self._pipe = folder / "pipe"
        self._syncs = 0
        os.mkfifo(self._pipe)
        command = f"stty raw -echo; exec cat {self._pipe}"
        size = ("-x", str(columns), "-y", str(rows))
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, command)
        self._tmux("set-option", "-g", "status", "off")
        self._tmux("set-option", "-g", "allow-rename", "off")
        self._tmux("resize-window", *size)
        self._write = open(self._pipe, "wb", buffering=0)

    def feed(self, data: bytes) -> ShownScreen:
        self._syncs += 1
        title = f"sync-{self._syncs}"
        self._write.write(data + b"\x1b]2;%s\x07" % title.encode())
        deadline = time.monotonic() + _SECONDS
        facts = ["", ""]
        while facts[0] != title:
            if time.monotonic() > deadline:
                raise TimeoutError("tmux has not shown everything")
            facts = self._tmux(
                "display-message", "-p", "#{pane_title} #{cursor_y},#{cursor_x}"
            ).split()
        row, column = map(int, facts[1].split(","))
        return ShownScreen(self._tmux("capture-pane", "-p").split("\n")[:-1], (row, column))

    def close(self) -> None:
        self._write.close()
        with contextlib.suppress(subprocess.CalledProcessError):
            self._tmux("kill-server")

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-S", str(self._socket), *words]
        # Without UTF-8, tmux would print underscores.
        env = os.environ | {"LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}
        env.pop("TMUX", None)
        done = subprocess.run(
            command, capture_output=True, text=True, env=env, timeout=_SECONDS, check=True
        )
        return done.stdout


class XtermJs:
    """xterm.js, which is installed from npm the first time."""

    def __init__(self, columns: int, rows: int) -> None:
        env = os.environ | {"NODE_PATH": str(_NPM / "node_modules")}
        script = str(_HERE / "xterm_screens.js")
        self._node = subprocess.Popen(
            ["node", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True
        )
        self._ask({"cols": columns, "rows": rows})

    def feed(self, data: bytes) -> ShownScreen:
        shown = self._ask({"data": base64.b64encode(data).decode()})
        return ShownScreen(shown["lines"], tuple(shown["cursor"]))

    def close(self) -> None:
        self._node.kill()
        self._node.communicate()

    def _ask(self, question: dict[str, object]) -> dict[str, list]:  # type: ignore[type-arg]
        assert self._node.stdin is not None and self._node.stdout is not None
        self._node.stdin.write(json.dumps(question) + "\n")
        self._node.stdin.flush()
        answer: dict[str, list] = json.loads(self._node.stdout.readline())  # type: ignore[type-arg]
        return answer


def missing(name: str) -> str | None:
    """Why a terminal cannot be compared with; None if it can."""
    if name == "tmux":
        return None if shutil.which("tmux") else "tmux is not installed"
    if not shutil.which("node") or not shutil.which("npm"):
        return "node and npm are not installed"
    _NPM.mkdir(parents=True, exist_ok=True)
    words = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run([*words, *_PACKAGES], cwd=_NPM, capture_output=True, timeout=300)
    return None if done.returncode == 0 else "npm cannot install xterm.js"


@contextlib.contextmanager
def opened(name: str, folder: Path, columns: int, rows: int) -> Iterator[OtherTerminal]:
    terminal: Tmux | XtermJs
    terminal = Tmux(folder, columns, rows) if name == "tmux" else XtermJs(columns, rows)
    try:
        yield terminal
    finally:
        terminal.close()
