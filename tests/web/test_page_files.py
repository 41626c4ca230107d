"""Files on the page: browse, edit, uploads that continue, downloads with ranges."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator

import aiohttp
import pytest

from exec_server.web import transfer_routes
from exec_server.web.transfer_routes import PIECE_BYTES
from tests.requirements import requirement
from tests.support.page import Browser, browsing, place_of

pytestmark = [pytest.mark.one_loop, pytest.mark.timeout(180)]


@requirement("web/files:browse")
async def test_files_are_listed_made_renamed_and_removed(server, tmp_path):
    (tmp_path / "b.txt").write_text("12345")
    (tmp_path / "A").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    os.close(os.open(os.fsencode(tmp_path) + b"/\xff", os.O_CREAT | os.O_WRONLY))
    async with browsing(place_of(server.url)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            await tab.call("place.connect", place="p0")
            found = await tab.call("file.list", place="p0", path=str(tmp_path))
            names = [each["name"] for each in found["entries"]]
            assert names[:2] == ["A", "b.txt"] and "link" in names and len(names) == 4
            text = found["entries"][1]
            assert text["size"] == 5 and text["modified"] and text["path"] == f"{tmp_path}/b.txt"
            [odd] = [each for each in found["entries"] if "%FF" in each["path"]]
            await tab.call("file.remove", place="p0", path=odd["path"])
            path = f"{tmp_path}/new"
            await tab.call("file.makeFolder", place="p0", path=path)
            await tab.call("file.rename", place="p0", path=path, to=f"{tmp_path}/other")
            assert await tab.refusal("file.rename", place="p0", path=path, to=text["path"])
            await tab.call("file.remove", place="p0", path=f"{tmp_path}/other", recursive=True)
            assert sorted(os.listdir(tmp_path)) == ["A", "b.txt", "link"]


@requirement("web/files:edit")
async def test_a_small_text_is_edited_and_never_overwrites_a_change(server, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("grüße\n")
    (tmp_path / "binary").write_bytes(b"\x00\xff")
    (tmp_path / "large").write_bytes(b"x" * 1_100_000)
    async with browsing(place_of(server.url)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            await tab.call("place.connect", place="p0")
            words = {"place": "p0", "path": str(path)}
            found = await tab.call("file.read", **words)
            assert found["text"] == "grüße\n"
            saved = await tab.call("file.write", text="one\n", version=found["version"], **words)
            assert path.read_text() == "one\n"
            path.write_text("changed elsewhere")
            refused = await tab.refusal("file.write", text="x", version=saved["version"], **words)
            assert "changed meanwhile" in refused
            assert "exists already" in await tab.refusal("file.write", text="x", **words)
            new = {"place": "p0", "path": f"{tmp_path}/new"}
            await tab.call("file.write", text="", **new)
            assert "no text" in await tab.refusal(
                "file.read", place="p0", path=f"{tmp_path}/binary"
            )
            assert "download" in await tab.refusal(
                "file.read", place="p0", path=f"{tmp_path}/large"
            )
            assert "regular" in await tab.refusal("file.read", place="p0", path=str(tmp_path))


async def put(
    browser: Browser, part: str, offset: int, data: bytes
) -> tuple[int, dict[str, object]]:
    answer = await browser.http.put(
        browser.url("/upload/p0"),
        params={"path": part, "offset": str(offset)},
        data=io.BytesIO(data),
        headers=browser.headers,
    )
    return answer.status, await answer.json()


@requirement("web/files:upload")
async def test_an_upload_continues_where_it_was_interrupted(server, tmp_path):
    content = os.urandom(3_000_000)
    target = tmp_path / "up.bin"
    words = {"place": "p0", "path": str(target), "size": len(content), "stamp": 1234}
    async with browsing(place_of(server.url)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            await tab.call("place.connect", place="p0")
            begun = await tab.call("upload.begin", **words)
            assert begun["offset"] == 0 and begun["piece"] == PIECE_BYTES
            status, facts = await put(browser, begun["part"], 0, content[:1_000_000])
            assert status == 200 and facts == {"offset": 1_000_000}
            assert (await put(browser, begun["part"], 0, b"again"))[0] == 409
            assert (await put(browser, str(tmp_path / "b.txt"), 0, b"x"))[0] == 400
            assert (await put(browser, begun["part"], 1_000_000, b"x" * (PIECE_BYTES + 1)))[
                0
            ] == 413
            assert "1000000 of 3000000" in await tab.refusal("upload.finish", **words)
        # Another tab, another day.
        async with browser.tab() as tab:
            begun = await tab.call("upload.begin", **words)
            assert begun["offset"] == 1_000_000
            status, _ = await put(browser, begun["part"], 1_000_000, content[1_000_000:])
            assert status == 200 and not target.exists()
            await tab.call("upload.finish", **words)
            assert target.read_bytes() == content and os.listdir(tmp_path) == ["up.bin"]
            assert "exists already" in await tab.refusal("upload.begin", **words)
            begun = await tab.call("upload.begin", overwrite=True, **words)
            await put(browser, begun["part"], 0, b"part")
            await tab.call("upload.drop", **words)
            assert os.listdir(tmp_path) == ["up.bin"]
            empty = {**words, "path": f"{tmp_path}/empty", "size": 0}
            await tab.call("upload.begin", **empty)
            await tab.call("upload.finish", **empty)
            assert (tmp_path / "empty").read_bytes() == b""


@requirement("web/files:upload")
async def test_what_has_arrived_of_a_broken_piece_stays(server, tmp_path, monkeypatch):
    monkeypatch.setattr(transfer_routes, "_BLOCK_BYTES", 100_000)
    content = os.urandom(1_000_000)
    target = tmp_path / "up.bin"
    words = {"place": "p0", "path": str(target), "size": len(content), "stamp": 1}
    async with browsing(place_of(server.url)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            await tab.call("place.connect", place="p0")
            part = (await tab.call("upload.begin", **words))["part"]

            async def body() -> AsyncIterator[bytes]:
                yield content[:450_000]
                # The browser goes away when four blocks are written.
                async with asyncio.timeout(60):
                    while (await tab.call("upload.begin", **words))["offset"] < 400_000:
                        pass
                raise ConnectionResetError

            headers = {**browser.headers, "Content-Length": str(len(content))}
            with pytest.raises((aiohttp.ClientError, ConnectionResetError)):
                await browser.http.put(
                    browser.url("/upload/p0"),
                    params={"path": part, "offset": "0"},
                    data=body(),
                    headers=headers,
                )
            begun = await tab.call("upload.begin", **words)
            assert begun["offset"] == 400_000
            assert (await put(browser, part, 400_000, content[400_000:]))[0] == 200
            await tab.call("upload.finish", **words)
            assert target.read_bytes() == content


@requirement("web/files:upload")
async def test_an_upload_follows_no_link_that_others_have_put_there(server, tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"")
    words = {"place": "p0", "path": f"{tmp_path}/up.bin", "size": 4, "stamp": 1}
    async with browsing(place_of(server.url)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            await tab.call("place.connect", place="p0")
            part = (await tab.call("upload.begin", **words))["part"]
            os.symlink(victim, part)
            assert (await put(browser, part, 0, b"evil"))[0] == 502
            empty = {**words, "size": 0}
            os.symlink(victim, (await tab.call("upload.begin", **empty))["part"])
            assert await tab.refusal("upload.finish", **empty)
            assert victim.read_bytes() == b""


@requirement("web/files:download")
async def test_a_download_has_ranges_and_is_never_shown_as_a_page(server, tmp_path):
    content = os.urandom(2_500_000)
    (tmp_path / 'a "b".html').write_bytes(content)
    (tmp_path / "p.png").write_bytes(b"\x89PNG")
    async with browsing(place_of(server.url)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            await tab.call("place.connect", place="p0")
            path = f'{tmp_path}/a "b".html'
            ticket = (await tab.call("file.ticket", place="p0", path=path, picture=True))["ticket"]
            url = browser.url(f"/download/{ticket}/x")
            async with browser.http.get(url) as answer:
                assert answer.status == 200 and await answer.read() == content
                assert answer.headers["Content-Type"] == "application/octet-stream"
                assert answer.headers["Content-Disposition"].startswith("attachment;")
                assert "sandbox" in answer.headers["Content-Security-Policy"]
                etag = answer.headers["ETag"]
            headers = {"Range": "bytes=2400000-", "If-Range": etag}
            async with browser.http.get(url, headers=headers) as answer:
                assert answer.status == 206 and await answer.read() == content[2_400_000:]
                assert answer.headers["Content-Range"] == "bytes 2400000-2499999/2500000"
            async with browser.http.get(url, headers={"Range": "bytes=5-9"}) as answer:
                assert await answer.read() == content[5:10]
            async with browser.http.get(url, headers={"Range": "bytes=9999999-"}) as answer:
                assert answer.status == 416
            async with browser.http.get(
                url, headers={"Range": "bytes=5-9", "If-Range": '"old"'}
            ) as answer:
                assert answer.status == 200
            words = {"place": "p0", "path": f"{tmp_path}/p.png", "picture": True}
            ticket = (await tab.call("file.ticket", **words))["ticket"]
            async with browser.http.get(browser.url(f"/download/{ticket}/p.png")) as answer:
                assert answer.headers["Content-Type"] == "image/png"
            words = {"place": "p0", "path": f"{tmp_path}/nothing"}
            ticket = (await tab.call("file.ticket", **words))["ticket"]
            async with browser.http.get(browser.url(f"/download/{ticket}/x")) as answer:
                assert answer.status == 404
