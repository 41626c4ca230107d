"""`fs/*`."""

from __future__ import annotations

import base64
from typing import Any

from exec_server.conformance.check import Kit, check, expect, expect_that
from exec_server.conformance.kit_process import run, wants_error
from exec_server.conformance.kit_wire import KitWire

_NOT_FOUND = -32004
_INVALID = -32602


async def _folder(wire: KitWire) -> str:
    """The URI of a new directory on the server's machine."""
    made = await run(wire, ["mktemp", "-d"], env={"PATH": "/usr/bin:/bin", "TMPDIR": "/tmp"})
    return "file://" + made.output("stdout").decode().strip()


async def _write(wire: KitWire, uri: str, data: bytes) -> None:
    encoded = base64.b64encode(data).decode()
    expect(
        "the answer to fs/writeFile",
        await wire.call("fs/writeFile", {"path": uri, "dataBase64": encoded}),
        {},
    )


async def _content(wire: KitWire, uri: str) -> bytes:
    found = await wire.call("fs/readFile", {"path": uri})
    return base64.b64decode(found["dataBase64"], validate=True)


async def _remove(wire: KitWire, folder: str) -> None:
    asked = {"path": folder, "recursive": True, "force": True}
    expect("the answer to fs/remove", await wire.call("fs/remove", asked), {})


@check("fs.write-read", "A file that was written is read back, all bytes.", suite="files")
async def write_read(kit: Kit) -> None:
    wire = await kit.ready()
    folder = await _folder(wire)
    for data in (b"", b"text\n", bytes(range(256)) * 1000):
        await _write(wire, f"{folder}/file", data)
        expect_that(await _content(wire, f"{folder}/file") == data, "the same bytes")
    await _remove(wire, folder)


@check("fs.not-found", "A missing file is -32004.", suite="files")
async def not_found(kit: Kit) -> None:
    wire = await kit.ready()
    missing = {"path": "file:///no/such/file"}
    for method in ("fs/readFile", "fs/getMetadata", "fs/readDirectory"):
        await wants_error(wire, _NOT_FOUND, method, missing)


@check("fs.bad-path", "A path that is no file URI of this machine is refused.", suite="files")
async def bad_path(kit: Kit) -> None:
    wire = await kit.ready()
    for path in ("http://localhost/etc/hosts", "relative", 7, None):
        await wants_error(wire, _INVALID, "fs/readFile", {"path": path})


@check("fs.metadata", "Metadata tells files, directories and links apart.", suite="files")
async def metadata(kit: Kit) -> None:
    wire = await kit.ready()
    folder = await _folder(wire)
    await _write(wire, f"{folder}/file", b"12345")
    file = await wire.call("fs/getMetadata", {"path": f"{folder}/file"})
    expect("a file", [file["isFile"], file["isDirectory"]], [True, False])
    parent = await wire.call("fs/getMetadata", {"path": folder})
    expect("a directory", [parent["isFile"], parent["isDirectory"]], [False, True])
    expect_that(file["modifiedAtMs"] > 10**12, "a time in milliseconds", file)
    await _remove(wire, folder)


@check("fs.directory", "A directory is made, with its parents if asked, and listed.", suite="files")
async def directory(kit: Kit) -> None:
    wire = await kit.ready()
    folder = await _folder(wire)
    await wire.call("fs/createDirectory", {"path": f"{folder}/a/b", "recursive": True})
    await _write(wire, f"{folder}/a/file", b"x")
    listing = await wire.call("fs/readDirectory", {"path": f"{folder}/a"})
    seen: list[Any] = sorted(
        [entry["fileName"], entry["isDirectory"], entry["isFile"]] for entry in listing["entries"]
    )
    expect("the entries", seen, [["b", True, False], ["file", False, True]])
    await _remove(wire, folder)


@check(
    "fs.remove",
    "A tree is removed only with `recursive`; `force` forgives a missing one.",
    suite="files",
)
async def remove(kit: Kit) -> None:
    wire = await kit.ready()
    folder = await _folder(wire)
    await _write(wire, f"{folder}/file", b"x")
    answer = await wire.error("fs/remove", {"path": folder, "recursive": False, "force": False})
    expect_that(answer["code"] < 0, "a refusal", answer)
    await _remove(wire, folder)
    await wants_error(wire, _NOT_FOUND, "fs/getMetadata", {"path": folder})
    await wire.call("fs/remove", {"path": folder, "recursive": True, "force": True})


@check("fs.copy", "A tree is copied with all its files.", suite="files")
async def copy(kit: Kit) -> None:
    wire = await kit.ready()
    folder = await _folder(wire)
    await wire.call("fs/createDirectory", {"path": f"{folder}/from/deep", "recursive": True})
    await _write(wire, f"{folder}/from/deep/file", b"content")
    asked = {"sourcePath": f"{folder}/from", "destinationPath": f"{folder}/to", "recursive": True}
    expect("the answer", await wire.call("fs/copy", asked), {})
    expect("the copy", await _content(wire, f"{folder}/to/deep/file"), b"content")
    expect("the source", await _content(wire, f"{folder}/from/deep/file"), b"content")
    await _remove(wire, folder)


@check("fs.blocks", "An open file is read in blocks; the last one says so.", suite="files")
async def blocks(kit: Kit) -> None:
    wire = await kit.ready()
    folder = await _folder(wire)
    data = bytes(range(256)) * 40
    await _write(wire, f"{folder}/file", data)
    opened = await wire.call("fs/open", {"handleId": "h", "path": f"{folder}/file"})
    expect("the answer to fs/open", opened, {"handleId": "h"})
    seen, is_over = b"", False
    while not is_over:
        asked = {"handleId": "h", "offset": len(seen), "len": 3000}
        block = await wire.call("fs/readBlock", asked)
        seen += base64.b64decode(block["chunk"], validate=True)
        is_over = block["eof"]
        expect_that(is_over or bool(block["chunk"]), "an end of the file")
    expect_that(seen == data, "the same bytes")
    expect("the answer to fs/close", await wire.call("fs/close", {"handleId": "h"}), {})
    expect_that((await wire.error("fs/readBlock", asked))["code"] < 0, "the file to be closed")
    await _remove(wire, folder)


@check("fs.canonical", "A canonical path has no links.", suite="files")
async def canonical(kit: Kit) -> None:
    wire = await kit.ready()
    folder = await _folder(wire)
    await _write(wire, f"{folder}/file", b"x")
    native = folder.removeprefix("file://")
    await run(wire, ["ln", "-s", f"{native}/file", f"{native}/link"])
    seen = await wire.call("fs/canonicalize", {"path": f"{folder}/link"})
    expect("the path", seen, {"path": f"{folder}/file"})
    expect("the content", await _content(wire, f"{folder}/link"), b"x")
    await _remove(wire, folder)


@check("fs.handles", "Handles belong to a connection.", suite="files")
async def handles(kit: Kit) -> None:
    mine, other = await kit.ready(), await kit.ready()
    await mine.call("fs/open", {"handleId": "h", "path": "file:///etc/passwd"})
    asked = {"handleId": "h", "offset": 0, "len": 1}
    expect_that((await other.error("fs/readBlock", asked))["code"] < 0, "an unknown handle")
    expect_that(bool((await mine.call("fs/readBlock", asked))["chunk"]), "the own handle")
