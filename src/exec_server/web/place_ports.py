"""Ports of an environment that the page has opened: previews of web pages, and plain forwards."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import msgspec

from exec_server.client.streams.forwards import PortForward, listening_socket
from exec_server.client.streams.preview_front import PreviewFront, host_label
from exec_server.client.streams.stream_place import StreamPlace
from exec_server.errors import InvalidRequest, MethodNotFound, ScopeRefused

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient
    from exec_server.protocol.streams import ListeningPort

# Doors of one environment, and streams that are listed.
MAX_DOORS = 64
_MAX_LISTED = 500
_LOOPBACK = "127.0.0.1"
_CLOSE_SECONDS = 2.0


class OpenDoor(msgspec.Struct, kw_only=True):
    """A port of the environment that can be reached on this machine."""

    id: str
    port: int
    # The address of a preview; None for a plain forward.
    url: str | None = None
    forward: PortForward
    # Why the last connection was not made.
    problem: str | None = None

    def as_json(self) -> dict[str, Any]:
        address = self.forward.address
        return {
            "id": self.id,
            "port": self.port,
            "url": self.url,
            "listen": address if isinstance(address, str) else f"{address[0]}:{address[1]}",
            "problem": self.problem,
        }


class PlacePorts:
    """The doors of one environment. They stay when the connection is made anew."""

    def __init__(self, name: str) -> None:
        self._label = host_label(name)
        self._front: PreviewFront | None = None
        self._doors: dict[str, OpenDoor] = {}
        self._ids = itertools.count(1)

    def adopt(self, client: ExecServerClient) -> None:
        """Use another connection for what comes from now on."""
        for forward in self._forwards():
            client.adopt_forward(forward)

    async def listed(self, client: ExecServerClient) -> dict[str, Any]:
        """The ports that own processes listen on, the doors, and all streams of the server."""
        ports, is_known = await _listening(client)
        try:
            streams = await client.list_streams(all_sessions=True)
        except (MethodNotFound, ScopeRefused):
            streams = []
        return {
            "ports": [
                {
                    "port": each.port,
                    "addresses": each.addresses,
                    "pid": each.pid,
                    "processId": each.process_id,
                    "command": each.command or None,
                }
                for each in ports[:_MAX_LISTED]
            ],
            "isKnown": is_known,
            "doors": [each.as_json() for each in self._doors.values()],
            "streams": [msgspec.to_builtins(each) for each in streams[:_MAX_LISTED]],
        }

    async def preview(self, client: ExecServerClient, port: int) -> dict[str, Any]:
        """An address of its own for the web page of *port*."""
        for door in self._doors.values():
            if door.port == port and door.url is not None:
                return door.as_json()
        self._check_room()
        if self._front is None:
            sock = await listening_socket(StreamPlace(_LOOPBACK, 0))
            self._front = client.forward_with(
                lambda owner: PreviewFront(owner, sock, self._label, set(), self._report)
            )
        front = self._front
        front.show(port)
        return self._add(port, front, url=front.url(port))

    async def forward(self, client: ExecServerClient, port: int, *, listen: int) -> dict[str, Any]:
        """Listen on the loopback of this machine for connections to *port*; 0 is any free port."""
        self._check_room()
        door: OpenDoor | None = None

        def report(text: str) -> None:
            if door is not None:
                door.problem = text

        made = await client.forward((_LOOPBACK, listen), ("localhost", port), on_error=report)
        facts = self._add(port, made)
        door = self._doors[facts["id"]]
        return facts

    async def shut(self, door_id: str) -> None:
        """Close a door. Raises InvalidRequest if there is none with this id."""
        door = self._doors.pop(door_id, None)
        if door is None:
            raise InvalidRequest("this port is not open any more")
        if isinstance(door.forward, PreviewFront):
            door.forward.hide(door.port)
            if any(each.url is not None for each in self._doors.values()):
                return
            self._front = None
        await _close(door.forward)

    async def close(self) -> None:
        """Close all doors."""
        forwards = self._forwards()
        self._doors.clear()
        self._front = None
        for forward in forwards:
            await _close(forward)

    def _forwards(self) -> list[PortForward]:
        return list({id(each.forward): each.forward for each in self._doors.values()}.values())

    def _add(self, port: int, forward: PortForward, *, url: str | None = None) -> dict[str, Any]:
        door = OpenDoor(id=str(next(self._ids)), port=port, url=url, forward=forward)
        self._doors[door.id] = door
        return door.as_json()

    def _report(self, text: str) -> None:
        """The front says `port 3000: why`."""
        word, _, why = text.removeprefix("port ").partition(": ")
        for door in self._doors.values():
            if door.url is not None and str(door.port) == word:
                door.problem = why

    def _check_room(self) -> None:
        if len(self._doors) >= MAX_DOORS:
            raise InvalidRequest(f"{MAX_DOORS} ports are open; close some")


async def _listening(client: ExecServerClient) -> tuple[list[ListeningPort], bool]:
    try:
        return await client.listening_ports(all_sessions=True), True
    except (MethodNotFound, ScopeRefused):
        # Other servers and other systems do not say.
        return [], False


async def _close(forward: PortForward) -> None:
    forward.close()
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await forward.wait_closed()
    except TimeoutError:
        pass
