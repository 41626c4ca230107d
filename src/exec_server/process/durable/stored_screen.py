"""What the next server has to know of a terminal besides its output, so that its screen is exact.

::

    jobs/JOB/sizes       a header, then one record for each size that the terminal has had
    jobs/JOB/checkpoint  bytes that paint the terminal after some output, in case the journal drops
                         what comes before
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

logger = logging.getLogger(__name__)

# Queries in output up to the first number were answered; so many sizes were dropped.
_HEADER = struct.Struct("<QQ")
# The number of the output before the size, rows and columns.
_SIZE = struct.Struct("<QHH4x")
_SIZES_FILE = "sizes"
_CHECKPOINT_FILE = "checkpoint"
_CHECKPOINT = struct.Struct("<Q")
# A checkpoint is written after so much output; a journal keeps several times as much.
_CHECKPOINT_EVERY = 16 << 20
# The host of models sends no larger one, and ends if it gets a much larger one.
_CHECKPOINT_BYTES = 64 * 1024
# A file with more sizes is written again with as many as a process remembers.
_MAX_SIZES, _KEPT_SIZES = 4096, 999
# A damaged header may say more than can be.
_MAX_DROPPED = 1 << 32
_FLAGS = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class StoredSize(NamedTuple):
    """As `NumberedSize`."""

    seq: int
    rows: int
    cols: int


class StoredScreen:
    """The two files in the *folder* of a job. A disk that fails is logged, and nothing else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stored_bytes = 0

    def add_size(self, size: tuple[int, int, int]) -> None:
        """The terminal has a new size: *size* is the number of the last output, rows, columns."""
        with self._logged(), self._opened() as fd:
            count = max(0, os.fstat(fd).st_size - _HEADER.size) // _SIZE.size
            if count >= _MAX_SIZES:
                answered, dropped, records = self._read(fd)
                kept = records[-_KEPT_SIZES * _SIZE.size :]
                dropped = min(dropped + count - _KEPT_SIZES, _MAX_DROPPED)
                header = _HEADER.pack(answered, dropped)
                self._replace(_SIZES_FILE, header + kept + _SIZE.pack(*size))
            else:
                os.pwrite(fd, _SIZE.pack(*size), _HEADER.size + count * _SIZE.size)

    def sizes(self) -> tuple[list[StoredSize], int]:
        """The newest sizes, and how many there were before them."""
        with contextlib.suppress(OSError), self._opened() as fd:
            _, dropped, records = self._read(fd)
            sizes = [StoredSize(*fields) for fields in _SIZE.iter_unpack(records)]
            return sizes[-_KEPT_SIZES:], dropped + max(0, len(sizes) - _KEPT_SIZES)
        return [], 0

    @property
    def answered(self) -> int:
        """Queries in output up to this number were answered."""
        with contextlib.suppress(OSError), self._opened() as fd:
            return self._read(fd)[0]
        return 0

    @answered.setter
    def answered(self, seq: int) -> None:
        with self._logged(), self._opened() as fd:
            os.pwrite(fd, _HEADER.pack(seq, self._read(fd)[1]), 0)

    @staticmethod
    def _read(fd: int) -> tuple[int, int, bytes]:
        """The two numbers of the header, and the whole records."""
        data = os.pread(fd, _HEADER.size + _SIZE.size * (_MAX_SIZES + 1), 0)
        if len(data) < _HEADER.size:
            return 0, 0, b""
        end = len(data) - (len(data) - _HEADER.size) % _SIZE.size
        answered, dropped = _HEADER.unpack_from(data)
        return answered, min(dropped, _MAX_DROPPED), data[_HEADER.size : end]

    # Checkpoints.

    def add_checkpoint(self, seq: int, dump: bytes, total_bytes: int) -> None:
        """Keep a checkpoint if the last one is old; *total_bytes* of output came so far."""
        if total_bytes - self._stored_bytes < _CHECKPOINT_EVERY:
            return
        self._stored_bytes = total_bytes
        with self._logged():
            self._replace(_CHECKPOINT_FILE, _CHECKPOINT.pack(seq) + dump)

    def checkpoint(self) -> tuple[int, bytes] | None:
        """The number of the output that it shows, and the bytes."""
        most = _CHECKPOINT.size + _CHECKPOINT_BYTES
        with (
            contextlib.suppress(OSError, struct.error),
            open(self._folder / _CHECKPOINT_FILE, "rb") as file,
        ):
            data = file.read(most + 1)
            if len(data) <= most:
                return _CHECKPOINT.unpack_from(data)[0], data[_CHECKPOINT.size :]
        return None

    def _replace(self, name: str, data: bytes) -> None:
        new = self._folder / f"{name}.new"
        with open(os.open(new, _FLAGS | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
        new.rename(self._folder / name)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        fd = os.open(self._folder / _SIZES_FILE, _FLAGS, 0o600)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _logged(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            logger.error("the screen of a job could not be saved: %s", exc)
