"""What an ssh client asks to be run, as the words and the environment of a process."""

from __future__ import annotations

import os
from collections.abc import Mapping

from exec_server.client.client import ExecServerClient
from exec_server.errors import RpcError

# Variables that say how a program looks and speaks. Others could change what is run: PATH and
# LD_PRELOAD, for example.
_SAFE = frozenset(
    ("LANG", "LANGUAGE", "TZ", "COLORTERM", "NO_COLOR", "TERM_PROGRAM", "GIT_PROTOCOL")
)
_SAFE_BEGIN = "LC_"


def safe_variables(asked: Mapping[str, str]) -> dict[str, str]:
    """Those of the client's variables that are passed on."""
    return {
        name: value
        for name, value in asked.items()
        if name in _SAFE or name.startswith(_SAFE_BEGIN)
    }


async def shell_path(client: ExecServerClient) -> str:
    """The login shell of the server's user."""
    try:
        return (await client.environment_info()).shell.path
    except RpcError:
        # Old servers do not have this method.
        return "/bin/sh"


async def shell_words(client: ExecServerClient, command: str | None) -> list[str]:
    """The command for the shell over there, as sshd runs it; without one, a login shell."""
    shell = await shell_path(client)
    return [shell, "-l"] if command is None else [shell, "-c", _as_text(command)]


def _as_text(command: str) -> str:
    """*command*, or one that makes the same bytes, if they are not UTF-8: messages are."""
    try:
        command.encode()
    except UnicodeEncodeError:
        octal = "".join(f"\\{byte:03o}" for byte in os.fsencode(command))
        return f"eval \"$(printf '{octal}')\""
    return command


async def home_directory(client: ExecServerClient) -> str | None:
    """The home directory of the server's user as a URI; None if the server does not say."""
    try:
        home = (await client.environment_info()).user_home_dir
    except RpcError:
        return None
    return home if isinstance(home, str) and home else None
