"""The programs in tests/children/, ready to be started."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from tests.support.servers import CHILDREN
from tests.support.wire import PATIENCE


def child(name: str, *arguments: object) -> list[str]:
    """The argv that runs tests/children/*name*."""
    path = str(CHILDREN / name)
    command = ["sh", path] if name.endswith(".sh") else [sys.executable, "-I", "-S", path]
    return [*command, *map(str, arguments)]


class Description:
    """What describes_itself.sh says about itself."""

    def __init__(self, output: bytes) -> None:
        facts: dict[str, list[str]] = {}
        for line in output.decode().splitlines():
            name, value = line.split(maxsplit=1)
            facts.setdefault(name.rstrip(":"), []).append(value)
        self.pid = int(facts["pid"][0])
        # After the name, which may hold anything, and the state.
        fields = facts["stat"][0].rpartition(") ")[2].split()[1:]
        self.parent, self.group, self.session, terminal, foreground = map(int, fields[:5])
        self.foreground_group = foreground if terminal else None
        self.ignored = _signals(facts["SigIgn"][0])
        self.blocked = _signals(facts["SigBlk"][0])
        self.max_descriptors = int(facts["nofile"][0])
        # Without the one that lists them.
        self.descriptors = sorted(map(int, facts["fd"]))[:-1]


def _signals(mask: str) -> set[int]:
    """The members of a mask as /proc shows it; those that libc keeps for itself do not count."""
    bits = int(mask, 16)
    return {number for number in signal.valid_signals() if bits >> (number - 1) & 1}


class Watched:
    """A process that may be the child of any other; its number is never mistaken for another's."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)

    async def ended(self) -> None:
        """Returns once it has ended; to be called once."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def tell() -> None:
            if not done.done():
                done.set_result(None)

        loop.add_reader(self._pidfd, tell)
        try:
            async with asyncio.timeout(PATIENCE):
                await done
        finally:
            loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
