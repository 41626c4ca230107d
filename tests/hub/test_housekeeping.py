"""The housekeeping of a registry ends with it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from exec_server.hub.registry_service import _housekeeping
from exec_server.hub.store import StoreUnavailable


class Rendezvous:
    """Its call is answered, or fails, at the moment in which it is cancelled."""

    def __init__(self, error: Exception | None) -> None:
        self.asked = asyncio.Event()
        self._error = error

    async def end_revoked(self) -> None:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if self._error is not None:
                raise self._error from None


class Counted:
    async def refresh(self) -> None: ...

    async def forget(self, **_: object) -> None: ...


@pytest.mark.parametrize("error", [None, StoreUnavailable("away"), OSError("away")])
async def test_it_ends_though_what_it_waited_for_has_swallowed_the_cancellation(error):
    rendezvous = Rendezvous(error)
    parts = SimpleNamespace(
        rendezvous=rendezvous,
        clock=lambda: 1e9,
        environments=Counted(),
        store=Counted(),
        limits=SimpleNamespace(hub_audit_days=1, hub_revocation_seconds=3600),
    )
    async with asyncio.timeout(20), _housekeeping(cast(Any, parts), None):
        await rendezvous.asked.wait()
    # Nothing of it is left but this test.
    assert asyncio.all_tasks() == {asyncio.current_task()}
