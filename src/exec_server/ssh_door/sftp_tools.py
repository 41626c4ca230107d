"""File operations that have no call of their own: programs on the server's machine do them."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from asyncssh import SFTPFailure, SFTPVFSAttrs

from exec_server.client.client import ExecServerClient

# What the programs say in the C locale.
_REASONS = (
    ("No such file or directory", errno.ENOENT),
    ("Permission denied", errno.EACCES),
    ("Operation not permitted", errno.EACCES),
    ("File exists", errno.EEXIST),
    ("Not a directory", errno.ENOTDIR),
    ("Is a directory", errno.EISDIR),
    ("Read-only file system", errno.EROFS),
    ("No space left on device", errno.ENOSPC),
)


class SftpTools:
    """One method for each program. They raise OSError or SFTPFailure."""

    def __init__(self, client: ExecServerClient) -> None:
        self._client = client

    async def link(self, source: bytes, destination: bytes) -> None:
        """A hard link; of a symbolic link itself, as sftp-server makes it."""
        await self._run(["ln", "-P", "-T", "--", source, destination])

    async def truncate(self, path: bytes, size: int) -> None:
        """Give a file that exists another size."""
        await self._run(["truncate", "-c", "-s", str(size), "--", path])

    async def change_owner(self, path: bytes, uid: int, gid: int, *, follows: bool = True) -> None:
        """Give a file to another user and group."""
        links = [] if follows else ["-h"]
        await self._run(["chown", *links, "--", f"{uid}:{gid}", path])

    async def set_link_times(self, path: bytes, accessed: int, modified: int) -> None:
        """The times of a symbolic link itself."""
        for option, seconds in (("-a", accessed), ("-m", modified)):
            await self._run(["touch", "-h", "-c", option, "-d", f"@{seconds}", "--", path])

    async def set_mode(self, path: bytes, mode: int) -> None:
        """For servers without `fs/setPermissions`."""
        await self._run(["chmod", "--", f"{mode:o}", path])

    async def rename(self, source: bytes, destination: bytes, *, overwrites: bool) -> None:
        """For servers without `fs/rename`."""
        option = "-f" if overwrites else "-n"
        await self._run(["mv", option, "-T", "--", source, destination])

    async def sync(self, path: bytes) -> None:
        """Have the content of a file written to its disk."""
        await self._run(["sync", "--", path])

    async def file_system(self, path: bytes) -> SFTPVFSAttrs:
        """The sizes of the file system that *path* is on."""
        form = "%s %S %b %f %a %c %d %i %l"
        output = await self._run(["stat", "-f", "-c", form, "--", path])
        *numbers, fsid, namemax = output.split()
        block, fundamental, total, free, available, files, free_files = map(int, numbers)
        return SFTPVFSAttrs(
            bsize=block,
            frsize=fundamental,
            blocks=total,
            bfree=free,
            bavail=available,
            files=files,
            ffree=free_files,
            favail=free_files,
            fsid=int(fsid, 16),
            flags=0,
            namemax=int(namemax),
        )

    async def _run(self, argv: Sequence[str | bytes]) -> str:
        words = [os.fsdecode(word) for word in argv]
        done = await self._client.run(words, env={"LC_ALL": "C"}, cwd="/")
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            for reason, number in _REASONS:
                if said.endswith(reason):
                    raise OSError(number, reason)
            raise SFTPFailure(said or f"{words[0]} failed")
        return done.stdout.decode(errors="replace")
