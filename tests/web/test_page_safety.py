"""What the page refuses: other hosts, other origins, missing halves of a session, wrong calls."""

from __future__ import annotations

import aiohttp
import msgspec
import pytest

from exec_server.errors import ConfigurationError
from exec_server.transport.address import TcpAddress
from exec_server.web.page_program import PageOptions, check_options
from exec_server.web.page_routes import KEY_HEADER
from tests.requirements import requirement
from tests.support.certificates import make_certificates
from tests.support.page import LOOPBACK, browsing, place_of
from tests.support.principals import MadePrincipals

NOWHERE = place_of("ws://127.0.0.1:1")


@requirement("web/safety:headers")
async def test_every_answer_forbids_inline_code_framing_and_guessing():
    async with browsing(NOWHERE) as browser:
        for path in (
            "/",
            "/assets/app/main.js",
            "/assets/vendor/xterm.mjs",
            "/session",
            "/nothing",
        ):
            async with browser.http.get(browser.url(path)) as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert "unsafe" not in policy and "default-src 'none'" in policy
                assert "frame-ancestors 'none'" in policy and "script-src 'self'" in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["X-Frame-Options"] == "DENY"
                assert answer.headers["Referrer-Policy"] == "no-referrer"
                assert answer.headers["Server"] == "exec-server"
        async with browser.http.get(browser.url("/")) as answer:
            text = await answer.text()
        assert "<script>" not in text and "style=" not in text and "onclick" not in text
        assert "http:" not in text and "https:" not in text, "nothing comes from elsewhere"


@requirement("web/safety:host")
async def test_another_host_is_refused():
    async with browsing(NOWHERE) as browser:
        port = browser.origin.rpartition(":")[2]
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1.:{port}"):
            async with browser.http.get(browser.url("/"), headers={"Host": host}) as answer:
                assert answer.status == 421, host
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}"):
            async with browser.http.get(browser.url("/"), headers={"Host": host}) as answer:
                assert answer.status == 200, host


@requirement("web/safety:origin")
async def test_another_origin_is_refused():
    async with browsing(NOWHERE) as browser:
        await browser.sign_in()
        port = int(browser.origin.rpartition(":")[2])
        foreign = (
            "http://evil.example",
            "null",
            f"http://127.0.0.1:{port + 1}",
            "https://127.0.0.1",
        )
        for origin in foreign:
            headers = {**browser.headers, "Origin": origin}
            async with browser.http.get(browser.url("/session"), headers=headers) as answer:
                assert answer.status == 403, origin
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await browser.http.ws_connect(browser.url("/socket"), headers={"Origin": origin})
            assert refused.value.status == 403
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await browser.http.ws_connect(browser.url("/socket"))
        without = {KEY_HEADER: browser.key}
        async with browser.http.delete(browser.url("/session"), headers=without) as answer:
            assert answer.status == 403
        for site in ("cross-site", "same-site"):
            headers = {**browser.headers, "Sec-Fetch-Site": site}
            async with browser.http.get(
                browser.url("/assets/app/main.js"), headers=headers
            ) as answer:
                assert answer.status == 403
        # A link in another page may lead here.
        headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        async with browser.http.get(browser.url("/"), headers=headers) as answer:
            assert answer.status == 200


@requirement("web/access:one-time-link")
async def test_a_link_becomes_a_cookie_that_scripts_cannot_read():
    told: list[object] = []
    async with browsing(NOWHERE, on_sign_in=told.append) as browser:
        link = browser.page.new_link()
        assert link.startswith(browser.origin + "/#token=")
        secret = link.partition("#token=")[2]
        answer = await browser.sign_in(secret)
        [cookie] = answer.headers.getall("Set-Cookie")
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie
        assert secret not in cookie and len(told) == 1
        async with browser.http.get(browser.url("/session"), headers=browser.headers) as state:
            assert (await state.json())["signedIn"] is True
        again = await browser.sign_in(secret)
        assert again.status == 403 and "used already" in (await again.json())["error"]


@requirement("web/access:two-halves")
async def test_the_cookie_alone_opens_nothing():
    async with browsing(NOWHERE) as browser:
        await browser.sign_in()
        headers = {"Origin": browser.origin}
        put = browser.http.put(
            browser.url("/upload/p0?path=/x&offset=0"), headers=headers, data=b"x"
        )
        async with put as answer:
            assert answer.status == 401
        async with browser.http.ws_connect(browser.url("/socket"), headers=headers) as socket:
            await socket.send_json({"key": "wrong"})
            message = await socket.receive()
            assert message.type == aiohttp.WSMsgType.CLOSE and message.data == 4401
        for key in ('{"key": "\\ud800"}', "[" * 200_000):
            async with browser.http.ws_connect(browser.url("/socket"), headers=headers) as socket:
                await socket.send_str(key)
                message = await socket.receive()
                assert message.type == aiohttp.WSMsgType.CLOSE and message.data == 4401
        for path in ("/download/unknown/x", "/download/" + "x" * 43 + "/x"):
            async with browser.http.get(browser.url(path)) as answer:
                assert answer.status == 404
        # And the key alone opens nothing either.
        browser.http.cookie_jar.clear()
        async with browser.http.get(browser.url("/download/unknown/x")) as answer:
            assert answer.status == 401
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await browser.http.ws_connect(browser.url("/socket"), headers=headers)


@requirement("web/safety:bounds")
async def test_wrong_and_long_requests_are_refused():
    async with browsing(NOWHERE) as browser:
        for body in (b"", b"[]", b'{"token": 7}', b'{"token": "a", "more": 1}', b"x" * 5000):
            post = browser.http.post(
                browser.url("/session"), data=body, headers={"Origin": browser.origin}
            )
            async with post as answer:
                assert answer.status in (400, 413), body[:20]
        for path in ("/assets/../page_access.py", "/assets/%2e%2e/places.py", "/assets/", "/x"):
            async with browser.http.get(browser.url(path)) as answer:
                assert answer.status == 404
        await browser.sign_in()
        async with browser.tab() as tab:
            wrong = ("", "[]", "{}", '{"id": "x", "call": "place.list"}', "\x00", "[" * 200_000)
            for text in wrong:
                await tab.send(text)
            assert "no such call" in await tab.refusal("nothing")
            assert "no such environment" in await tab.refusal("process.list", place="p9")
            assert "`place`" in await tab.refusal("place.connect", place=7)
            assert "`rows`" in await tab.refusal(
                "process.start", place="p0", terminal=True, columns=80, rows=100_000
            )
            assert "not open" in await tab.refusal("shown.follow", id="x", channel=1)
            [place] = await tab.call("place.list")
            assert place["state"] == "idle"
            assert await tab.refusal("place.connect", place="p0")
            failed = await tab.event("place", state="failed")
            assert failed["problem"]


@requirement("web/access:sign-out")
async def test_signing_out_closes_the_tabs():
    async with browsing(NOWHERE) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            async with browser.http.delete(
                browser.url("/session"), headers=browser.headers
            ) as answer:
                assert answer.status == 200
            await tab.until(lambda: tab.close_code is not None)
        async with browser.http.get(browser.url("/session"), headers=browser.headers) as state:
            assert (await state.json())["signedIn"] is False


@requirement("web/access:elsewhere")
async def test_a_page_for_other_machines_needs_tls_and_principals(tmp_path):
    made = MadePrincipals(tmp_path)
    pem = str(make_certificates(tmp_path).authority.with_name("server.pem"))
    token = made.add("ann")
    elsewhere = PageOptions(listen=TcpAddress("0.0.0.0", 0))
    secured = msgspec.structs.replace(elsewhere, tls_certificate=pem, tls_key=pem)
    whole = msgspec.structs.replace(secured, principals=str(made.path))
    for options, missing in ((elsewhere, "--tls-cert"), (secured, "--principals")):
        with pytest.raises(ConfigurationError, match=missing):
            check_options(options)
    half = msgspec.structs.replace(LOOPBACK, tls_key="x")
    with pytest.raises(ConfigurationError, match="go together"):
        check_options(half)
    async with browsing(NOWHERE, options=whole) as browser:
        assert browser.origin.startswith("https://") and "#" not in browser.page.new_link()
        browser.http.connector._ssl = False  # type: ignore[union-attr]
        wrong = await browser.sign_in("exs_wrong")
        assert wrong.status == 403
        answer = await browser.sign_in(token)
        [cookie] = answer.headers.getall("Set-Cookie")
        assert "Secure" in cookie and cookie.startswith("__Host-")
        async with browser.http.get(browser.url("/session"), headers=browser.headers) as state:
            assert await state.json() == {"signedIn": True, "wantsToken": True}
