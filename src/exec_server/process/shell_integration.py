"""Makes bash, zsh and fish mark prompts and commands (OSC 133, OSC 7); nothing visible is added.

bash runs the hook from PROMPT_COMMAND, which it takes from its environment; zsh from the directory
that ZDOTDIR names, whose file puts the user's own back; fish by an option. A shell that has hooks
of this kind already keeps them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

_FOLDER = Path(__file__).parent / "shell_hooks"
# The shells are known by these names, also with a path and as login shells.
_SHELLS = ("bash", "zsh", "fish")


def integrated(
    argv: Sequence[bytes], env: dict[bytes, bytes], *, is_confined: bool
) -> tuple[list[bytes], dict[bytes, bytes]]:
    """The command and the environment of a shell with integration; of others as they are.

    zsh reads a file of this package, which a confined one may not see.
    """
    words = list(argv)
    name = os.path.basename(words[0]).removeprefix(b"-").decode("utf-8", "replace")
    if name not in _SHELLS or not _is_interactive(name, words[1:]):
        return words, env
    if name == "bash":
        return words, env | _bash(env)
    if name == "fish":
        return [words[0], b"--init-command", _hook("hooks.fish"), *words[1:]], env
    return words, env if is_confined else env | _zsh(env)


def _is_interactive(name: str, words: Sequence[bytes]) -> bool:
    """False if the words name a script or a command to run."""
    for word in words:
        if not word.startswith(b"-") or word in (b"-", b"--"):
            return False
        if word in (b"--rcfile", b"--init-file", b"--posix"):
            return name == "bash"
        if not word.startswith(b"--") and b"c" in word:
            return False
    return True


def _bash(env: dict[bytes, bytes]) -> dict[bytes, bytes]:
    before = env.get(b"PROMPT_COMMAND", b"")
    added = {b"EXEC_SERVER_HOOKS": _hook("hooks.bash")}
    if before:
        added[b"EXEC_SERVER_PROMPT_COMMAND"] = before
    return added | {b"PROMPT_COMMAND": b'eval "$EXEC_SERVER_HOOKS"'}


def _zsh(env: dict[bytes, bytes]) -> dict[bytes, bytes]:
    added = {b"ZDOTDIR": os.fsencode(_FOLDER / "zsh")}
    if b"ZDOTDIR" in env:
        added[b"EXEC_SERVER_ZDOTDIR"] = env[b"ZDOTDIR"]
    return added


def _hook(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()
