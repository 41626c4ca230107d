"""StreamPlace: where a stream leads, or where a listener is."""

from __future__ import annotations

import os
from typing import NamedTuple

from exec_server.errors import ConfigurationError

# A port of the loopback, a host with a port, or the path of a Unix socket.
AnyPlace = int | tuple[str, int] | str | os.PathLike[str]

_PORTS = range(65536)


class StreamPlace(NamedTuple):
    """A host and a port, or the path of a Unix socket."""

    host: str | None = None
    port: int | None = None
    path: str | None = None

    @classmethod
    def of(cls, place: AnyPlace) -> StreamPlace:
        """Read *place*. Raises ConfigurationError."""
        if isinstance(place, int):
            return cls.tcp("localhost", place)
        if isinstance(place, tuple):
            return cls.tcp(*place)
        return cls.unix(place)

    @classmethod
    def tcp(cls, host: str, port: int) -> StreamPlace:
        if port not in _PORTS:
            raise ConfigurationError(f"{port} is not a port")
        return cls(host or "localhost", port)

    @classmethod
    def unix(cls, path: str | os.PathLike[str]) -> StreamPlace:
        text = os.fspath(path)
        if not text.startswith("/"):
            raise ConfigurationError(f"`{text}`: the path of a Unix socket begins with /")
        return cls(path=text)

    def __str__(self) -> str:
        if self.path is not None:
            return self.path
        host = self.host or ""
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
