"""A client without a block: it is opened, closed, and its owner warned who forgets that."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import sys
import threading
import warnings
from pathlib import Path

import pytest

import exec_server
from exec_server import sync
from exec_server.errors import ConnectError, ConnectionClosed
from tests.requirements import requirement
from tests.support.leaks import eventually

STDIO = f"stdio:{sys.executable} -m exec_server --listen stdio"


@pytest.fixture(params=["websocket", "stdio", "reference"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "stdio":
        return STDIO
    found: str = request.getfixturevalue(
        "server" if request.param == "websocket" else "reference"
    ).url
    return found


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name == "exec-server"}


@requirement("client/open")
async def test_it_works_until_it_is_closed(url):
    box = await exec_server.open(url)
    assert (await box.run(["echo", "hi"])).stdout == b"hi\n"
    await box.close()
    assert box.state == "closed" and not box.is_connected
    with pytest.raises(ConnectionClosed):
        await box.run(["true"])
    # Once more does no harm, with and without waiting.
    await box.close()
    box.close()


@requirement("client/open")
async def test_requests_before_the_close_still_arrive(server):
    box = await exec_server.open(server.url)
    process = await box.start(["sh", "-c", "echo $$; exec sleep 300"])
    pid = int(await process.read_until())
    # This sends a request and does not wait for its answer.
    process.abandon()
    await box.close()
    await eventually(lambda: not os.path.exists(f"/proc/{pid}"))


@requirement("client/open")
async def test_it_can_be_a_block_as_well(server):
    async with await exec_server.open(server.url) as box:
        assert box.is_connected
    assert box.state == "closed"


@requirement("client/open")
async def test_its_parameters_are_those_of_connect(server):
    assert inspect.signature(exec_server.open).parameters == (
        inspect.signature(exec_server.connect).parameters
    )
    states: list[str] = []
    box = await exec_server.open(server.url, client_name="me", on_state=states.append)
    await box.close()
    assert states == ["connected", "closed"]
    with pytest.raises(ConnectError):
        await exec_server.open("ws://127.0.0.1:1")


@requirement("client/open:forgotten")
async def test_a_client_that_is_forgotten_warns_and_disconnects(server):
    states: list[str] = []
    box = await exec_server.open(server.url, on_state=states.append)
    await box.fs.exists("/")
    with pytest.warns(ResourceWarning, match="was not closed"):
        del box
        gc.collect()
    await eventually(lambda: states == ["connected", "closed"])


@requirement("client/open:forgotten")
async def test_others_do_not_warn(server):
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        box = await exec_server.open(server.url)
        await box.close()
        del box
        async with exec_server.connect(server.url) as client:
            pass
        del client
        gc.collect()
    assert [each for each in heard if "was not closed" in str(each.message)] == []


# Without a loop.


@requirement("client/open:sync")
def test_the_same_without_a_loop():
    box = sync.open(STDIO)
    assert box.run(["echo", "hi"]).stdout == b"hi\n"
    assert threads()
    box.close()
    assert not threads()
    with pytest.raises(ConnectionClosed):
        box.run(["true"])
    box.close()
    with sync.open(STDIO) as box:
        assert box.is_connected
    assert not threads()


@requirement("client/open:sync")
async def test_it_works_where_a_loop_runs_as_in_a_notebook():
    box = sync.open(STDIO)
    assert box.run(["echo", "hi"]).stdout == b"hi\n"
    for chunk in box.start(["echo", "there"]):
        assert chunk.data == b"there\n"
    box.close()
    # And the loop of the notebook still does.
    await asyncio.sleep(0)


@requirement("client/open:sync")
def test_no_thread_is_left_if_there_is_no_server():
    with pytest.raises(ConnectError):
        sync.open("ws://127.0.0.1:1")
    assert not threads()


@requirement("client/open:forgotten", "client/open:sync")
async def test_its_thread_ends_when_it_is_forgotten():
    box = sync.open(STDIO)
    assert threads()
    with pytest.warns(ResourceWarning, match="was not closed"):
        del box
        gc.collect()
    await eventually(lambda: not threads())


@requirement("client/open")
def test_it_does_not_replace_the_function_of_python():
    names: dict[str, object] = {}
    exec("from exec_server import *\nfrom exec_server.sync import *", names)
    assert "open" not in names
    assert vars(exec_server).get("open") is not open


@requirement("client/open")
async def test_awaiting_connect_says_what_to_write(server):
    with pytest.raises(TypeError, match=r"async with .* await exec_server.open"):
        await exec_server.connect(server.url)  # type: ignore[misc]


@requirement("client/open")
async def test_a_forgotten_block_says_what_to_write(server):
    with pytest.raises(AttributeError, match=r"no `run` here: .* await exec_server.open"):
        exec_server.connect(server.url).run(["true"])  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"no `run` here: .* exec_server.sync.open"):
        sync.connect(server.url).run(["true"])  # type: ignore[attr-defined]


@requirement("client/open")
@pytest.mark.parametrize("url", [None, 3, b"ws://127.0.0.1:1", Path("/run/x.sock")], ids=repr)
async def test_a_url_is_a_text(url):
    with pytest.raises(TypeError, match=r"^url must be a str such as ws://HOST:PORT, not "):
        await exec_server.open(url)


@requirement("client/run:drain")
async def test_a_drain_is_not_negative(server):
    async with exec_server.connect(server.url) as client:
        for wrong in (-1, float("nan")):
            with pytest.raises(ValueError, match="drain"):
                await client.run(["true"], drain=wrong)
