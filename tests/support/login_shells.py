"""Login shells whose startup files are taken down once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.wire import ENV, Wire

SHELL = {"name": "bash", "path": "/bin/bash"}


class Shell:
    """Starts login shells in a home of its own."""

    def __init__(self, wire: Wire, home: Path) -> None:
        self.wire = wire
        self.home = home
        self._last = 0

    async def run(
        self,
        script: str,
        *more: str,
        scope: str = "s",
        shell: dict[str, str] = SHELL,
        env: dict[str, str] | None = None,
        **params: Any,
    ) -> str:
        self._last += 1
        done = await self.wire.run(
            f"p{self._last}",
            [shell["path"], "-lc", script, *more],
            env={**ENV, "HOME": str(self.home), **(env or {})},
            shellSnapshot={"scopeId": scope, "shell": shell},
            **params,
        )
        return (done.stdout + done.stderr).decode()

    @property
    def captures(self) -> int:
        return len((self.home / "count").read_text().split())
