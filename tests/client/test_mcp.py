"""The MCP client of another project, whose servers run on the executor."""

from __future__ import annotations

import asyncio
import sys

import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from exec_server.client.http.httpx_carrier import executor_transport
from tests.requirements import requirement
from tests.support.servers import CHILDREN, OURS

SERVER = [sys.executable, str(CHILDREN / "mcp_server.py")]

pytestmark = pytest.mark.one_loop


async def use(mcp: Client) -> str:
    tools = await mcp.list_tools()
    assert [tool.name for tool in tools.tools] == ["whereabouts"]
    result = await mcp.call_tool("whereabouts", {"word": "hello"})
    return str(result.content[0].text)  # type: ignore[union-attr]


@requirement("http/client:mcp")
async def test_an_mcp_server_over_http_is_reached_from_the_executor(client):
    process = await client.start([*SERVER, "http"])
    async with asyncio.timeout(30):
        said = b""
        while not said.endswith(b"\n"):
            said += await anext(aiter(process.stdout))
        url = f"http://127.0.0.1:{int(said.split()[1])}/mcp"
        async with httpx2.AsyncClient(transport=executor_transport(client, httpx2)) as http:
            async with Client(streamable_http_client(url, http_client=http)) as mcp:
                assert await use(mcp) == f"hello from {await pid_of(client)}"
        await process.terminate()
        await process.wait()


async def pid_of(client) -> int:
    (info,) = await client.list_processes()
    return int(info.pid)


@requirement("http/client:mcp")
async def test_an_mcp_server_over_stdio_runs_on_the_executor(server):
    command = [*OURS, "run", server.url, "--", *SERVER, "stdio"]
    parameters = StdioServerParameters(command=command[0], args=command[1:])
    async with asyncio.timeout(30), Client(stdio_client(parameters)) as mcp:
        assert (await use(mcp)).startswith("hello from ")
