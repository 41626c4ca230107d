"""Servers that send without an end, or what cannot be: the client's memory is bounded."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from exec_server.client.client import ExecServerClient
from exec_server.client.files import change_reports, search_results
from exec_server.client.files.transfer import remote_listing
from exec_server.client_urls import connect
from exec_server.errors import ConnectionClosed, InvalidRequest, ProtocolError, TransferFailed
from tests.requirements import requirement
from tests.support.fake_server import Talk, fake_server

pytestmark = pytest.mark.one_loop

INFO = {"shell": {"name": "sh", "path": "/bin/sh"}}
DIRECTORY = {"isDirectory": True, "isFile": False}
ANSWERS: dict[str, Any] = {
    "fs/canonicalize": {"path": "file:///x"},
    "fs/getMetadata": DIRECTORY,
    "fs/search": {},
    "fs/watch": {"seq": 0, "resumed": False},
    "fs/readFile": {"dataBase64": ""},
}
# What the server sends after its answer to a request, again and again.
Flood = Callable[[Talk, dict[str, Any], int], Any]


@asynccontextmanager
async def flooding(method: str, flood: Flood, *, rounds: int) -> AsyncIterator[ExecServerClient]:
    """A client of a server that answers *method*, and then floods."""

    async def play(talk: Talk) -> None:
        capabilities = {"fsSearch": True, "fsSearchPacked": True, "fsWatch": True}
        await talk.shake_hands(
            {"sessionId": "s", "environmentInfo": INFO | {"capabilities": capabilities}}
        )
        while True:
            request = await talk.receive()
            if request["method"] == "process/start":
                name = request["params"]["processId"]
                await talk.answer(request, {"processId": name, "sandboxType": "none"})
            elif request["method"] in ANSWERS:
                await talk.answer(request, ANSWERS[request["method"]])
            elif "id" in request:
                await talk.refuse(request, -32601, "no such method")
            if request["method"] == method:
                for number in range(1, rounds + 1):
                    await flood(talk, request, number)

    async with fake_server(play) as url, connect(url, reconnect=False) as client:
        yield client


RANGES = [[[0, 0]] * 10]


def packed(*files: Any) -> str:
    """Hits whose ranges are all those of RANGES."""
    return base64.b64encode(json.dumps([RANGES, files]).encode()).decode()


MATCH = {"path": "file:///x/y", "line": 1, "text": "x" * 1000}
# Its texts are short, and what the client makes of them is not.
SHORT = ["file:///x/y", [1] * 50, [""] * 50, [0] * 50, []]
EMPTY = ["file:///x/y", [], [], [], []]


@requirement("client/files:endless")
@pytest.mark.parametrize(
    "found",
    [
        {"matches": [MATCH] * 10},
        {"matches": [], "dataBase64": packed(SHORT)},
        {"matches": [], "dataBase64": packed(*[EMPTY] * 50)},
    ],
    ids=["plain", "packed", "files without hits"],
)
async def test_hits_that_are_not_taken_end_a_search(monkeypatch, found):
    monkeypatch.setattr(search_results, "_MOST_WAITING", 100_000)

    async def flood(talk: Talk, request: dict[str, Any], number: int) -> None:
        params = {"searchId": request["params"]["searchId"], **found}
        await talk.send({"method": "fs/searchFound", "params": params})

    async with flooding("fs/search", flood, rounds=20) as client:
        async with client.fs.search("/x", "x") as hits:
            await hits._changed.wait()
            while hits._error is None:
                hits._changed.clear()
                await hits._changed.wait()
            assert not hits._hits
            with pytest.raises(InvalidRequest, match="not taken fast enough"):
                await anext(hits)


@requirement("client/files:endless")
@pytest.mark.parametrize(
    "file",
    [
        # A list of 300,000 values takes a hundred times the memory of its text.
        ["file:///x", [0] * 300_000, [""] * 300_000, [0] * 300_000, []],
        ["file:///x", [1], ["a", "b"], [0, 0], []],
        ["file:///x", [1], ["a"], [], []],
        ["file:///x", [1], ["a"], [0], [1]],
        ["file:///x", [1], ["a"], [0], [-1]],
        ["file:///x", [1], ["a"], [[0]], []],
        ["file:///x", [1], ["a"], [1], []],
        ["file:///x"],
    ],
    ids=[
        "values",
        "lines",
        "ranges",
        "context",
        "before the first",
        "no number",
        "no such ranges",
        "one column",
    ],
)
async def test_packed_hits_that_do_not_fit_together_end_the_connection(file):
    async def flood(talk: Talk, request: dict[str, Any], number: int) -> None:
        params = {"searchId": request["params"]["searchId"], "matches": []}
        await talk.send(
            {"method": "fs/searchFound", "params": {**params, "dataBase64": packed(file)}}
        )

    async with flooding("fs/search", flood, rounds=1) as client:
        with pytest.raises(ConnectionClosed):
            await anext(client.fs.search("/x", "x"))


@requirement("client/files:endless")
async def test_reports_without_changes_become_one(monkeypatch):
    monkeypatch.setattr(change_reports, "_MOST_WAITING", 100)

    async def flood(talk: Talk, request: dict[str, Any], number: int) -> None:
        params = {
            "watchId": request["params"]["watchId"],
            "seq": number,
            "changes": [],
            "rescan": [f"file:///x/{number}"],
        }
        await talk.send({"method": "fs/filesChanged", "params": params})

    async with flooding("fs/watch", flood, rounds=300) as client:
        async with client.fs.watch("/x") as changes:
            while changes._seq < 300:
                changes._changed.clear()
                await changes._changed.wait()
            assert len(changes._waiting) <= 100


@requirement("client/files:endless")
@pytest.mark.parametrize(
    "output", [b"d 755 4 1.5 \0\0" * 100, b"x" * 10_000], ids=["files", "a name"]
)
async def test_a_listing_without_an_end_is_refused(tmp_path, monkeypatch, output):
    monkeypatch.setattr(remote_listing, "_MOST_ENTRIES", 1000)
    monkeypatch.setattr(remote_listing, "_RECORD_BYTES", 100_000)

    async def flood(talk: Talk, request: dict[str, Any], number: int) -> None:
        await talk.output(request["params"]["processId"], number, output)

    async with flooding("process/start", flood, rounds=20) as client:
        with pytest.raises(ProtocolError, match="a listing"):
            await client.fs.download("/x", tmp_path / "back")


@requirement("client/files:endless")
async def test_a_file_with_a_time_that_cannot_be_fails_alone(tmp_path):
    output = b"d 755 4 1.5 \0\0f 644 0 99999999999999999999999.5 far\0\0f 644 0 1.5 near\0\0"

    async def flood(talk: Talk, request: dict[str, Any], number: int) -> None:
        name = request["params"]["processId"]
        await talk.output(name, 1, output)
        await talk.event("process/exited", name, seq=2, exitCode=0)
        await talk.event("process/closed", name, seq=3)

    async with flooding("process/start", flood, rounds=1) as client:
        with pytest.raises(TransferFailed, match="far"):
            await client.fs.download("/x", tmp_path / "back")
    assert (tmp_path / "back" / "near").exists()


@requirement("client/files:hostile-names")
@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a/../../b", "/etc/passwd", "a\0b"])
async def test_a_name_that_leads_elsewhere_is_refused(name, monkeypatch, tmp_path):
    """A pattern such as `a*` matches `a/../../b`, and a copy is called by the last part."""
    entry = {"fileName": name, "isDirectory": False, "isFile": True}
    monkeypatch.setitem(ANSWERS, "fs/readDirectory", {"entries": [entry]})

    async def never(talk: Talk, request: dict[str, Any], number: int) -> None:
        """It sends no more than its answers."""

    async with flooding("fs/readDirectory", never, rounds=0) as client:
        with pytest.raises(ProtocolError, match="the server names a file"):
            _ = [path async for path in client.fs.path("/x").glob("a*")]
        with pytest.raises(ProtocolError, match="the server names a file"):
            await client.fs.read_directory("/x")
