"""A file system for fsspec: `exec://NAME/path`, for pandas, dask, zarr and others.

::

    pandas.read_csv("exec://build-box/srv/data.csv")
    fs = fsspec.filesystem("exec", server="ws://127.0.0.1:41181")
"""

from __future__ import annotations

import datetime
import errno
import os
import uuid
import weakref
from typing import Any

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

import exec_server
from exec_server.integrations.boxes import SyncBox
from exec_server.integrations.workplaces import SyncWorkplace

_SCHEMES = ("exec", "exec-server")


class ExecServerFileSystem(AbstractFileSystem):
    """The files of a server; *server* is a URL or a name, *options* are those of `connect`.

    It connects at the first call. Writing makes missing directories unless *auto_mkdir* is false.
    """

    protocol = _SCHEMES
    root_marker = "/"

    def __init__(
        self,
        server: str | None = None,
        auto_mkdir: bool = True,
        sandbox: Any = None,
        **options: Any,
    ) -> None:
        names = ("token", "pin", "ca_file", "client_cert", "client_key")
        connect = {name: options.pop(name) for name in names if name in options}
        url = options.pop("url", None)
        if url is not None and server is not None and url != server:
            raise ValueError("url and server are two names of one argument, and differ")
        server = url if server is None else server
        super().__init__(**options)
        self.server = server
        self.auto_mkdir = auto_mkdir
        box = SyncBox(server, client_name="exec-server fsspec", **connect)
        self._place = SyncWorkplace(box, None, sandbox)
        weakref.finalize(self, box.close)

    @property
    def _files(self) -> Any:
        return self._place.files()

    # Names.

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        text = os.fspath(path)
        scheme, found, rest = text.partition("://")
        if found and scheme in _SCHEMES:
            text = f"/{rest.partition('/')[2]}"
        return text.rstrip("/") or cls.root_marker

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        scheme, found, rest = path.partition("://")
        server = rest.partition("/")[0] if found and scheme in _SCHEMES else ""
        return {"server": server} if server else {}

    def unstrip_protocol(self, name: str) -> str:
        """The URL of a path, with the name of the server if it has one."""
        named = self.server if self.server and ":" not in self.server else ""
        return f"exec://{named}{self._strip_protocol(name)}"

    # Facts.

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Kind, size and times of what *path* leads to."""
        path = self._strip_protocol(path)
        found = self._files.get_metadata(path, attributes=True)
        facts = {
            "name": path,
            "size": 0 if found.is_directory else found.size,
            "type": "directory" if found.is_directory else "file" if found.is_file else "other",
            "created": _time(found.created_at_ms),
            "mtime": _time(found.modified_at_ms),
            "islink": found.is_symlink,
        }
        return facts | ({"mode": found.mode} if isinstance(found.mode, int) else {})

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """What is in a directory, or the file itself."""
        path = self._strip_protocol(path)
        if (own := self.info(path))["type"] != "directory":
            return [own if detail else path]
        prefix = path.rstrip("/")
        names = sorted(f"{prefix}/{entry.name}" for entry in self._files.read_directory(path))
        return [self._info_or_name(name) for name in names] if detail else names

    def _info_or_name(self, path: str) -> dict[str, Any]:
        try:
            return self.info(path)
        except FileNotFoundError:
            # It was removed meanwhile, or is a link that leads nowhere.
            return {"name": path, "size": 0, "type": "other"}

    def created(self, path: str) -> Any:
        """When a file was made, as far as its file system knows."""
        return self.info(path)["created"]

    def modified(self, path: str) -> Any:
        """When a file was written."""
        return self.info(path)["mtime"]

    # Directories and names.

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Make a directory. Raises FileExistsError."""
        self._files.create_directory(self._new(path), recursive=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a directory and those above it."""
        path = self._strip_protocol(path) if exist_ok else self._new(path)
        self._files.create_directory(path, recursive=True)

    def _new(self, path: str) -> str:
        path = self._strip_protocol(path)
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return path

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        if not self.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        self._files.remove(self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        """Remove a file."""
        self._files.remove(self._strip_protocol(path))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove files, and directories with *recursive*."""
        if maxdepth is not None:
            super().rm(path, recursive=recursive, maxdepth=maxdepth)
            return
        for found in reversed(self.expand_path(path)):
            if not recursive and self.isdir(found):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), found)
            self._files.remove(found, recursive=recursive)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copy within the server."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(source):
            self.makedirs(target, exist_ok=True)
            return
        self._make_parent(target)
        self._files.copy(source, target)

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Rename, in one step on one file system; otherwise copy and remove."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if not kwargs and not self.isdir(target):
            try:
                self._make_parent(target)
                self._files.rename(source, target)
                return
            except (exec_server.MethodNotFound, OSError) as exc:
                if isinstance(exc, FileNotFoundError):
                    raise
        super().mv(path1, path2, **kwargs)

    def _make_parent(self, path: str) -> None:
        if self.auto_mkdir:
            self._files.create_directory(self._parent(path), recursive=True)

    # Content.

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> Any:
        """The content of a file, or a part of it; negative numbers count from the end."""
        path = self._strip_protocol(path)
        if start is None and end is None:
            return self._files.read_bytes(path)
        first, last, _ = slice(start, end).indices(self.info(path)["size"])
        if last <= first:
            return b""
        return self._files.read_stream(path, offset=first, length=last - first).read()

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        """Write a whole file; with *mode* `create` it must not exist."""
        path = self._new(path) if mode == "create" else self._strip_protocol(path)
        self._make_parent(path)
        self._files.write_bytes(path, bytes(value))

    def _open(
        self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any
    ) -> AbstractBufferedFile:
        if mode[0] == "x":
            self._new(path)
        if mode[0] != "r":
            self._make_parent(path)
        return ExecServerFile(self, path, mode, block_size or "default", **kwargs)


class ExecServerFile(AbstractBufferedFile):
    """A file that is read and written in blocks."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        return bytes(self.fs.cat_file(self.path, start, end))

    def _initiate_upload(self) -> None:
        # Without autocommit, or in a transaction, readers see the file when it is complete.
        self._target = self.path if self.autocommit else f"{self.path}.{uuid.uuid4().hex[:8]}.part"
        if self.mode[0] == "a" and self.autocommit:
            return
        if self.mode[0] == "a" and self.fs.exists(self.path):
            self.fs.cp_file(self.path, self._target)
        else:
            self.fs._files.write_bytes(self._target, b"")

    def _upload_chunk(self, final: bool = False) -> bool:
        self.fs._files.append(self._target, self.buffer.getvalue())
        return True

    def commit(self) -> None:
        """Give a file of a transaction its name."""
        self.fs._files.rename(self._target, self.path)

    def discard(self) -> None:
        """Remove what was written in a transaction."""
        self.fs._files.remove(self._target, force=True)


def _time(milliseconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
