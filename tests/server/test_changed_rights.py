"""What a session keeps when the rights of its principal change while it has no connection."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from exec_server.access.principal import Floors, Principal, Scope
from tests.requirements import requirement
from tests.support.local import connected, resumed
from tests.support.tenants import Tenants, serving
from tests.support.wire import PATIENCE, Wire

CAT = ["cat"]
EXEC: frozenset[Scope] = frozenset(("exec",))
FREE = Principal(name="ci")
# Each has less than FREE.
NARROWED = {
    "scope": Principal(name="ci", may=frozenset(("files:read",))),
    "roots": Principal(name="ci", may=EXEC, floors=Floors(roots=("/srv",))),
    "hosts": Principal(name="ci", floors=Floors(hosts=("example.com",))),
}


@contextlib.asynccontextmanager
async def again(url: str, tenants: Tenants, who: Principal, session: str) -> AsyncIterator[Wire]:
    """The session, with a connection of *who*."""
    tenants.who = who
    wire = await resumed(url, session)
    try:
        yield wire
    finally:
        await wire.socket.close()


@pytest.mark.parametrize("who", NARROWED.values(), ids=NARROWED.keys())
@requirement("security/rights:streams")
async def test_streams_end_with_the_rights_that_opened_them(no_leaks, who):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        async with serving(FREE) as (running, tenants, _):
            async with connected(running.url) as first:
                session = next(iter(running.core.sessions)).id
                params = {"streamId": "s", "host": "127.0.0.1", "port": listener.getsockname()[1]}
                await first.call("stream/open", params)
                listening = await first.call("stream/listen", {"listenerId": "l", "port": 0})
            accepted, _ = listener.accept()
            async with again(running.url, tenants, who, session) as second:
                chunk = base64.b64encode(b"beyond the floor").decode()
                data = {"streamId": "s", "position": 0, "chunk": chunk}
                await second.send({"method": "stream/data", "params": data})
                await second.call("session/ping", {})
                with accepted:
                    accepted.settimeout(PATIENCE)
                    with contextlib.suppress(ConnectionResetError):
                        assert await asyncio.to_thread(accepted.recv, 100) == b""
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", listening["port"])).close()


@requirement("security/rights:streams")
async def test_streams_go_on_if_the_rights_stay(no_leaks):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with serving(FREE) as (running, tenants, _):
            async with connected(running.url) as first:
                session = next(iter(running.core.sessions)).id
                params = {"streamId": "s", "host": "127.0.0.1", "port": listener.getsockname()[1]}
                await first.call("stream/open", params)
            async with again(running.url, tenants, Principal(name="ci"), session) as second:
                held = await second.call("stream/resume", {"streams": {"s": {"received": 0}}})
                assert "reset" not in held["streams"]["s"]


@requirement("security/rights:watches")
async def test_one_who_is_no_admin_any_more_drives_no_process_of_another(no_leaks):
    async with (
        serving(Principal(name="ann", may=EXEC)) as (running, tenants, _),
        connected(running.url, sharing=True) as owner,
    ):
        await owner.start("p", CAT, tty=True)
        tenants.who = Principal(name="bob")
        async with connected(running.url, sharing=True) as admin:
            session = next(each for each in running.core.sessions if each.owner == "bob").id
            watch = {"processId": "p", "watchId": "w", "pictures": False, "kind": "person"}
            await admin.call("process/watch", watch)
            await admin.call("process/control", {"processId": "w", "action": "take"})
        bob = Principal(name="bob", may=EXEC)
        async with again(running.url, tenants, bob, session) as second:
            chunk = base64.b64encode(b"rm -rf ~\n").decode()
            attempts: dict[str, dict[str, Any]] = {
                "process/write": {"writeId": "1", "chunk": chunk},
                "process/read": {"afterSeq": 0},
                "process/control": {"action": "state"},
                "process/terminate": {},
            }
            for method, params in attempts.items():
                answer = await second.answer(
                    await second.request(method, {"processId": "w", **params})
                )
                said = answer.get("error", {}).get("message", answer)
                if method == "process/terminate":
                    assert answer["result"] == {"running": False}
                elif method == "process/write":
                    assert answer["result"] == {"status": "unknownProcess"}
                else:
                    assert said == "unknown process id w"
        # The input is the owner's again.
        state = await owner.call("process/control", {"processId": "p", "action": "state"})
        assert [each["drives"] for each in state["participants"]] == [True]
