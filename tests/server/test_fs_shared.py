"""Rules of all fs methods: the handshake, paths, errors and the sandbox."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exec_server.protocol.fs import FAMILY
from exec_server.protocol.sandbox import read_only
from exec_server.server.server import ROUTES
from tests.requirements import requirement
from tests.support.files import FAILED, INVALID, NOT_FOUND, REFUSED, code, read, uri, write
from tests.support.wire import Wire

WALK = {"maxDepth": 1, "maxDirectories": 1, "maxEntries": 1, "followDirectorySymlinks": False}
TWO_PATHS = {"sourcePath": "file:///tmp/no", "destinationPath": "file:///tmp/where"}
# Valid parameters for each method, which do no harm.
PARAMS: dict[str, dict[str, Any]] = {
    "fs/readFile": {"path": "file:///no/where"},
    "fs/open": {"handleId": "h", "path": "file:///no/where"},
    "fs/readBlock": {"handleId": "h", "offset": 0, "len": 1},
    "fs/writeBlock": {"handleId": "h", "offset": 0, "chunk": "eA=="},
    "fs/close": {"handleId": "h"},
    "fs/writeFile": {"path": "file:///no/where", "dataBase64": ""},
    "fs/append": {"path": "file:///no/where", "dataBase64": ""},
    "fs/createDirectory": {"path": "file:///"},
    "fs/getMetadata": {"path": "file:///"},
    "fs/lstat": {"path": "file:///"},
    "fs/readLink": {"path": "file:///no/where"},
    "fs/symlink": {"path": "file:///no/where", "link": {"target": "x"}},
    "fs/canonicalize": {"path": "file:///"},
    "fs/readDirectory": {"path": "file:///no/where"},
    "fs/walk": {"path": "file:///no/where", "options": WALK},
    "fs/remove": {"path": "file:///no/where"},
    "fs/setPermissions": {"path": "file:///no/where"},
    "fs/rename": TWO_PATHS,
    "fs/copy": {**TWO_PATHS, "recursive": False},
    "fs/watchMissing": {"watchId": 1, "missing": []},
    "fs/watch": {"watchId": "w", "path": "file:///no/where"},
    "fs/unwatch": {"watchId": "w"},
    "fs/search": {"searchId": "s", "path": "file:///no/where", "pattern": "x"},
    "fs/cancelSearch": {"searchId": "s"},
    "fs/signature": {"path": "file:///no/where"},
    "fs/copyRanges": {**TWO_PATHS, "ranges": []},
}
WITH_PATHS = [
    (method, member)
    for method, params in PARAMS.items()
    for member in params
    if member in ("path", "sourcePath", "destinationPath")
]


def test_every_method_is_here():
    assert PARAMS.keys() == {name for name in ROUTES if name.startswith("fs/")}


@pytest.mark.parametrize("method", PARAMS)
@requirement("fs:handshake")
async def test_files_are_for_those_who_have_shaken_hands(server, method):
    async with Wire(server.url) as wire:
        before = await wire.error(method, PARAMS[method])
        await wire.call("initialize", {"clientName": "x"})
        between = await wire.error(method, PARAMS[method])
    assert before == {
        "code": REFUSED,
        "message": f"client must call initialize before using {FAMILY} methods",
    }
    assert between == {
        "code": REFUSED,
        "message": f"client must send initialized before using {FAMILY} methods",
    }


@pytest.mark.parametrize(("method", "member"), WITH_PATHS)
@requirement("fs:shape-first", "fs:foreign-path")
async def test_paths_are_judged_in_two_steps(server, method, member):
    malformed = {**PARAMS[method], member: "relative"}
    foreign = {**PARAMS[method], member: "file://server/share"}
    async with Wire(server.url) as wire:
        assert await code(wire, method, malformed) == INVALID
        error = await wire.error(method, foreign)
        assert error["message"].startswith("client must call initialize")
        await wire.initialize()
        assert await code(wire, method, malformed) == INVALID
        assert await wire.error(method, foreign) == {
            "code": REFUSED,
            "message": "'file://server/share' is invalid on 'linux'",
        }


@pytest.mark.parametrize("method", PARAMS)
@requirement("fs:shape-first")
async def test_what_is_required_is_required(wire, method):
    nothing_like_it: list[Any] = [None, [], "x", 1]
    for wrong in nothing_like_it:
        assert await code(wire, method, wrong) == INVALID
    for gone in PARAMS[method]:
        params = {name: value for name, value in PARAMS[method].items() if name != gone}
        assert await code(wire, method, params) == INVALID


@pytest.mark.parametrize(("method", "member"), WITH_PATHS)
@requirement("fs:sandbox-understood")
async def test_what_is_no_sandbox_is_refused_rather_than_ignored(wire, method, member):
    for sandbox in (1, {}, {"permissions": {"type": "magic"}}):
        assert await code(wire, method, {**PARAMS[method], "sandbox": sandbox}) == INVALID
    # A sandbox that allows everything changes nothing.
    disabled = {"permissions": {"type": "disabled"}}
    plain = await wire.answer(await wire.request(method, PARAMS[method]))
    params = {**PARAMS[method], "sandbox": disabled}
    again = await wire.answer(await wire.request(method, params))
    assert plain.get("error") == again.get("error")


@requirement("fs:sandbox-enforced")
async def test_a_read_only_sandbox_lets_nothing_change(wire, tmp_path):
    (tmp_path / "file").write_text("old")
    params = {"path": uri(tmp_path / "file"), "sandbox": read_only().wire}
    assert await code(wire, "fs/writeFile", {**params, "dataBase64": ""}) == FAILED
    assert await code(wire, "fs/remove", params) == FAILED
    opened = {**params, "handleId": "h", "mode": "replace"}
    assert await code(wire, "fs/open", opened) == FAILED
    assert (tmp_path / "file").read_text() == "old"
    # The id is free again, and reading is allowed.
    assert await wire.call("fs/open", {**opened, "mode": "read"}) == {"handleId": "h"}
    block = await wire.call("fs/readBlock", {"handleId": "h", "offset": 0, "len": 10})
    assert block == {"chunk": "b2xk", "eof": True}


@requirement("fs:both-dialects", "fs:lexical-paths")
async def test_a_file_has_many_spellings(wire, tmp_path):
    (tmp_path / "a b").write_text("here")
    here = os.fsdecode(tmp_path)
    for path in (
        f"file://{here}/a%20b",
        f"file://localhost{here}/a%20b",
        f"FILE:{here}/a b",
        f"file://{here}/x/../a%20b",
        f"file://{here}/./%2e/a%20b/",
        f"file://{here}//a%20b",
        f"{here}/a b",
        f"{here}/x/../a b",
        f"{here}//a b/",
    ):
        assert (await wire.call("fs/readFile", {"path": path}))["dataBase64"] == "aGVyZQ=="
        canonical = await wire.call("fs/canonicalize", {"path": path})
        assert canonical == {"path": uri(tmp_path / "a b")}


@requirement("fs:both-dialects")
async def test_a_native_path_is_taken_literally(wire, tmp_path):
    (tmp_path / "%41").write_text("percent")
    (tmp_path / "A").write_text("letter")
    native = await wire.call("fs/readFile", {"path": f"{tmp_path}/%41"})
    assert native["dataBase64"] == "cGVyY2VudA=="
    assert await read(wire, tmp_path / "%41") == b"percent"


@requirement("fs:lexical-paths")
async def test_dots_after_a_link_do_not_follow_it(wire, tmp_path):
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "link").symlink_to("far/away")
    (tmp_path / "file").write_text("near")
    params = {"path": f"file://{tmp_path}/link/../file"}
    assert (await wire.call("fs/readFile", params))["dataBase64"] == "bmVhcg=="


NAMES = st.binary(min_size=1, max_size=40).filter(
    lambda name: not set(name) & {0, 0x2F} and name not in (b".", b"..")
)


@given(name=NAMES)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@requirement("fs:any-name", "fs/walk:any-name")
async def test_every_name_can_be_used(wire, tmp_path, name):
    path = os.fsencode(tmp_path) + b"/" + name
    await write(wire, path, name)
    assert await read(wire, path) == name
    assert (await wire.call("fs/canonicalize", {"path": uri(path)}))["path"] == uri(path)
    outcome = await wire.call(
        "fs/walk", {"path": uri(tmp_path), "options": {**WALK, "exactNames": True}}
    )
    assert outcome == {
        "entries": [{"path": uri(path), "kind": "file"}],
        "errors": [],
        "truncated": False,
    }
    listed = (await wire.call("fs/readDirectory", {"path": uri(tmp_path)}))["entries"]
    assert [entry["fileName"] for entry in listed] == [name.decode("utf-8", "replace")]
    await wire.call("fs/remove", {"path": uri(path), "force": False})
    assert not os.path.lexists(path)


@requirement("fs:errors-by-errno")
async def test_an_errno_has_its_code_and_its_text(wire, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "loop").symlink_to("loop")

    async def of(method, path, **params):
        error = await wire.error(method, {"path": uri(path), **params})
        return error["code"], error["message"]

    assert await of("fs/getMetadata", tmp_path / "gone") == (
        NOT_FOUND,
        "No such file or directory (os error 2)",
    )
    below = await of("fs/getMetadata", tmp_path / "file" / "below")
    assert below == (FAILED, "Not a directory (os error 20)")
    loop = await of("fs/readFile", tmp_path / "loop")
    assert loop == (FAILED, "Too many levels of symbolic links (os error 40)")
    again = await of("fs/createDirectory", tmp_path / "full", recursive=False)
    assert again == (FAILED, "File exists (os error 17)")
    full = await of("fs/remove", tmp_path / "full", recursive=False)
    assert full == (FAILED, "Directory not empty (os error 39)")
    long = await of("fs/getMetadata", tmp_path / ("x" * 256))
    assert long == (FAILED, "File name too long (os error 36)")


@requirement("fs:capabilities")
async def test_the_capabilities_name_what_works(wire):
    capabilities = (await wire.call("environment/info"))["capabilities"]
    for name in (
        "fsWatchMissing",
        "fileWriteStreaming",
        "fsRename",
        "fsSetPermissions",
        "fsAppend",
        "fsAtomicWrite",
        "fsWalkExactNames",
        "fsCopyArchive",
    ):
        assert capabilities[name] is True
    assert capabilities["sandboxedFileStreaming"] is True
