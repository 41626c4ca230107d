"""scp in its old protocol: what `scp -f` and `scp -t` do, without an scp over there."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import AsyncIterator

from asyncssh import (
    FILEXFER_TYPE_SYMLINK,
    SFTPAttrs,
    SFTPError,
    SFTPFailure,
    SFTPName,
    SSHReader,
    SSHWriter,
)
from asyncssh.scp import _SCPHandler, _SCPSink, _SCPSource
from asyncssh.sftp import SFTPServerFS

from exec_server.errors import InvalidParams
from exec_server.ssh_door.remote_commands import home_directory, shell_words
from exec_server.ssh_door.sftp_server import RemoteSftp

# The two ends of the old protocol: options with an `f` or a `t`, and paths as words of a shell.
_COMMAND = re.compile(r"scp ((?:-[a-z]+ )*-[a-z]*[ft][a-z]* (?:-[a-z]+ )*)(?:-- )?(.+)", re.DOTALL)
# Words in which a shell replaces nothing.
_PLAIN = re.compile(r"[\w/.,:@%+-]+", re.ASCII)
# asyncssh refuses a backslash in a name that it is sent. No name has a NUL.
_BACKSLASH, _IN_ITS_PLACE = b"\\", b"\0"


def is_old_scp(command: str) -> bool:
    """True if a client with the old protocol sends this command."""
    return _COMMAND.fullmatch(command) is not None


async def run_old_scp(
    files: ScpFiles, command: str, stdin: SSHReader[bytes], stdout: SSHWriter[bytes]
) -> None:
    """Send or take what *command* names, until the client has all of it or has left."""
    found = _COMMAND.fullmatch(command)
    assert found is not None
    options = found[1]
    paths = await files.expanded(found[2])
    place = SFTPServerFS(files)
    if "f" in options:
        source = _ScpSource(place, stdin, stdout, "p" in options, "r" in options, server=True)
        await source.send(paths)
        return
    if len(paths) != 1:
        raise InvalidParams(f"scp needs one destination, and not {len(paths)}: {found[2]}")
    is_directory, keeps_times, is_tree = ("d" in options, "p" in options, "r" in options)
    sink = _ScpSink(place, stdin, stdout, is_directory, keeps_times, is_tree, server=True)
    await sink.run(paths[0])


class ScpFiles(RemoteSftp):
    """The files of a server, as the old protocol reaches them."""

    async def expanded(self, words: str) -> list[bytes]:
        """The paths that these words of a shell are; the shell over there knows."""
        if _PLAIN.fullmatch(words):
            return [os.fsencode(words)]
        argv = await shell_words(self._client, f"printf '%s\\0' {words}")
        done = await self._client.run(argv, cwd=await home_directory(self._client))
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            raise InvalidParams(f"the shell over there does not take {words}: {said}")
        return done.stdout.removesuffix(b"\0").split(b"\0")

    def _path(self, path: bytes) -> bytes:
        return super()._path(path.replace(_IN_ITS_PLACE, _BACKSLASH))

    async def scandir(self, path: bytes) -> AsyncIterator[SFTPName]:
        """Entries with the attributes of what links lead to: scp follows them."""
        async for entry in super().scandir(path):
            if entry.attrs.type == FILEXFER_TYPE_SYMLINK:
                name = os.fsencode(entry.filename)
                entry.attrs = await self._followed(posixpath.join(path, name), entry.attrs)
            yield entry

    async def _followed(self, path: bytes, found: SFTPAttrs) -> SFTPAttrs:
        try:
            return await self.stat(path)
        except (SFTPError, OSError):
            # It leads nowhere, and is told of as a file that is not a regular one.
            return found


class _ScpAnswers(_SCPHandler):
    """Tells errors in one line each: another one would be a request."""

    def send_error(self, exc: Exception) -> None:
        text = exc.reason if isinstance(exc, SFTPError) else str(exc)
        said = SFTPFailure(text.encode(errors="replace").decode().replace("\n", "\\^J"))
        said.fatal = getattr(exc, "fatal", False)  # type: ignore[attr-defined]
        super().send_error(said)


class _ScpSource(_ScpAnswers, _SCPSource):
    async def send(self, paths: list[bytes]) -> None:
        """Send all of *paths*; what is wrong with one of them does not keep the others."""
        refusal = await self.await_response()
        if refusal is None:
            for path in paths:
                await self._send_path(path)
        await self.close()

    async def _send_path(self, path: bytes) -> None:
        try:
            attrs = await self._fs.stat(path)
        except (OSError, SFTPError) as exc:
            self.handle_error(exc)
        else:
            await self._send_files(path, b"", attrs)

    def send_request(self, *args: bytes) -> None:
        """A name with a line break is sent as OpenSSH sends it; it would be several requests."""
        super().send_request(*(each.replace(b"\n", b"\\^J") for each in args))


class _ScpSink(_ScpAnswers, _SCPSink):
    async def recv_request(self) -> tuple[bytes | None, bytes | None]:
        action, words = await super().recv_request()
        if action in (b"C", b"D") and words is not None:
            words = words.replace(_BACKSLASH, _IN_ITS_PLACE)
        return action, words
