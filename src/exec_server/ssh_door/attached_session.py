"""A session channel of `ssh NAME%ID`: it takes part in a process that runs already."""

from __future__ import annotations

import contextlib

from asyncssh import SSHReader, SSHWriter

from exec_server.errors import ControlLost, StdinClosed
from exec_server.ssh_door.door_session import DoorSession
from exec_server.ssh_door.target import INPUT_BYTES, AttachedProcess, AttachWish, LeaveProcess


class AttachedSession(DoorSession):
    """Follows the process; it runs on when the client leaves."""

    def subsystem_requested(self, subsystem: str) -> bool:
        return False

    async def _work(
        self, stdin: SSHReader[bytes], stdout: SSHWriter[bytes], stderr: SSHWriter[bytes]
    ) -> None:
        process = self._process = await self._attach(stderr)
        try:
            feeding = self._type(process, stdin, stdout, stderr)
            await self._follow(process, feeding, stdout, stderr)
        finally:
            await process.leave()

    async def _attach(self, stderr: SSHWriter[bytes]) -> AttachedProcess:
        channel = self._channel
        has_terminal = channel.get_terminal_type() is not None
        columns, rows = channel.get_terminal_size()[:2]

        def show(text: str) -> None:
            with contextlib.suppress(OSError):
                stderr.write(text.encode())

        assert self._target.attach is not None
        return await self._target.attach(
            AttachWish(
                words=channel.get_command() or "",
                has_terminal=has_terminal,
                size=(rows, columns) if rows and columns else None,
                show=show,
            )
        )

    async def _type(
        self,
        process: AttachedProcess,
        stdin: SSHReader[bytes],
        stdout: SSHWriter[bytes],
        stderr: SSHWriter[bytes],
    ) -> None:
        """Pass input on. Its end is not that of the process, which has it from others as well."""
        try:
            while data := await stdin.read(INPUT_BYTES):
                with contextlib.suppress(StdinClosed):
                    await process.write(data)
        except LeaveProcess:
            with contextlib.suppress(OSError):
                stdout.write(await process.leave())
                self._channel.exit(0)
        except ControlLost as exc:
            self._fail(stderr, f"the input was refused: {exc}")
