"""The paths on a server that complete a word: quickly, quietly, or not at all."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from exec_server.cli.files.targets import Servers, Target, parse_target
from exec_server.cli.server_access import environments, is_url
from exec_server.transport.dial import is_program

# A person waits for a completion; after this time it is better to offer nothing. Far servers may
# need more.
_SECONDS = 2.0
_SECONDS_VARIABLE = "EXEC_SERVER_COMPLETION_SECONDS"
# More names than this do not help.
_MOST = 500


def print_paths(word: str) -> NoReturn:
    """Print each path that begins with *word*, SERVER:PATH, on a line, and end the program.

    Nothing else is printed, whatever goes wrong. The exit does not wait for anything.
    """
    signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, _seconds())
    # Nothing may appear in the middle of a command line, not even a warning of Python.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        found = asyncio.run(_paths(word))
        sys.stdout.buffer.write(b"".join(os.fsencode(path) + b"\n" for path in found))
        sys.stdout.flush()
    except BaseException:
        os._exit(0)
    os._exit(0)


def _seconds() -> float:
    try:
        return max(0.1, float(os.environ[_SECONDS_VARIABLE]))
    except (KeyError, ValueError):
        return _SECONDS


def _give_up(signum: int, frame: FrameType | None) -> NoReturn:
    os._exit(0)


async def _paths(word: str) -> list[str]:
    target = parse_target(word)
    if not target.is_remote or not _is_quiet(target):
        return []
    folder, slash, beginning = target.path.rpartition("/")
    async with Servers(token=None, client_name="exec-server completion") as servers:
        place = await servers.expanded(Target(target.url, folder + slash))
        entries = await (await servers.files(place)).read_directory(place.path or ".")
    found = []
    for entry in entries:
        is_wanted = entry.name.startswith(beginning) and entry.name.isprintable()
        if is_wanted and (beginning or not entry.name.startswith(".")):
            name = f"{entry.name}/" if entry.is_directory else entry.name
            found.append(str(Target(target.url, folder + slash + name)))
    return sorted(found)[:_MOST]


def _is_quiet(target: Target) -> bool:
    """False for a server that a program leads to: the program may ask for a password."""
    assert target.url is not None
    if is_url(target.url):
        return not is_program(target.url)
    return environments().resolve(target.url).kind != "program"
