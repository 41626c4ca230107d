"""What a client can ask about streams and ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from exec_server.protocol.streams import PORTS, ListeningPort, PortsParams, StreamInfo

if TYPE_CHECKING:
    from exec_server.client.client_session import ClientSession


class StreamLists:
    """The part of a client that lists streams and ports."""

    _session: ClientSession

    async def list_streams(self, *, all_sessions: bool = False) -> list[StreamInfo]:
        """The streams and listeners that the server has for this client.

        With *all_sessions* those of all sessions of its principal; an admin gets those of all.
        """
        return await self._session.streams.list(all_sessions=all_sessions)

    async def listening_ports(
        self, process_id: str | None = None, *, all_sessions: bool = False
    ) -> list[ListeningPort]:
        """The TCP ports that processes of this session listen on, or only one of them.

        With *all_sessions* those of all sessions of its principal.
        """
        await self._session.require("processPorts", "it cannot say which ports are in use")
        params = PortsParams(process_id, all_sessions)
        return (await self._session.call(PORTS, params, repeat=True)).ports
