"""What happened: who did what to which environment, when, from where; never with which content."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO

import msgspec

from exec_server.hub.records import Event, Token
from exec_server.hub.store import Store


class Audit:
    """Keeps events in the store, and writes each as a line of JSON where that is wanted."""

    def __init__(
        self, store: Store, *, clock: Callable[[], float], lines: IO[bytes] | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._lines = lines

    async def note(
        self,
        name: str,
        *,
        token: Token | None = None,
        token_id: str = "",
        environment_id: str = "",
        address: str = "",
        detail: str = "",
    ) -> None:
        event = Event(
            at=self._clock(),
            name=name,
            principal=token.principal if token else "",
            token_id=token.id if token else token_id,
            environment_id=environment_id,
            address=address,
            detail=detail,
        )
        if self._lines is not None:
            self._lines.write(msgspec.json.encode(event) + b"\n")
            self._lines.flush()
        await self._store.add_event(event)
