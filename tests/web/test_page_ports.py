"""Ports on the page: what processes listen on, previews and forwards."""

from __future__ import annotations

import sys
from pathlib import Path

import aiohttp
import pytest

from exec_server.web import place_ports
from tests.requirements import requirement
from tests.support.page import TabSocket, browsing, place_of

pytestmark = [pytest.mark.one_loop, pytest.mark.timeout(180)]

SIZE = {"columns": 80, "rows": 24}
# A web page that says its own name, and under which name it was asked for.
PAGE = """
import http.server
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = ("page of " + self.headers["Host"]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Page)
print("listening", server.server_address[1], flush=True)
server.serve_forever()
"""


async def web_page(tab: TabSocket, folder: Path) -> int:
    """Start a web page on the server; its port."""
    script = folder / "page.py"
    script.write_text(PAGE)
    line = f"exec {sys.executable} {script}"
    made = await tab.call("process.start", place="p0", line=line, terminal=False, **SIZE)
    await tab.call("shown.follow", id=made["id"], channel=1)
    await tab.shows(1, b"\n")
    return int(tab.output[1].split()[1])


async def fetched(url: str, host: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as http, http.get(url, headers={"Host": host}) as answer:
        return answer.status, await answer.text()


@requirement("web/ports:doors")
async def test_a_port_is_listed_previewed_forwarded_and_closed(server, tmp_path):
    async with browsing(place_of(server.url)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            port = await web_page(tab, tmp_path)
            listed = await tab.call("port.list", place="p0")
            assert [each["port"] for each in listed["ports"]] == [port]
            assert listed["doors"] == [] and listed["canOpen"]

            preview = await tab.call("port.preview", place="p0", port=port)
            assert (await tab.call("port.preview", place="p0", port=port)) == preview
            host = preview["url"].removeprefix("http://").rstrip("/")
            assert host.startswith(f"p{port}.box.localhost:")
            here = f"http://{preview['listen']}/"
            assert await fetched(here, host) == (200, f"page of {host}")
            # A name that another site lets lead here is refused.
            assert await fetched(here, "evil.example") == (421, "This is no page of that name.\n")
            status, text = await fetched(here, f"localhost:{here.split(':')[2].rstrip('/')}")
            assert status == 421 and preview["url"] in text

            plain = await tab.call("port.forward", place="p0", port=port, listen=0)
            assert await fetched(f"http://{plain['listen']}/", "x") == (200, "page of x")
            doors = (await tab.call("port.list", place="p0"))["doors"]
            assert [each["url"] for each in doors] == [preview["url"], None]
            for door in doors:
                await tab.call("port.close", place="p0", id=door["id"])
            for address in (preview["listen"], plain["listen"]):
                with pytest.raises(aiohttp.ClientConnectionError):
                    await fetched(f"http://{address}/", host)
            assert "not open" in await tab.refusal("port.close", place="p0", id="1")


@requirement("web/ports:reconnect")
async def test_ports_stay_open_when_the_connection_is_made_anew(server, tmp_path):
    async with browsing(place_of(server.url)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            port = await web_page(tab, tmp_path)
            made = await tab.call("port.forward", place="p0", port=port, listen=0)
            await tab.call("place.disconnect", place="p0")
            # The page ends with the session; the port says why it leads nowhere.
            await tab.call("place.connect", place="p0")
            with pytest.raises(aiohttp.ClientError):
                await fetched(f"http://{made['listen']}/", "x")
            [door] = (await tab.call("port.list", place="p0"))["doors"]
            assert door["listen"] == made["listen"] and "refused" in door["problem"]


@requirement("web/ports:bounds")
async def test_wrong_and_too_many_ports_are_refused(server, monkeypatch):
    monkeypatch.setattr(place_ports, "MAX_DOORS", 1)
    async with browsing(place_of(server.url)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            await tab.call("place.connect", place="p0")
            for port in (0, -1, 65536, "80", None, True):
                assert "`port`" in await tab.refusal("port.preview", place="p0", port=port)
            await tab.call("port.preview", place="p0", port=9)
            assert "close some" in await tab.refusal("port.forward", place="p0", port=9, listen=0)
            assert "no such environment" in await tab.refusal("port.list", place="p9")


@requirement("web/ports:bounds")
async def test_a_page_for_other_machines_opens_no_ports(server):
    async with browsing(place_of(server.url)) as browser:
        await browser.sign_in()
        browser.page.places.is_local = False
        async with browser.tab() as tab:
            await tab.call("place.connect", place="p0")
            assert not (await tab.call("port.list", place="p0"))["canOpen"]
            refusal = await tab.refusal("port.preview", place="p0", port=9)
            assert "exec-server port" in refusal
            assert await tab.refusal("port.forward", place="p0", port=9, listen=0) == refusal
