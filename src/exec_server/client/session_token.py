"""Session tokens: the text with which another program continues a session."""

from __future__ import annotations

import base64
import binascii

import msgspec

from exec_server.errors import ConfigurationError


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """The number up to which the output of a process was taken, for each stream."""

    stdout: int = 0
    stderr: int = 0
    is_terminal: bool = False
    # True if the process has a window, so that the server keeps what was not taken.
    has_window: bool = False


class SessionToken(msgspec.Struct, frozen=True, array_like=True, tag="exec-server-1"):
    """A session and its processes. A token is a secret: with it, another client gets them all."""

    session_id: str
    cursors: dict[str, Cursor]

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    def __repr__(self) -> str:
        return f"SessionToken(..., processes={list(self.cursors)})"

    @staticmethod
    def parse(text: str) -> SessionToken:
        """The token of a text. Raises ConfigurationError if it is not valid."""
        try:
            data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            return msgspec.json.decode(data, type=SessionToken)
        except (binascii.Error, ValueError, msgspec.MsgspecError) as exc:
            raise ConfigurationError(f"this is no session token: {exc}") from None
