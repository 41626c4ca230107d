"""The modes of the terminal that an ssh client asks for, as words of stty."""

from __future__ import annotations

from collections.abc import Mapping

# RFC 4254, section 8: the code of each special character, stty's name and the kernel's default.
_CHARACTERS = {
    1: ("intr", 3),
    2: ("quit", 28),
    3: ("erase", 127),
    4: ("kill", 21),
    5: ("eof", 4),
    6: ("eol", 255),
    7: ("eol2", 255),
    8: ("start", 17),
    9: ("stop", 19),
    10: ("susp", 26),
    12: ("rprnt", 18),
    13: ("werase", 23),
    14: ("lnext", 22),
}
# The code of each mode that is on or off, stty's name and the kernel's default.
_FLAGS = {
    30: ("ignpar", False),
    31: ("parmrk", False),
    32: ("inpck", False),
    33: ("istrip", False),
    34: ("inlcr", False),
    35: ("igncr", False),
    36: ("icrnl", True),
    37: ("iuclc", False),
    38: ("ixon", True),
    39: ("ixany", False),
    40: ("ixoff", False),
    41: ("imaxbel", False),
    42: ("iutf8", False),
    50: ("isig", True),
    51: ("icanon", True),
    53: ("echo", True),
    54: ("echoe", True),
    55: ("echok", True),
    56: ("echonl", False),
    57: ("noflsh", False),
    58: ("tostop", False),
    59: ("iexten", True),
    60: ("echoctl", True),
    61: ("echoke", True),
    70: ("opost", True),
    71: ("olcuc", False),
    72: ("onlcr", True),
    73: ("ocrnl", False),
    74: ("onocr", False),
    75: ("onlret", False),
}
# A character that is switched off. 0 says the same, on systems without 255.
_OFF = (0, 255)


def stty_words(modes: Mapping[int, int]) -> list[str]:
    """What stty has to change on a new terminal; nothing for the usual modes."""
    words: list[str] = []
    for code, (name, default) in _CHARACTERS.items():
        value = modes.get(code, default)
        if value != default and not (value in _OFF and default in _OFF):
            words += [name, "undef" if value in _OFF else f"0x{value:02x}"]
    for code, (flag, is_on) in _FLAGS.items():
        wanted = bool(modes.get(code, is_on))
        if wanted != is_on:
            words.append(flag if wanted else f"-{flag}")
    return words


def with_modes(argv: list[str], modes: Mapping[int, int]) -> list[str]:
    """The command, after stty has set what differs from a new terminal.

    A system without stty, and one that does not know a mode, runs the command all the same.
    """
    words = stty_words(modes)
    if not words:
        return argv
    return ["/bin/sh", "-c", 'stty $0 2>/dev/null; exec "$@"', " ".join(words), *argv]
