"""Who drives a durable process is known to the next server."""

from __future__ import annotations

import base64

import pytest

from tests.requirements import requirement
from tests.support.wire import Wire

pytestmark = pytest.mark.one_loop

LOST = -32040


@requirement("sharing/control:restart")
async def test_the_epoch_and_the_driver_survive_kill_9(servers):
    chunk = {"processId": "p", "chunk": base64.b64encode(b"agent\n").decode()}
    async with Wire(servers.url) as agent, Wire(servers.url) as person:
        session = (await agent.initialize())["sessionId"]
        await agent.start("p", ["cat"], pipeStdin=True, durable=True, name="work")
        await person.initialize()
        watch = {"processId": "p", "watchId": "w", "kind": "person", "name": "ann"}
        await person.call("process/watch", watch)
        assert (await person.call("process/control", {"processId": "w", "action": "take"}))[
            "epoch"
        ] == 2
        servers.kill()
    servers.start()
    async with Wire(servers.url) as agent, Wire(servers.url) as person:
        await agent.initialize(resumeSessionId=session, errorDetails=True)
        error = await agent.error("process/write", {**chunk, "writeId": "1"})
        assert (error["code"], error["data"]["by"], error["data"]["epoch"]) == (LOST, "ann", 2)
        [job] = (await agent.call("job/list", {}))["jobs"]
        assert (job["name"], job["driver"]) == ("work", "ann")
        await person.initialize()
        await person.call("process/watch", watch)
        taken = await person.call("process/control", {"processId": "w", "action": "take"})
        assert taken["epoch"] == 3
        assert await person.write("w", b"person\n", "1") == "accepted"
        await person.call("process/control", {"processId": "w", "action": "giveBack"})
        await person.call("process/unwatch", {"watchId": "w"})
