"""The file calls of one request, with or without a sandbox."""

from __future__ import annotations

from typing import Protocol, TypeVar

from exec_server.protocol import fs
from exec_server.protocol.method import Method, Nothing, Reply

P = TypeVar("P")
R = TypeVar("R")


class FileCalls(Protocol):
    """The calls that `file_service.Files` and `confined_files.ConfinedFiles` both have."""

    def call(self, method: Method[P, R], params: P) -> Reply[R]:
        """Do the operation of *method*, which has an entry in `operations.table`."""
        ...

    # These calls have names, because without a sandbox they mostly need no thread.

    def read_file(self, params: fs.ReadFileParams) -> Reply[fs.ReadFileResult]: ...

    def write_file(self, params: fs.WriteFileParams) -> Reply[Nothing]: ...

    def get_metadata(self, params: fs.GetMetadataParams) -> Reply[fs.Metadata]: ...

    def open(self, params: fs.OpenParams) -> Reply[fs.OpenResult]:
        """Open a file that stays open for the connection, under the client's name for it."""
        ...
