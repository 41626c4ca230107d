"""What came of a transfer."""

from __future__ import annotations

import os
from typing import Literal, NamedTuple

import msgspec

from exec_server.errors import TransferFailed

# How it is made sure that a copy is one: by its size, or also by its content.
Verify = Literal["size", "hash"]
Attribute = Literal["modes", "times", "links"]


class Remark(NamedTuple):
    """Something that was left out or went wrong; the path is as seen from the tree's root."""

    path: str
    text: str


class TransferResult(msgspec.Struct, kw_only=True):
    """What was copied, what was not, and why."""

    # What was copied.
    files: int = 0
    bytes: int = 0
    links: int = 0
    directories: int = 0
    # Files that were already there.
    kept: int = 0
    # Of `bytes`, those that an earlier attempt had copied.
    resumed_bytes: int = 0
    # What is neither a file, a directory nor a link.
    skipped: list[Remark] = []
    problems: list[Remark] = []
    # What the server has no way to tell or to set.
    not_kept: set[Attribute] = set()

    def check(self) -> None:
        """Raise TransferFailed when something could not be copied."""
        if not self.problems:
            return
        first = self.problems[0]
        more = f", and {len(self.problems) - 1} more" if len(self.problems) > 1 else ""
        raise TransferFailed(f"not everything was copied: {first.path}: {first.text}{more}", self)


def remark(path: bytes, text: str) -> Remark:
    return Remark(os.fsdecode(path) or ".", text)
