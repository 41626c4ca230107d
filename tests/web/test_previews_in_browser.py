"""Previews in a real browser: what they keep, and what they cannot read of one another."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from tests.cli.port.test_port_command import facts_of
from tests.requirements import requirement
from tests.support.chromium import Tab
from tests.support.cli import running
from tests.support.ports import free_port, free_ports

pytestmark = [pytest.mark.one_loop, pytest.mark.timeout(180)]

PAGE = "<!doctype html><title>page</title><p>a page"
# Cookies that a page wants for itself, for all of the machine, and for a whole server.
COOKIES = "plain=1; Max-Age=600", "wide=1; Domain=localhost", "wide2=1; Domain=.localhost"


async def root(request: web.Request) -> web.Response:
    answer = web.Response(text=PAGE, content_type="text/html")
    if "set" in request.query:
        for cookie in COOKIES:
            answer.headers.add("Set-Cookie", cookie)
        answer.headers.add("Set-Cookie", f"server=1; Domain={_parent(request.host)}")
    return answer


async def seen(request: web.Request) -> web.Response:
    """What the program sees of a request."""
    facts = {"host": request.host, "cookies": dict(request.cookies)}
    return web.json_response(facts)


async def socket(request: web.Request) -> web.WebSocketResponse:
    made = web.WebSocketResponse()
    await made.prepare(request)
    await made.send_json({"host": request.host, "cookies": dict(request.cookies)})
    await made.close()
    return made


def _parent(host: str) -> str:
    """`build.localhost` of `p3000.build.localhost:4000`."""
    return host.partition(":")[0].partition(".")[2]


@asynccontextmanager
async def application(port: int) -> AsyncIterator[None]:
    app = web.Application()
    app.add_routes([web.get("/", root), web.get("/seen", seen), web.get("/socket", socket)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield
    finally:
        await runner.cleanup()


@asynccontextmanager
async def previews(url: str, tmp_path, *ports: int, front: int) -> AsyncIterator[list[str]]:
    """`exec-server port --open` for each of *ports*; the addresses of the pages."""
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    opened = [word for port in ports for word in ("--open", str(port))]
    words = ("port", url, "-o", "json", "--preview-port", str(front), *opened)
    async with running(*words, env=env) as process:
        yield [each["url"] for each in await facts_of(process)]
        process.terminate()
        await asyncio.wait_for(process.wait(), 60)


async def visit(tab: Tab, url: str) -> None:
    await tab.open(url)
    at = json.dumps(url)
    await tab.until(f"location.href === {at} && document.readyState === 'complete'")


async def asked(tab: Tab) -> dict[str, Any]:
    facts: dict[str, Any] = await tab.run("fetch('/seen').then(answer => answer.json())")
    return facts


@requirement("port/preview:cookies")
async def test_cookies_survive_a_restart_of_the_program_and_of_the_command(server, tab, tmp_path):
    port, front = free_ports(2)
    async with previews(server.url, tmp_path, port, front=front) as [page]:
        async with application(port):
            await visit(tab, f"{page}?set")
            assert (await asked(tab))["cookies"]["plain"] == "1"
        async with application(port):
            await visit(tab, page)
            assert (await asked(tab))["cookies"]["plain"] == "1"
    async with (
        application(port),
        previews(server.url, tmp_path, port, front=front) as [again],
    ):
        assert again == page
        await visit(tab, again)
        assert (await asked(tab))["cookies"]["plain"] == "1"


@requirement("port/preview:origin")
async def test_the_host_and_the_cookies_are_alike_for_http_and_websockets(server, tab, tmp_path):
    port, front = free_port(), 0
    async with (
        application(port),
        previews(server.url, tmp_path, port, front=front) as [page],
    ):
        await visit(tab, f"{page}?set")
        by_http = await asked(tab)
        by_socket = await tab.run(
            "new Promise(done => { const s = new WebSocket(`ws://${location.host}/socket`);"
            " s.onmessage = event => done(JSON.parse(event.data)); })"
        )
        assert by_http["host"] == page.removeprefix("http://").rstrip("/")
        assert by_socket == by_http


@requirement("port/preview:apart")
async def test_two_previews_cannot_read_one_another(server, tab, tmp_path):
    ports = free_ports(2)
    async with (
        application(ports[0]),
        application(ports[1]),
        previews(server.url, tmp_path, *ports, front=0) as [first, second],
    ):
        await visit(tab, f"{first}?set")
        await tab.run("localStorage.setItem('secret', 'x')")
        await tab.run("document.cookie = 'script=1; Domain=localhost'")
        await visit(tab, second)
        assert await tab.run("localStorage.getItem('secret')") is None
        cookies = (await asked(tab))["cookies"]
        # Chromium takes no cookie for `localhost`, and those of a server's name are for its pages.
        assert cookies.keys() <= {"server"}
        other = json.dumps(f"{first}seen")
        read = f"fetch({other}, {{credentials: 'include'}}).then(() => 'read', () => 'refused')"
        assert await tab.run(read) == "refused"
        frame = f"""new Promise(done => {{
          const frame = document.createElement('iframe');
          frame.onload = () => {{
            try {{ done(frame.contentWindow.document.body.innerText) }}
            catch (error) {{ done(error.name) }}
          }};
          frame.src = {json.dumps(first)};
          document.body.append(frame);
        }})"""
        assert await tab.run(frame) == "SecurityError"
