"""The package as others use it: its names, a server in their own loop, the examples."""

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import exec_server
from tests.requirements import requirement
from tests.support.leaks import Held, eventually
from tests.support.wire import PATIENCE, Wire

SOURCE = Path(exec_server.__file__)


# Names.


@requirement("embedding:public-names")
@pytest.mark.parametrize("name", exec_server.__all__)
def test_every_public_name_exists(name):
    assert getattr(exec_server, name) is not None
    assert name in dir(exec_server)


@requirement("embedding:public-names")
def test_what_type_checkers_see_is_what_there_is():
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    seen = {
        alias.asname or alias.name: (node.module, alias.name)
        for statement in tree.body
        if isinstance(statement, ast.If)
        for node in statement.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    homes = {
        name: (f"exec_server.{module}", inner)
        for name, (module, inner) in exec_server._HOMES.items()
    }
    assert seen == homes
    # `import *` must leave the built-in function `open` alone.
    assert sorted([*exec_server.__all__, "open"]) == sorted([*homes, "__version__"])
    assert SOURCE.with_name("py.typed").exists()


@requirement("embedding:public-names")
def test_the_documented_names_are_there():
    documented = """
        ExecServerClient ExecServerError ExecServerClientConnectOptions RemoteExecServerConnectArgs
        InitializeParams InitializeResponse ExecParams ExecResponse ReadParams ReadResponse
        WriteParams WriteResponse SignalParams TerminateParams TerminateResponse
        ExecOutputDeltaNotification ExecExitedNotification ExecClosedNotification ProcessId
        DEFAULT_LISTEN_URL ExecServerListenUrlParseError ExecServerRuntimePaths run_main
        connect serve ExecServer RemoteProcess __version__
    """
    assert set(documented.split()) <= set(exec_server.__all__)
    assert exec_server.DEFAULT_LISTEN_URL == "ws://127.0.0.1:0"


@requirement("embedding:public-names")
def test_the_whole_tree_of_errors_is_public():
    def tree(kind: type[exec_server.ExecServerError]) -> set[str]:
        own = {kind.__name__} if kind.__module__ == "exec_server.errors" else set()
        return own.union(*map(tree, kind.__subclasses__()))

    assert tree(exec_server.ExecServerError) <= set(exec_server.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such"):
        _ = exec_server.no_such  # type: ignore[attr-defined]


@requirement("embedding:public-names")
@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import exec_server", "asyncio msgspec typing importlib.metadata"),
        ("import exec_server.cli.main", "asyncio msgspec argparse"),
        ("import exec_server.server.serving", "exec_server.client exec_server.transport.dial"),
        (
            "import exec_server; exec_server.connect",
            "exec_server.server exec_server.process.process_table",
        ),
    ],
)
def test_only_what_is_used_is_imported(code, absent):
    program = f"{code}; import sys; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert not set(absent.split()) & set(found.stdout.decode().split())


# A server in our own loop.


@requirement("embedding:run-main")
async def test_run_main_serves_until_it_is_cancelled(no_leaks):
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(exec_server.run_main(on_ready=ready.set_result))
    async with asyncio.timeout(PATIENCE):
        url = await ready
        async with exec_server.connect(url, reconnect=False) as client:
            assert (await client.run(["echo", "hi"])).stdout == b"hi\n"
            process = await client.start(["sleep", "60"])
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            with pytest.raises(exec_server.ConnectionClosed):
                await process.wait()
    with pytest.raises(exec_server.ConnectError):
        async with exec_server.connect(url):
            pass


@requirement("embedding:run-main")
async def test_run_main_prints_its_url_when_nobody_else_wants_it(capsys):
    paths = exec_server.ExecServerRuntimePaths()
    serving = asyncio.ensure_future(exec_server.run_main("ws://127.0.0.1:0", paths))
    printed: list[str] = []

    def is_printed() -> bool:
        printed.append(capsys.readouterr().out)
        return "\n" in printed[-1]

    await eventually(is_printed)
    async with Wire("".join(printed).strip()) as wire:
        await wire.initialize()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


@requirement("embedding:run-main")
async def test_run_main_refuses_an_address_that_is_none():
    with pytest.raises(exec_server.ExecServerListenUrlParseError):
        await exec_server.run_main("http://127.0.0.1:0")


@requirement("embedding:serve")
async def test_serve_leaves_nothing_behind():
    # What a loop opens once is open before.
    async with exec_server.serve() as server, exec_server.connect(server.url) as client:
        await client.run(["true"])
    before = Held.now()
    async with exec_server.serve() as server, exec_server.connect(server.url) as client:
        process = await client.start(["sleep", "60"])
        [info] = await client.list_processes()
    with pytest.raises(exec_server.ConnectionClosed):
        await process.wait()
    await eventually(lambda: not Path(f"/proc/{info.pid}").exists())
    await eventually(lambda: not Held.now().since(before))


@requirement("embedding:serve")
async def test_a_server_that_stopped_with_a_client_attached_sets_no_timer():
    async with exec_server.serve() as server:
        wire = Wire(server.url)
        await wire.__aenter__()
        await wire.initialize()
    await wire.closed()
    assert server.core._attachments.next_deadline() is None


@requirement("embedding:serve")
async def test_two_servers_live_in_one_loop():
    async with exec_server.serve() as one, exec_server.serve() as other:
        assert one.url != other.url
        async with exec_server.connect(one.url) as a, exec_server.connect(other.url) as b:
            outputs = await asyncio.gather(a.run(["echo", "a"]), b.run(["echo", "b"]))
    assert [done.stdout for done in outputs] == [b"a\n", b"b\n"]
