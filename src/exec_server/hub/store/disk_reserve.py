"""Disk space that is set aside, so that a registry goes on for a while when its disk is full."""

from __future__ import annotations

import logging
import os

logger = logging.getLogger(__name__)

# A connect and a registration take less than 2 KiB each, and their space is used again.
RESERVED_BYTES = 4 << 20
# The disk counts as free again when so much of it is.
_FREE_BYTES = 4 * RESERVED_BYTES


class DiskReserve:
    """A file beside the state. It is removed when the disk is full, and made again later.

    All methods may block.
    """

    def __init__(self, path: str) -> None:
        self._path = f"{path}.reserve"
        self.is_released = False
        if not self._make():
            self.is_released = True
            logger.warning("no disk space can be set aside for %s", path)

    def release(self) -> bool:
        """Give the space to the state; False if that was done before."""
        if self.is_released:
            return False
        self.is_released = True
        logger.error("the disk of the registry's state is full: events are kept in memory only")
        self._remove()
        return True

    def restore(self) -> bool:
        """Set the space aside again if the disk has enough; True if it is set aside."""
        if self.is_released and self._is_disk_free() and self._make():
            self.is_released = False
            logger.warning("the disk of the registry's state has space again")
        return not self.is_released

    def _is_disk_free(self) -> bool:
        try:
            disk = os.statvfs(os.path.dirname(os.path.abspath(self._path)))
        except OSError:
            return False
        return disk.f_bavail * disk.f_frsize >= _FREE_BYTES

    def _make(self) -> bool:
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, RESERVED_BYTES)
            finally:
                os.close(descriptor)
        except OSError:
            self._remove()
            return False
        return True

    def _remove(self) -> None:
        try:
            os.unlink(self._path)
        except OSError as exc:
            logger.warning("%s cannot be removed: %s", self._path, exc.strerror)
