"""A `jsonrpc` member, which the protocol does not have, is accepted and ignored on both sides."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from exec_server.client_urls import connect
from exec_server.errors import RpcError
from tests.requirements import requirement
from tests.support.fake_server import Talk, fake_server
from tests.support.wire import Wire, start_params


class Labelled(Wire):
    """Says `jsonrpc` in every message."""

    version: Any = "2.0"

    async def send(self, message: Any) -> None:
        if isinstance(message, dict):
            message = {"jsonrpc": self.version, **message}
        await super().send(message)


@pytest.fixture(params=["ours", "reference"])
def url(request: pytest.FixtureRequest) -> str:
    name = "server" if request.param == "ours" else "reference"
    found: str = request.getfixturevalue(name).url
    return found


@requirement("wire:jsonrpc-member")
@pytest.mark.parametrize("version", ["2.0", "1.0", None, 2, {"x": []}], ids=repr)
async def test_a_server_ignores_the_member(url, version, tmp_path):
    async with Labelled(url) as wire:
        wire.version = version
        await wire.initialize()
        data = base64.b64encode(bytes(5000)).decode()
        path = f"file://{tmp_path}/file"
        assert await wire.call("fs/writeFile", {"path": path, "dataBase64": data}) == {}
        answer = await wire.answer(await wire.request("fs/readFile", {"path": path}))
        assert set(answer) == {"id", "result"} and answer["result"]["dataBase64"] == data
        done = await wire.run("p", ["echo", "hi"])
        assert done.exit_code == 0
        refused = await wire.answer(await wire.request("fs/readFile", {"path": "relative"}))
        assert "jsonrpc" not in refused and refused["error"]["code"] < 0


@requirement("wire:jsonrpc-member")
async def test_the_client_ignores_the_member():
    async def script(talk: Talk) -> None:
        plain = talk.send

        async def labelled(message: Any) -> None:
            await plain({"jsonrpc": "2.0", **message})

        talk.send = labelled  # type: ignore[method-assign]
        await talk.shake_hands()
        request = await talk.expect("process/start")
        process_id = request["params"]["processId"]
        await talk.answer(request, {"processId": process_id, "sandboxType": "none"})
        await talk.output(process_id, 1, bytes(5000))
        await talk.event("process/exited", process_id, seq=2, exitCode=3)
        await talk.event("process/closed", process_id, seq=3)
        await talk.refuse(await talk.expect("environment/status"), -7, "no")
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        process = await client.start(["x"], cwd="/")
        assert await process.stdout.read() == bytes(5000)
        assert await process.wait() == 3
        with pytest.raises(RpcError, match="no"):
            await client.environment_status()


@requirement("wire:jsonrpc-member")
async def test_the_member_may_come_last(server):
    async with Wire(server.url) as wire:
        await wire.initialize()
        params = start_params("p", ["echo", "hi"])
        await wire.send(json.dumps({"id": 9, "method": "process/start", "params": params,
                                    "jsonrpc": "2.0"}))  # fmt: skip
        assert (await wire.answer(9))["result"]["processId"] == "p"
