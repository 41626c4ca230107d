"""The result of a transfer."""

from __future__ import annotations

import os
from typing import Literal, NamedTuple

import msgspec

from exec_server.errors import TransferFailed

# How a copy is verified: by its size, or also by a checksum of its content.
Verify = Literal["size", "hash"]
Attribute = Literal["modes", "times", "links"]


class Remark(NamedTuple):
    """Something that was left out or went wrong; the path is relative to the root of the tree."""

    path: str
    text: str


class TransferResult(msgspec.Struct, kw_only=True):
    """What was copied, what was not, and why."""

    # The numbers of copied files, their bytes, links and directories.
    files: int = 0
    bytes: int = 0
    links: int = 0
    directories: int = 0
    # The number of files that were at the destination already.
    kept: int = 0
    # The part of `bytes` that an earlier attempt had copied.
    resumed_bytes: int = 0
    # The part of `bytes` that was in the old version of a file, and was not sent again.
    matched_bytes: int = 0
    # The number of files, links and directories that were removed.
    removed: int = 0
    # Entries that are neither a file, a directory nor a link.
    skipped: list[Remark] = []
    problems: list[Remark] = []
    # Attributes that the server can neither report nor set.
    not_kept: set[Attribute] = set()

    def check(self, source: str = "", destination: str = "") -> None:
        """Raise TransferFailed if something could not be copied.

        Its text names *source* and *destination*, and the first path below them.
        """
        if not self.problems:
            return
        path, text = self.problems[0]
        roots = f" from {source!r} to {destination!r}" if source else ""
        first = text if source and path == "." else f"{path}: {text}"
        more = f", and {len(self.problems) - 1} more" if len(self.problems) > 1 else ""
        raise TransferFailed(f"not everything was copied{roots}: {first}{more}", self)


def remark(path: bytes, text: str) -> Remark:
    return Remark(os.fsdecode(path) or ".", text)
