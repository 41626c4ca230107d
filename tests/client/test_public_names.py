"""What users see of a client is its API: documented, and the same without an event loop."""

from __future__ import annotations

import importlib

import pytest

import exec_server
from exec_server.limits import Limits
from exec_server.sync import sync_api
from tests.requirements import requirement
from tests.sync.test_twin import ASYNCIO_ALONE, CLASSES, TWIN

# Class methods that make a client; the twin has `connect`, `local` and `environments` for that.
CONSTRUCTORS = {"ExecServerClient": {"connect", "connect_websocket"}}


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def asynchronous(name: str) -> type:
    kind: type = getattr(importlib.import_module(f"exec_server.{TWIN.CLASSES[name]}"), name)
    return kind


@requirement("embedding:public-names")
@pytest.mark.parametrize("name", CLASSES)
def test_every_public_name_is_documented(name):
    kind = asynchronous(name)
    assert [each for each in sorted(public(kind)) if not getattr(kind, each).__doc__] == []


@requirement("embedding:public-names", "sync/twin")
@pytest.mark.parametrize("name", CLASSES)
def test_the_twin_has_exactly_the_public_names(name):
    kind = asynchronous(name)
    constructors = {each for each in public(kind) if isinstance(vars(kind).get(each), classmethod)}
    assert constructors == CONSTRUCTORS.get(name, set())
    assert public(kind) - constructors - ASYNCIO_ALONE == public(getattr(sync_api, name))


@requirement("embedding:public-names")
async def test_an_object_has_no_public_name_that_its_class_has_not(client, tmp_path):
    process = await client.start(["cat"], stdin=True)
    for thing in (
        client,
        client.fs,
        client.fs.sandboxed(exec_server.read_only()),
        client.fs.path("/"),
        client.fs.read_stream("/etc/hosts"),
        client.fs.write_stream("/dev/null"),
        client.http,
        client.discovery,
        process,
        process.stdout,
        exec_server.environments(tmp_path, {}),
    ):
        assert public(thing) == public(type(thing)), type(thing)
    assert await process.terminate()


# What is shown of them.


@requirement("embedding:public-names")
async def test_each_says_in_short_what_it_is(client):
    process = await client.start(["cat"], stdin=True)
    assert repr(client) == "<ExecServerClient connected>"
    assert repr(client.fs) == f"<RemoteFiles of {client!r}>"
    assert repr(client.fs.sandboxed(exec_server.read_only())).endswith(" sandboxed>")
    assert repr(process) == f"<RemoteProcess {process.process_id} running>"
    await process.terminate()
    await process.wait()
    assert repr(process) == f"<RemoteProcess {process.process_id} returncode=137>"


def test_limits_show_what_differs_from_the_defaults():
    assert repr(Limits()) == "Limits()"
    assert repr(Limits(write_bytes=5)) == "Limits(write_bytes=5)"
