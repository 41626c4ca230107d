"""Files that others may not read: others cannot read them while they are copied either."""

from __future__ import annotations

from typing import TYPE_CHECKING

from exec_server.errors import NotFound

if TYPE_CHECKING:
    from exec_server.client.files.remote_files import RemoteFiles

# What everybody may do with a file and with a directory of the usual modes.
_USUAL_FILE, _USUAL_DIRECTORY = 0o044, 0o055
_OWNERS_ALONE = 0o600


def is_private_file(mode: int | None) -> bool:
    """True if *mode* keeps the group or others from reading a file."""
    return mode is not None and mode & _USUAL_FILE != _USUAL_FILE


def is_private_directory(mode: int | None) -> bool:
    """True if *mode* keeps the group or others from reading or entering a directory."""
    return mode is not None and mode & _USUAL_DIRECTORY != _USUAL_DIRECTORY


async def make_private(files: RemoteFiles, path: bytes, *, follow_symlinks: bool = True) -> None:
    """Let *path* be a file that its owner alone can read, before something is written to it.

    A file that exists keeps its content. The server needs `fsSetPermissions`. Raises RpcError.
    """
    try:
        is_new = not (await files.get_metadata(path, follow_symlinks=follow_symlinks)).size
    except NotFound:
        is_new = True
    if is_new:
        await files.write_file(path, b"", follow_symlinks=follow_symlinks)
    await files.set_permissions(path, mode=_OWNERS_ALONE, follow_symlinks=follow_symlinks)
    if is_new and await files.offers("fsAtomicWrite"):
        # Another user may have opened the file before it had its mode; this makes another one.
        await files.write_file(path, b"", atomic=True, follow_symlinks=follow_symlinks)
