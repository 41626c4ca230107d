"""Each scope is refused with an error of its own, and nothing of the request is done."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from exec_server.errors import RpcError, ScopeRefused
from exec_server.server.principals.refused_requests import RefusedRequest
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.principals import LIMITS, MadePrincipals
from tests.support.wire import Wire, start_params

REFUSED = -32020
CHUNK = base64.b64encode(b"x").decode()


def requests(folder: str) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """Requests that need each scope."""
    there, new = f"file://{folder}/there", f"file://{folder}/new"
    target = "http://127.0.0.1:1/"
    return {
        "exec": [
            ("process/start", start_params("p", ["touch", f"{folder}/new"])),
            ("process/read", {"processId": "p"}),
            ("process/write", {"processId": "p", "chunk": CHUNK}),
            ("process/signal", {"processId": "p", "signal": "interrupt"}),
            ("process/terminate", {"processId": "p"}),
            ("process/list", {}),
            ("job/list", {}),
            ("job/prune", {}),
        ],
        "files:read": [
            ("fs/readFile", {"path": there}),
            ("fs/open", {"path": there, "handleId": "h"}),
            ("fs/readBlock", {"handleId": "h", "offset": 0, "len": 1}),
            ("fs/getMetadata", {"path": there}),
            ("fs/readDirectory", {"path": f"file://{folder}"}),
            ("fs/copy", {"sourcePath": there, "destinationPath": new, "recursive": False}),
        ],
        "files:write": [
            ("fs/writeFile", {"path": new, "dataBase64": CHUNK}),
            ("fs/open", {"path": there, "handleId": "h", "mode": "replace"}),
            ("fs/open", {"path": there, "handleId": "u", "mode": "update"}),
            ("fs/writeBlock", {"handleId": "h", "offset": 0, "chunk": CHUNK}),
            ("fs/createDirectory", {"path": new, "recursive": True}),
            ("fs/remove", {"path": there, "recursive": True, "force": True}),
            ("fs/rename", {"sourcePath": there, "destinationPath": new}),
            ("fs/setPermissions", {"path": there, "mode": 0}),
        ],
        "http": [("http/request", {"method": "GET", "url": target, "requestId": "r"})],
        "admin": [
            ("server/stop", {}),
            ("server/stop", {"jobs": True}),
            ("job/list", {"all": True}),
            ("job/prune", {"all": True}),
        ],
    }


EVERYTHING = ("exec", "files:read", "files:write", "http", "admin")


@requirement("principals:scopes")
@pytest.mark.parametrize("lacking", EVERYTHING)
async def test_a_request_without_its_scope_is_refused(no_leaks, tmp_path, lacking):
    (tmp_path / "there").write_text("content")
    made = MadePrincipals(tmp_path)
    others = [scope for scope in EVERYTHING if scope not in (lacking, "admin")]
    made.add("ci", ",".join(others))
    reports: list[RefusedRequest] = []
    async with serve(limits=LIMITS, principals=made.path) as running:
        running.core.on_refused = reports.append
        async with made.wire(running.url, "ci") as wire:
            await wire.initialize(errorDetails=True)
            asked = requests(str(tmp_path))[lacking]
            for method, params in asked:
                error = await wire.error(method, params)
                assert error == {
                    "code": REFUSED,
                    "message": f"principal `ci` may not use {lacking}",
                    "data": {"scope": lacking, "principal": "ci"},
                }, method
            # Everything else is still answered.
            assert (await wire.call("session/whoami", {}))["principal"] == "ci"
            assert (await wire.call("environment/status", {}))["status"] == "ready"
            assert running.core.on_stop is None
    assert [report.scope for report in reports] == [lacking] * len(asked)
    assert {report.principal for report in reports} == {"ci"}
    assert all(report.peer.startswith("127.0.0.1:") for report in reports)
    assert (tmp_path / "there").read_text() == "content" and not (tmp_path / "new").exists()


@requirement("principals:scopes")
async def test_what_a_scope_covers_is_done(no_leaks, tmp_path):
    (tmp_path / "there").write_text("content")
    made = MadePrincipals(tmp_path)
    made.add("reader", "files:read")
    made.add("writer", "files:write")
    made.add("runner", "exec")
    made.add("none", "")
    there = f"file://{tmp_path}/there"
    async with serve(limits=LIMITS, principals=made.path) as running:
        async with made.wire(running.url, "reader") as wire:
            await wire.initialize()
            await wire.call("fs/open", {"path": there, "handleId": "h"})
            block = await wire.call("fs/readBlock", {"handleId": "h", "offset": 0, "len": 100})
            assert base64.b64decode(block["chunk"]) == b"content"
            await wire.call("fs/close", {"handleId": "h"})
        async with made.wire(running.url, "writer") as wire:
            await wire.initialize()
            await wire.call("fs/open", {"path": there, "handleId": "h", "mode": "replace"})
            await wire.call("fs/writeBlock", {"handleId": "h", "offset": 0, "chunk": CHUNK})
            await wire.call("fs/close", {"handleId": "h"})
        assert (tmp_path / "there").read_text() == "x"
        async with made.wire(running.url, "runner") as wire:
            await wire.initialize()
            assert (await wire.run("p", ["echo", "hi"])).stdout == b"hi\n"
        async with made.wire(running.url, "none") as wire:
            await wire.initialize()
            assert (await wire.call("session/whoami", {}))["may"] == []


@requirement("principals:scopes")
async def test_an_unrestricted_principal_pays_nothing(no_leaks, tmp_path):
    made = MadePrincipals(tmp_path)
    made.add("boss", "admin")
    async with serve(limits=LIMITS, principals=made.path) as running:
        async with made.wire(running.url, "boss") as wire:
            await wire.initialize()
            (context,) = running.core._contexts
            assert context.routes is running.core.routes
            assert context.who.name == "boss" and context.connection.principal == "boss"


@requirement("principals:scopes")
async def test_clients_that_ask_for_no_details_get_none(no_leaks, tmp_path):
    made = MadePrincipals(tmp_path)
    made.add("ci", "http")
    async with serve(limits=LIMITS, principals=made.path) as running:
        async with made.wire(running.url, "ci") as wire:
            await wire.initialize()
            assert await wire.error("process/list", {}) == {
                "code": REFUSED,
                "message": "principal `ci` may not use exec",
            }


@requirement("principals:whoami")
async def test_whoami_tells_scopes_and_floors(no_leaks, tmp_path):
    from exec_server.access.principal import Floors, Quotas

    made = MadePrincipals(tmp_path)
    made.add("ci", "exec,files:read", floors=Floors(roots=("/srv",)), quotas=Quotas(rate=20.0))
    async with serve(limits=LIMITS, principals=made.path) as running:
        async with made.wire(running.url, "ci") as wire:
            await wire.initialize()
            assert await wire.call("session/whoami", {}) == {
                "principal": "ci",
                "may": ["exec", "files:read"],
                "floors": {"roots": ["/srv"]},
                "quotas": {"rate": 20.0},
            }
    async with serve() as running, Wire(running.url) as wire:
        result = await wire.initialize()
        assert result["environmentInfo"]["capabilities"]["sessionWhoami"] is True
        found = await wire.call("session/whoami", {})
        assert found["principal"].startswith("uid:") and len(found["may"]) == 5


def test_the_client_gets_the_scope_and_the_principal():
    data = {"scope": "exec", "principal": "ci"}
    error = RpcError.from_wire(REFUSED, "principal `ci` may not use exec", data)
    assert isinstance(error, ScopeRefused)
    assert (error.scope, error.principal, error.retryable) == ("exec", "ci", False)
    assert error.details() == data
    odd = RpcError.from_wire(REFUSED, "no", {"scope": 1})
    assert isinstance(odd, ScopeRefused) and odd.scope is None and odd.details() is None
