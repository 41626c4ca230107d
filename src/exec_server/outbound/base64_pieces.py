"""Base64 of a body while it arrives, so that its bytes and their base64 are never both kept."""

from __future__ import annotations

from exec_server.protocol.base64 import encode_base64

# The number is a multiple of three, so that there is no padding between two pieces. Each becomes
# 1 MiB of text. Many small reads share one piece.
_PIECE_BYTES = 768 * 1024


class Base64Pieces:
    """Takes the bytes of a body in any sizes."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._pieces: list[bytes] = []
        # The number of bytes so far.
        self.size = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self._rest += data
        while len(self._rest) >= _PIECE_BYTES:
            with memoryview(self._rest) as rest:
                self._pieces.append(encode_base64(rest[:_PIECE_BYTES]))
            del self._rest[:_PIECE_BYTES]

    def finish(self) -> list[bytes]:
        """Return the base64 of all bytes, in pieces."""
        pieces, self._pieces = self._pieces, []
        pieces.append(encode_base64(bytes(self._rest)))
        return pieces
