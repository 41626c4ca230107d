"""The calls of the page about ports."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from exec_server.errors import InvalidRequest
from exec_server.web.call_words import Call, CallWords

if TYPE_CHECKING:
    from exec_server.web.places import PagePlaces, Place

_MAX_PORT = 65535


class PortCalls:
    """The calls of one tab."""

    def __init__(self, places: PagePlaces, find: Callable[[CallWords], Place]) -> None:
        self._places = places
        self._find = find

    def by_name(self) -> dict[str, Call]:
        return {
            "port.list": self._list,
            "port.preview": self._preview,
            "port.forward": self._forward,
            "port.close": self._close,
        }

    async def _list(self, words: CallWords) -> Any:
        place = self._find(words)
        facts = await place.ports.listed(place.client)
        elsewhere = self._places.forwards_elsewhere(place.facts.name)
        return facts | {"elsewhere": elsewhere, "canOpen": self._places.is_local}

    async def _preview(self, words: CallWords) -> Any:
        place, port = self._find(words), words.number("port", least=1, most=_MAX_PORT)
        self._check_local()
        return await place.ports.preview(place.client, port)

    async def _forward(self, words: CallWords) -> Any:
        place, port = self._find(words), words.number("port", least=1, most=_MAX_PORT)
        listen = words.number("listen", most=_MAX_PORT)
        self._check_local()
        return await place.ports.forward(place.client, port, listen=listen)

    async def _close(self, words: CallWords) -> Any:
        await self._find(words).ports.shut(words.name("id"))

    def _check_local(self) -> None:
        if not self._places.is_local:
            raise InvalidRequest(
                "ports are opened on the loopback of the machine on which the page is served; use "
                "`exec-server port` on your own machine"
            )
