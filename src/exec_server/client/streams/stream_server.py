"""RemoteServer: what `client.start_server` returns, in the manner of `asyncio.Server`."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from exec_server.client.streams.client_streams import RemoteListener
from exec_server.client.streams.stream_place import StreamPlace


class RemoteServer:
    """A listener on the server's machine; leaving its block closes it.

    It goes on after a lost connection, as the session does. If the session is lost, or the server
    was killed, it is closed, and `serve_forever` raises ConnectionResetError.
    """

    def __init__(self, listener: RemoteListener) -> None:
        self._listener = listener
        self._closed: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        listener.on_lost = self._settle

    @property
    def address(self) -> tuple[str, int] | str:
        """The host and port that it listens on, or the path of a Unix socket."""
        place = self._listener.place
        return place.path if place.path is not None else (place.host or "", place.port or 0)

    @property
    def place(self) -> StreamPlace:
        return self._listener.place

    def is_serving(self) -> bool:
        return not self._closed.done()

    def close(self) -> None:
        """Accept no more connections; those that were accepted go on."""
        self._listener.close()
        self._settle(None)

    async def wait_closed(self) -> None:
        """Wait until it accepts no more, for whatever reason."""
        await asyncio.shield(self._closed)

    async def serve_forever(self) -> None:
        """Wait until it is lost, or the task is cancelled; then it is closed."""
        try:
            reason = await asyncio.shield(self._closed)
        finally:
            self.close()
        if reason is not None:
            raise ConnectionResetError(reason)

    def _settle(self, reason: str | None) -> None:
        if not self._closed.done():
            self._closed.set_result(reason)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
