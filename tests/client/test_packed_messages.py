"""What a client sends packed, and over which connections."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from exec_server.client_urls import connect
from exec_server.errors import ConnectError
from exec_server.local_server import local
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.fake_server import Talk, fake_server

# Random bytes have line breaks, quotes and what is not UTF-8.
CONTENT = os.urandom(300_000)
CAT = "import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)"


async def everything_arrives(client, path):
    """Input, output, and a file in both directions."""
    done = await client.run([sys.executable, "-c", CAT], input=CONTENT)
    assert done.stdout == CONTENT
    remote = client.fs.path(str(path))
    await remote.write_bytes(CONTENT)
    assert path.read_bytes() == CONTENT
    async with client.fs.write_stream(str(path)) as written:
        await written.write(CONTENT * 4)
    assert path.read_bytes() == CONTENT * 4
    assert await remote.read_bytes() == CONTENT * 4


@requirement("packed/both-ways")
async def test_everything_arrives_over_a_websocket(client, tmp_path):
    await everything_arrives(client, tmp_path / "f")


@requirement("packed/both-ways")
async def test_everything_arrives_within_one_process(no_leaks, tmp_path):
    async with local() as client:
        await everything_arrives(client, tmp_path / "f")


@requirement("packed/lines")
async def test_everything_arrives_over_a_unix_socket(no_leaks, tmp_path):
    async with serve(f"unix://{tmp_path / 's'}") as running, connect(running.url) as client:
        await everything_arrives(client, tmp_path / "f")


@requirement("packed/lines")
async def test_everything_arrives_over_standard_input_and_output(no_leaks, tmp_path):
    url = f"stdio:{sys.executable} -m exec_server --listen stdio"
    async with connect(url) as client:
        await everything_arrives(client, tmp_path / "f")


@requirement("packed/lines")
async def test_a_client_of_lines_does_not_ask(no_leaks, tmp_path):
    said = tmp_path / "said"
    program = tmp_path / "program.py"
    program.write_text(f"import sys; open({str(said)!r}, 'w').write(sys.stdin.readline())")
    with pytest.raises(ConnectError):
        async with connect(f"stdio:{sys.executable} {program}"):
            pass
    assert "initialize" in said.read_text()
    assert "packed" not in said.read_text()


@pytest.mark.parametrize("is_agreed", [False, True])
@requirement("packed/not-agreed")
async def test_input_is_packed_if_the_server_has_agreed(is_agreed):
    got = asyncio.get_running_loop().create_future()

    async def script(talk: Talk) -> None:
        request = await talk.expect("initialize")
        assert request["params"]["packed"] is True
        shell = {"name": "sh", "path": "/bin/sh"}
        info = {"shell": shell, "capabilities": {"packedMessages": True}}
        result = {"sessionId": "s", "environmentInfo": info}
        await talk.answer(request, result | ({"packed": True} if is_agreed else {}))
        await talk.expect("initialized")
        await talk.start()
        got.set_result(await talk.socket.recv())
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        process = await client.start(["cat"], stdin=True)
        writing = asyncio.create_task(process.write(CONTENT[:2000]))
        message = await got
        writing.cancel()
        await asyncio.wait({writing})
        assert isinstance(message, bytes) is is_agreed
        if is_agreed:
            assert message.endswith(CONTENT[:2000])


@requirement("packed/long-text")
@pytest.mark.parametrize("length", [16_000, 17_000, 70_000])
async def test_input_and_output_of_a_process_with_a_long_id(client, length):
    process = await client.start(["cat"], stdin=True, process_id="p" * length)
    output, _ = await process.communicate(CONTENT)
    assert output == CONTENT
