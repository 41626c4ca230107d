"""Which `exec-server port` commands run on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from exec_server.cli.process.detached.saved_sessions import state_directory
from exec_server.errors import ConfigurationError


class PortRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A running command, and the forwards that it keeps."""

    pid: int
    # When the process was started, in ticks of the kernel: its number may be used again.
    started: str
    server: str
    forwards: list[dict[str, str]]


class PortRecords:
    """One private file for each command that runs."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or state_directory().parent / "ports"

    @contextlib.contextmanager
    def kept(self, server: str, forwards: list[dict[str, str]]) -> Iterator[None]:
        """Keep the record of this process for the length of a block, if that is possible."""
        pid = os.getpid()
        path = self._directory / f"{pid}.json"
        record = PortRecord(pid, _started(pid), server, forwards)
        with contextlib.suppress(OSError):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # `mkstemp` makes a file of mode 0600.
            fd, name = tempfile.mkstemp(dir=self._directory, prefix=".new-")
            with open(fd, "wb") as file:
                file.write(msgspec.json.encode(record))
            os.replace(name, path)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                path.unlink()

    def running(self) -> list[PortRecord]:
        """The commands that run now; the records of others are removed."""
        found = []
        for path in sorted(self._directory.glob("*.json")):
            try:
                record = msgspec.json.decode(path.read_bytes(), type=PortRecord)
            except (OSError, msgspec.DecodeError):
                continue
            if record.started == _started(record.pid) != "":
                found.append(record)
            else:
                with contextlib.suppress(OSError):
                    path.unlink()
        return found

    def close(self, pid: int) -> PortRecord:
        """End the command with the number *pid*. Raises ConfigurationError if there is none."""
        for record in self.running():
            if record.pid == pid:
                os.kill(pid, signal.SIGTERM)
                return record
        raise ConfigurationError(
            f"there is no `exec-server port` with the id {pid}; `exec-server port list` shows them"
        )


def _started(pid: int) -> str:
    """When a process was started; empty if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]
