"""The sandbox of commands and file calls."""

from __future__ import annotations

import base64
from typing import Any

from exec_server.conformance.check import CheckSkipped, Kit, check, expect, expect_that
from exec_server.conformance.kit_process import Finished, run, start_params
from exec_server.conformance.kit_wire import KitWire

_READ_ALL = {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}


def _sandbox(*entries: Any, network: str = "restricted") -> dict[str, Any]:
    files = {"type": "restricted", "entries": [_READ_ALL, *entries]}
    return {
        "permissions": {"type": "managed", "file_system": files, "network": network},
        "windowsSandboxLevel": "disabled",
        "cwd": "file:///tmp",
        "workspaceRoots": ["file:///tmp"],
    }


def _writable(folder: str) -> dict[str, Any]:
    return {"path": {"type": "path", "path": f"file://{folder}"}, "access": "write"}


def _closed(folder: str) -> dict[str, Any]:
    return {"path": {"type": "path", "path": f"file://{folder}"}, "access": "deny"}


async def _confined(wire: KitWire, script: str, *entries: Any) -> Finished:
    """Run a script in a sandbox. Skips if this server cannot make one."""
    argv = ["/bin/sh", "-c", script]
    asked = start_params(argv, sandbox=_sandbox(*entries))
    answer = await wire.answer(await wire.request("process/start", asked))
    if "error" in answer:
        raise CheckSkipped(f"no sandbox can be made: {answer['error'].get('message')}")
    expect("the kind of sandbox", answer["result"]["sandboxType"], "linuxSeccomp")
    from exec_server.conformance.kit_process import KitProcess

    found = await KitProcess(wire, asked["processId"]).finished()
    if found.exit_code not in (0, 7) and b"bwrap" in found.output("stderr"):
        raise CheckSkipped(f"no sandbox works: {found.output('stderr')!r:.200}")
    return found


async def _folder(wire: KitWire) -> str:
    made = await run(wire, ["mktemp", "-d", "/var/tmp/conformance.XXXXXX"])
    return made.output("stdout").decode().strip()


@check("sandbox.read-only", "A command that may write nothing writes nothing.", suite="sandbox")
async def read_only(kit: Kit) -> None:
    wire = await kit.ready()
    folder = await _folder(wire)
    found = await _confined(wire, f"echo x > {folder}/file || exit 7")
    expect("the exit code", found.exit_code, 7)
    expect("sandboxDenied", found.sandbox_denied, True)
    listed = await run(wire, ["ls", "-A", folder])
    expect("the files", listed.output("stdout"), b"")
    await run(wire, ["rm", "-r", folder])


@check(
    "sandbox.writable", "A writable directory can be written, and others cannot.", suite="sandbox"
)
async def writable(kit: Kit) -> None:
    wire = await kit.ready()
    folder, other = await _folder(wire), await _folder(wire)
    script = f"echo x > {folder}/file; echo x > {other}/file || exit 7"
    found = await _confined(wire, script, _writable(folder))
    expect("the exit code", found.exit_code, 7)
    listed = await run(wire, ["ls", "-A", folder, other])
    lines = listed.output("stdout").decode().split()
    expect_that("file" in lines and lines.count("file") == 1, "one file", lines)
    await run(wire, ["rm", "-r", folder, other])


@check("sandbox.closed", "A closed directory cannot be read.", suite="sandbox")
async def closed(kit: Kit) -> None:
    wire = await kit.ready()
    folder = await _folder(wire)
    await run(wire, ["/bin/sh", "-c", f"echo secret > {folder}/file"])
    found = await _confined(wire, f"cat {folder}/file || exit 7", _closed(folder))
    expect("the exit code", found.exit_code, 7)
    expect_that(b"secret" not in found.output("stdout"), "nothing of the file")
    await run(wire, ["rm", "-r", folder])


@check("sandbox.protected", "`.git` in a writable directory stays as it is.", suite="sandbox")
async def protected(kit: Kit) -> None:
    wire = await kit.ready()
    folder = await _folder(wire)
    await run(wire, ["/bin/sh", "-c", f"mkdir {folder}/.git; echo old > {folder}/.git/config"])
    kept = {"path": {"type": "path", "path": f"file://{folder}/.git"}, "access": "read"}
    script = f"echo new > {folder}/.git/config || exit 7"
    found = await _confined(wire, script, _writable(folder), kept)
    expect("the exit code", found.exit_code, 7)
    content = await run(wire, ["cat", f"{folder}/.git/config"])
    expect("the file", content.output("stdout"), b"old\n")
    await run(wire, ["rm", "-r", folder])


@check(
    "sandbox.network",
    "Without network a command reaches nothing, also not this machine.",
    suite="sandbox",
)
async def network(kit: Kit) -> None:
    import asyncio

    wire = await kit.ready()
    reached = asyncio.Event()

    async def accepted(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        script = f"exec 3<>/dev/tcp/127.0.0.1/{port} || exit 7"
        asked = ["/bin/bash", "-c", script]
        found = await _confined(wire, f"exec {asked[0]} -c '{script}'")
    expect_that(found.exit_code != 0, "the connection to fail", found.exit_code)
    expect_that(not reached.is_set(), "no connection")


@check("sandbox.files", "File calls obey the same sandbox.", suite="sandbox")
async def file_calls(kit: Kit) -> None:
    wire = await kit.ready()
    folder, other = await _folder(wire), await _folder(wire)
    await _confined(wire, "true", _writable(folder))
    sandbox = _sandbox(_writable(folder))
    data = base64.b64encode(b"x").decode()
    inside = {"path": f"file://{folder}/file", "dataBase64": data, "sandbox": sandbox}
    expect("a write inside", await wire.call("fs/writeFile", inside), {})
    outside = {**inside, "path": f"file://{other}/file"}
    expect_that((await wire.error("fs/writeFile", outside))["code"] < 0, "a refusal outside")
    listed = await run(wire, ["ls", "-A", other])
    expect("the files outside", listed.output("stdout"), b"")
    await run(wire, ["rm", "-r", folder, other])


@check("sandbox.none", "The profile `disabled` is no sandbox.", suite="sandbox")
async def disabled(kit: Kit) -> None:
    wire = await kit.ready()
    folder = await _folder(wire)
    sandbox = {"permissions": {"type": "disabled"}, "windowsSandboxLevel": "disabled"}
    script = f"echo x > {folder}/file"
    found = await run(wire, ["/bin/sh", "-c", script], sandbox=sandbox)
    expect("the exit code", found.exit_code, 0)
    await run(wire, ["rm", "-r", folder])
