"""Output of programs for the tests of engines: made up, with what real programs use."""

from __future__ import annotations

import random

_WORDS = ("alpha", "beta", "gamma", "delta", "漢字", "naïve", "e\u0301", "→", "┌─┐", "x" * 30)


def shell_like(choose: random.Random, lines: int = 60) -> bytes:
    """Prompts, colours, long lines, progress bars and titles on the primary screen."""
    parts: list[str] = []
    for number in range(lines):
        kind = choose.randrange(8)
        words = " ".join(choose.choice(_WORDS) for _ in range(choose.randrange(1, 9)))
        if kind == 0:
            parts.append(f"\x1b[1;3{number % 8}m{words}\x1b[0m\r\n")
        elif kind == 1:
            parts.append(f"\x1b]2;title {number}\x07$ {words * 3}\r\n")
        elif kind == 2:
            parts.append("".join(f"\r{n}%\x1b[K" for n in range(0, 100, 20)) + "\r\n")
        elif kind == 3:
            parts.append(f"\x1b[38;2;{number};99;200m\x1b[48;5;{number}m{words}\x1b[K\x1b[m\r\n")
        elif kind == 4:
            parts.append(f"\x1b]8;;http://host/{number}\x1b\\{words}\x1b]8;;\x1b\\\r\n")
        elif kind == 5:
            parts.append(f"a\tb\tc\x1b[4:3m{words}\x1b[24m\r\n\x1b7\x1b[3;3Hhere\x1b8")
        elif kind == 6:
            parts.append(f"\x1b(0lqqk\x1b(B \x1b[?2004h{words}\x1b[{choose.randrange(2)};1H\x1b[J")
        else:
            parts.append(words + "\n")
    return "".join(parts).encode()


def editor_like(choose: random.Random, rows: int, columns: int, steps: int = 60) -> bytes:
    """An editor on the alternate screen: margins, insertion, deletion, the cursor's shape."""
    parts = ["\x1b[?1049h\x1b[22;0;0t\x1b[?1h\x1b=\x1b[?1006h\x1b[?1002h\x1b[2J"]
    for _ in range(steps):
        row, column = choose.randrange(1, rows + 1), choose.randrange(1, columns + 1)
        word = choose.choice(_WORDS)
        parts.append(
            choose.choice(
                (
                    f"\x1b[{row};{column}H\x1b[3{row % 8}m{word}\x1b[m",
                    f"\x1b[{row};1H\x1b[44m\x1b[K{word}\x1b[49m",
                    f"\x1b[2;{max(rows - 1, 3)}r\x1b[{row};1H\x1b[L",
                    f"\x1b[{row};1H\x1b[2M\x1b[r",
                    f"\x1b[{row};{column}H\x1b[3@\x1b[2P\x1b[4X",
                    f"\x1b[{choose.randrange(7)} q\x1b[?25l\x1b[?25h",
                    f"\x1bM\x1bD\x1bE{word}",
                    f"\x1b[{row};{columns}Hz",
                )
            )
        )
    return "".join(parts).encode()


def leave_editor() -> bytes:
    return b"\x1b[r\x1b[?1002l\x1b[?1006l\x1b[?1l\x1b>\x1b[?1049l\x1b[?25h"


def session(seed: int, rows: int, columns: int) -> bytes:
    """A shell, an editor, and the shell again."""
    choose = random.Random(seed)
    parts = [
        shell_like(choose),
        editor_like(choose, rows, columns),
        leave_editor(),
        shell_like(choose),
    ]
    return b"".join(parts)
