"""An sftp server without ssh, for tests that call it."""

from __future__ import annotations


class NoChannel:
    """The ssh channel of a server that is called by a test."""

    def get_connection(self) -> None:
        """There is no connection."""

    def get_extra_info(self, name: str) -> None:
        """There is nothing more."""
