"""Servers to talk to: ours as a process of its own, and the reference."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CHILDREN = ROOT / "tests" / "children"
OURS = [sys.executable, "-m", "exec_server"]


def tied(sign: str = "KILL") -> list[str]:
    """Before a command: it ends with the thread that starts it, even if it is never closed."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", sign, "--"] if setpriv else []


class ServerProcess:
    """A server that listens on a WebSocket or Unix socket."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.url = url

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def resident_bytes(self) -> int:
        """The memory that it has in use."""
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        (line,) = [line for line in status if "VmRSS" in line]
        return int(line.split()[1]) << 10

    def signal(self, signum: int) -> None:
        self.process.send_signal(signum)

    def wait(self, timeout: float = 60.0) -> int:
        return self.process.wait(timeout)


@contextlib.contextmanager
def start_server(
    *options: str,
    command: list[str] | None = None,
    env: dict[str, str] | None = None,
    cwd: str | None = None,
    log: Path | None = None,
    **rest: Any,
) -> Iterator[ServerProcess]:
    """Run a server and stop it at the end, whatever happened to it meanwhile.

    Its standard error goes to *log*, or to that of the tests. *rest* goes to `subprocess.Popen`.
    """
    stderr = None if log is None else log.open("ab")
    process = subprocess.Popen(
        [*(command or OURS), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        **rest,
    )
    if stderr is not None:
        stderr.close()
    assert process.stdout is not None
    try:
        url = process.stdout.readline().decode().strip()
        assert url, f"the server did not start: status {process.wait()}"
        yield ServerProcess(process, url)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def reference_binary() -> Path | None:
    """The reference server, if `scripts/reference.sh` could install it."""
    found = subprocess.run(
        [ROOT / "scripts" / "reference.sh"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return Path(found) if found and Path(found).is_file() else None


@contextlib.contextmanager
def codex_home() -> Iterator[Path]:
    """A CODEX_HOME that is not below /tmp: with one there Codex has no sandbox."""
    with tempfile.TemporaryDirectory(prefix="codex-home-", dir="/var/tmp") as made:
        yield Path(made)


@contextlib.contextmanager
def start_reference(
    binary: Path, *options: str, env: dict[str, str] | None = None, cwd: str | None = None
) -> Iterator[ServerProcess]:
    with (
        tempfile.TemporaryDirectory() as home,
        start_server(
            *options,
            command=[str(binary), "exec-server"],
            env={"CODEX_HOME": home, **(env or {})},
            cwd=cwd,
        ) as server,
    ):
        yield server
