"""Records every terminal of a server, as `--record-terminals` asks."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Mapping

from exec_server.audit.masking import PLAIN, is_secret_name
from exec_server.limits import Limits
from exec_server.process.child import Child
from exec_server.protocol.process import StartParams
from exec_server.recording.cast_format import CastHeader
from exec_server.recording.recorder import TerminalRecorder


def secret_values(*environments: Mapping[str, str]) -> Iterable[str]:
    """The values of the variables that have the name of a secret, such as API_TOKEN."""
    for variables in environments:
        for name, value in variables.items():
            if is_secret_name(name):
                yield value


def record_terminal(
    recorder: TerminalRecorder, limits: Limits, owner: str, child: Child, params: StartParams | None
) -> None:
    """Record *child* if it has a terminal; *params* are None if an earlier server started it."""
    if not child.is_tty:
        return
    size = child.terminal_size
    if params is not None:
        size = params.rows or limits.default_rows, params.cols or limits.default_cols
    # No job keeps its variables, but its process does.
    env = _environment_of(child.pid) if params is None else params.env
    header = CastHeader(
        columns=size[1],
        rows=size[0],
        started=time.time(),
        command=shlex.join(PLAIN.command(child.argv)),
        term=(env or {}).get("TERM"),
        owner=owner or None,
    )
    name = child.argv[0].rpartition("/")[2] if child.argv else ""
    terminal = recorder.record(name, header, tuple(secret_values(env or {})))
    terminal.exit_status = lambda: child.exit_code
    if params is None:
        terminal.mark("the server was restarted; the terminal goes on")
        if env is None:
            terminal.mark("its variables cannot be read, so their secrets are not left out")
    child.taps = (*child.taps, terminal)


def _environment_of(pid: int | None) -> dict[str, str] | None:
    """The variables that a process was started with; None if the system does not tell them."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            data = file.read()
    except OSError:
        return None
    pairs = (os.fsdecode(each).partition("=") for each in data.split(b"\0") if each)
    return {name: value for name, _, value in pairs}
