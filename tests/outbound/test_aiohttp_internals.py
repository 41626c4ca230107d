"""What we use of aiohttp without a promise: these tests say what a new release has changed."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler
from aiohttp.streams import StreamReader

from tests.requirements import requirement
from tests.support.moved import moved

HERE = "src/exec_server/outbound/aiohttp_internals.py"


def changed(what: str) -> str:
    return moved("aiohttp", aiohttp.__version__, what, HERE)


@requirement("house/libraries:undocumented")
@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("_read_nowait", ["self", "n"]),
        ("exception", ["self"]),
        ("is_eof", ["self"]),
        ("on_eof", ["self", "callback"]),
        ("readany", ["self"]),
    ],
)
def test_the_body_has_the_methods_that_we_call(method, expected):
    assert hasattr(StreamReader, method), changed(f"StreamReader.{method} is gone")
    found = list(inspect.signature(getattr(StreamReader, method)).parameters)
    assert found == expected, changed(f"StreamReader.{method} takes {found}, not {expected}")


@requirement("house/libraries:undocumented")
def test_a_body_can_be_failed():
    found = list(inspect.signature(StreamReader.set_exception).parameters)
    assert found[:2] == ["self", "exc"], changed(f"StreamReader.set_exception takes {found}")


@requirement("house/libraries:undocumented")
async def test_what_arrived_before_an_error_can_be_read():
    loop = asyncio.get_running_loop()
    body = StreamReader(ResponseHandler(loop), 2**16, loop=loop)
    body.feed_data(b"early")
    body.set_exception(aiohttp.ClientPayloadError())
    assert body._read_nowait(-1) == b"early", changed("an error drops what arrived before")
    assert body._read_nowait(-1) == b"", changed("the end of a body is not empty")


@requirement("house/libraries:undocumented")
async def test_the_end_of_a_connection_can_be_watched():
    protocol = ResponseHandler(asyncio.get_running_loop())
    assert "closed" in dir(protocol), changed("ResponseHandler.closed is gone")
    protocol.connection_made(asyncio.Transport())
    closed = protocol.closed
    assert isinstance(closed, asyncio.Future), changed("ResponseHandler.closed is no future")
    protocol.connection_lost(None)
    assert closed.done(), changed("ResponseHandler.closed is not done after the end")


def test_private_names_of_aiohttp_are_used_in_one_module():
    source = Path(__file__).parents[2] / "src" / "exec_server" / "outbound"
    private = re.compile(r"(content|response|protocol|session|connection)\._[a-z]")
    found = {path.name for path in source.rglob("*.py") if private.search(path.read_text())}
    assert found == {"aiohttp_internals.py"}
