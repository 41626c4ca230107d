"""The extensions of this project, for servers that announce them."""

from __future__ import annotations

import base64

from exec_server.conformance.check import CheckSkipped, Kit, check, expect, expect_that
from exec_server.conformance.kit_process import run, start
from exec_server.conformance.kit_wire import KitWire


async def _announced(kit: Kit, capability: str) -> KitWire:
    wire = await kit.ready()
    facts = await wire.call("environment/info")
    if not facts.get("capabilities", {}).get(capability):
        raise CheckSkipped(f"the server does not announce `{capability}`")
    return wire


@check("ext.resize", "`process/resize` changes the size of a terminal.", suite="extensions")
async def resize(kit: Kit) -> None:
    wire = await _announced(kit, "processResize")
    script = "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.05; done"
    process = await start(wire, ["/bin/sh", "-c", script], tty=True, rows=10, cols=20)
    await process.output_until(b"ready")
    await wire.call("process/resize", {"processId": process.id, "rows": 30, "cols": 100})
    await process.output_until(b"30 100")


@check(
    "ext.close-stdin",
    "`process/closeStdin` ends the input after what was written.",
    suite="extensions",
)
async def close_stdin(kit: Kit) -> None:
    wire = await _announced(kit, "processCloseStdin")
    process = await start(wire, ["sort"], pipeStdin=True)
    await process.write(b"b\na\n", "1")
    answer = await wire.call("process/closeStdin", {"processId": process.id})
    expect("the answer", answer, {"status": "accepted"})
    expect("the output", (await process.finished()).output("stdout"), b"a\nb\n")


@check("ext.signals", "`process/signal` sends every signal by its name.", suite="extensions")
async def signals(kit: Kit) -> None:
    wire = await _announced(kit, "processSignals")
    process = await start(wire, ["sleep", "60"])
    await wire.call("process/signal", {"processId": process.id, "signal": "TERM"})
    expect("the exit code", (await process.finished()).exit_code, 143)


@check("ext.list", "`process/list` names the processes of the session.", suite="extensions")
async def listing(kit: Kit) -> None:
    wire = await _announced(kit, "processList")
    process = await start(wire, ["sleep", "60"])
    found = (await wire.call("process/list"))["processes"]
    expect("the processes", [each["processId"] for each in found], [process.id])
    expect("the state", found[0]["state"], "running")
    await wire.call("process/terminate", {"processId": process.id})


@check("ext.rename", "`fs/rename` replaces a file in one step.", suite="extensions")
async def rename(kit: Kit) -> None:
    wire = await _announced(kit, "fsRename")
    made = await run(wire, ["mktemp", "-d"])
    folder = "file://" + made.output("stdout").decode().strip()
    data = base64.b64encode(b"new").decode()
    await wire.call("fs/writeFile", {"path": f"{folder}/a", "dataBase64": data})
    await wire.call("fs/writeFile", {"path": f"{folder}/b", "dataBase64": ""})
    names = {"sourcePath": f"{folder}/a", "destinationPath": f"{folder}/b", "overwrite": True}
    await wire.call("fs/rename", names)
    found = await wire.call("fs/readFile", {"path": f"{folder}/b"})
    expect("the content", base64.b64decode(found["dataBase64"]), b"new")
    await wire.call("fs/remove", {"path": folder, "recursive": True, "force": True})


@check(
    "ext.discover", "`rpc.discover` describes every method that it announces.", suite="extensions"
)
async def discover(kit: Kit) -> None:
    wire = await _announced(kit, "rpcDiscover")
    document = await wire.call("rpc.discover")
    names = {method["name"] for method in document["methods"]}
    expect_that({"initialize", "process/start", "rpc.discover"} <= names, "all methods", names)


@check(
    "ext.flow",
    "With a window no output is dropped, however slowly it is taken.",
    suite="extensions",
)
async def flow(kit: Kit) -> None:
    wire = await _announced(kit, "processFlow")
    script = "head -c 3000000 /dev/zero | tr '\\0' x"
    process = await start(wire, ["/bin/sh", "-c", script], flowWindow=65536)
    size, closed = 0, False
    while not closed:
        message = await wire.find(
            lambda m: (
                str(m.get("method", "")).startswith("process/")
                and m["params"]["processId"] == process.id
            )
        )
        params = message["params"]
        closed = message["method"] == "process/closed"
        if message["method"] == "process/output":
            size += len(base64.b64decode(params["chunk"]))
            await wire.send(
                {"method": "process/ack", "params": {"processId": process.id, "seq": params["seq"]}}
            )
    expect("the number of bytes", size, 3_000_000)
