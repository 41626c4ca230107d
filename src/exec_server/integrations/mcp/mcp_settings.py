"""What the operator of an MCP server decides, and the model does not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import exec_server

# The sandbox for every command and file, given the directory of the operator; None: without one.
SandboxFor = Callable[
    [exec_server.ExecServerClient, str | None], Awaitable["exec_server.SandboxContext | None"]
]

# Arguments of tools that the model sees only if the operator allows it.
CHOICES = ("sandbox", "output")


async def no_sandbox(client: exec_server.ExecServerClient, cwd: str | None) -> None:
    """Commands run without a sandbox."""


@dataclass(frozen=True, kw_only=True)
class McpSettings:
    """The settings of one MCP server."""

    # The URL or name of the exec-server, for texts and for the records of jobs.
    server: str
    # Where relative paths and commands without a directory start; None: the server's own.
    cwd: str | None = None
    sandbox_for: SandboxFor = no_sandbox
    is_sandboxed: bool = False
    # Names that sandbox if the model cannot leave it: jobs of another one are not continued.
    confinement: str = ""
    # Tools that change something are left out.
    read_only: bool = False
    # Bytes of each output in an answer. Clients cut or refuse answers of more than about 25,000
    # tokens, and a token may be as short as two bytes.
    max_output: int = 24 * 1024
    # Seconds: what `run` allows if the model does not say, and at most. Codex gives a tool 60 s.
    time_limit: float = 50.0
    max_time_limit: float = 3600.0
    # How many seconds jobs are kept while no MCP server is connected: one day.
    keep: float = 24 * 3600.0
    # Members of CHOICES that the model may choose itself.
    model_may: frozenset[str] = frozenset()
    # Where the records of jobs are; None keeps no record.
    records: Path | None = field(default=None)
