"""Recordings on the page, and going back in its terminals, without a browser."""

from __future__ import annotations

import base64
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exec_server.recording.cast_format import CastHeader
from exec_server.recording.cast_writer import CastWriter
from exec_server.web.page_program import PageOptions
from exec_server.web.recordings import recording_shelf, terminal_history
from tests.requirements import requirement
from tests.support.page import LOOPBACK, TabSocket, browsing, place_of

pytestmark = [pytest.mark.one_loop, pytest.mark.timeout(180)]

NOWHERE = place_of("ws://127.0.0.1:1")
SIZE = {"columns": 80, "rows": 24}
FOUND = "20260101T000000-demo"


def options_of(folder: Path, *, is_recording: bool = False) -> PageOptions:
    return msgspec.structs.replace(LOOPBACK, recordings=str(folder), is_recording=is_recording)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Three seconds: a line, an editor on the alternate screen, and a mark between them."""
    path = tmp_path / f"{FOUND}.cast"
    header = CastHeader(columns=60, rows=10, command="demo <b>x</b>", started=1767225600.0)
    writer = CastWriter(path, header)
    writer.output(0.0, b"first line\r\n")
    writer.mark(1.0, "ann (person) drives")
    writer.output(1.5, b"\x1b[?1049h\x1b[Honly the editor")
    writer.output(2.5, b"\x1b[?1049l")
    writer.resized(2.6, 40, 8)
    writer.output(3.0, b"last line\r\n")
    writer.exited(3.0, 7)
    writer.close(3.0)
    return path


async def screen_at(tab: TabSocket, time: float, **words: Any) -> bytes:
    found = await tab.call("recording.screen", time=time, **words)
    return base64.b64decode(found["screen"])


@requirement("web/recordings:play")
async def test_a_recording_is_listed_and_played_from_any_moment(recording):
    async with browsing(NOWHERE, options=options_of(recording.parent)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            [listed] = await tab.call("recording.list")
            assert listed["name"] == FOUND and listed["command"] == "demo <b>x</b>"
            facts = await tab.call("recording.open", name=FOUND)
            assert facts["duration"] == 3.0 and facts["exit"] == "7"
            assert (facts["columns"], facts["rows"]) == (60, 10)
            assert facts["marks"] == [{"time": 1.0, "text": "ann (person) drives"}]
            for is_prepared in (False, True):
                if is_prepared:
                    await tab.call("recording.prepare", name=FOUND)
                    assert Path(f"{recording}.index").exists()
                middle = await screen_at(tab, 2.0, name=FOUND)
                assert b"only the editor" in middle and b"first line" in middle
                assert b"only the editor" not in await screen_at(tab, 0.5, name=FOUND)
            place = await tab.call("recording.screen", name=FOUND, time=2.0)
            rest = await tab.call(
                "recording.events", name=FOUND, offset=place["offset"], time=place["time"]
            )
            assert [event[1] for event in rest["events"]] == ["o", "r", "o", "x"]
            assert rest["events"][2] == [3.0, "o", "last line\r\n"] and rest["end"]


@requirement("web/recordings:find")
async def test_text_is_found_with_its_moment_also_of_an_editor(recording, monkeypatch):
    (recording.parent / "20260102T000000-broken.cast").write_bytes(b'{"version": 3}\n')
    async with browsing(NOWHERE, options=options_of(recording.parent)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            answer = await tab.call("recording.find", pattern="ONLY the [a-z]+", ignoreCase=True)
            [found] = answer["found"]
            assert found == {"name": FOUND, "time": 1.5, "row": 1, "text": "only the editor"}
            answer = await tab.call("recording.find", pattern="ONLY", name=FOUND)
            assert answer["found"] == [] and not answer["more"]
            assert "no regular expression" in await tab.refusal("recording.find", pattern="(")
            monkeypatch.setattr(recording_shelf, "MAX_FOUND", 1)
            answer = await tab.call("recording.find", pattern="line", name=FOUND)
            assert len(answer["found"]) == 1 and answer["more"]
            # A pattern that takes for ever is given up, and its process ends.
            monkeypatch.setattr(recording_shelf, "SEARCH_SECONDS", 0.01)
            assert "too long" in await tab.refusal("recording.find", pattern="x")


@requirement("web/recordings:export")
async def test_a_recording_is_exported_as_an_attachment_and_removed(recording):
    async with browsing(NOWHERE, options=options_of(recording.parent)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            texts = {}
            for kind in ("text", "svg", "v2"):
                made = await tab.call("recording.ticket", name=FOUND, format=kind, at=2)
                url = browser.url(f"/download/{made['ticket']}/x")
                async with browser.http.get(url) as answer:
                    assert answer.status == 200
                    assert answer.headers["Content-Disposition"].startswith("attachment")
                    assert "sandbox" in answer.headers["Content-Security-Policy"]
                    texts[kind] = await answer.text()
            assert texts["text"] == "only the editor\n"
            assert texts["svg"].startswith("<svg") and '"version":2' in texts["v2"]
            assert "no such format" in await tab.refusal(
                "recording.ticket", name=FOUND, format="exe"
            )
            await tab.call("recording.remove", name=FOUND)
            assert await tab.call("recording.list") == [] and not recording.exists()


@requirement("web/recordings:bounds")
async def test_only_recordings_of_the_directory_can_be_named(recording, tmp_path):
    outside = tmp_path / "elsewhere" / "secret.cast"
    outside.parent.mkdir()
    outside.write_bytes(recording.read_bytes())
    (tmp_path / "linked.cast").symlink_to(outside)
    async with browsing(NOWHERE, options=options_of(tmp_path)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            for name in ("elsewhere/secret", "../x", str(outside), "linked", ".", "", "a\0b"):
                for call in ("recording.open", "recording.remove"):
                    await tab.refusal(call, name=name)
            assert outside.exists()
            for wrong in ({"time": -1}, {"time": "1"}, {"time": True}, {"time": 1e300}):
                assert "`time`" in await tab.refusal("recording.screen", name=FOUND, **wrong)
            # Any number is accepted as a place, and nothing else is read.
            await tab.ask("recording.events", name=FOUND, offset=5, time=0)
            facts = await tab.call("recording.events", name=FOUND, offset=2**40, time=0)
            assert facts["events"] == []


@requirement("web/recordings:bounds")
async def test_hostile_recordings_do_no_harm_to_the_others(recording, tmp_path):
    content = recording.read_bytes()
    strange = "20250101T000000-\udcff"
    (tmp_path / f"{strange}.cast").write_bytes(content)
    for number, time in enumerate(("1e308", "-1e308", "1" + "0" * 400)):
        head = f'{{"version":3,"term":{{"cols":80,"rows":24}},"timestamp":{time}}}\n'
        (tmp_path / f"time{number}.cast").write_text(head)
    header = CastHeader(columns=80, rows=24, command="c" * 100_000, owner="o" * 100_000)
    writer = CastWriter(tmp_path / "long.cast", header)
    writer.mark(0.0, "m" * 100_000)
    writer.close(0.0)
    async with browsing(NOWHERE, options=options_of(tmp_path)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            listed = {each["name"]: each for each in await tab.call("recording.list")}
            assert listed.keys() == {FOUND, strange, "long", "time0", "time1", "time2"}
            assert {listed[f"time{at}"]["startedAt"] for at in range(3)} == {None}
            assert len(json.dumps(listed)) < 10_000
            assert len(json.dumps(await tab.call("recording.open", name="long"))) < 10_000
            found = await tab.call("recording.find", pattern="last l")
            assert {each["name"] for each in found["found"]} == {FOUND, strange}
            assert await screen_at(tab, 3.0, name=strange)


@requirement("web/recordings:export")
async def test_a_directory_whose_name_looks_like_an_option(recording, monkeypatch):
    folder = recording.parent / "--help"
    folder.mkdir()
    recording.rename(folder / recording.name)
    monkeypatch.chdir(recording.parent)
    async with browsing(NOWHERE, options=options_of(Path("--help"))) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            ticket = await tab.call("recording.ticket", name=FOUND, format="v3")
            url = browser.url(f"/download/{ticket['ticket']}/{ticket['name']}")
            async with browser.http.get(url) as answer:
                assert answer.status == 200 and '"version":3' in await answer.text()


@requirement("web/terminals:going-back")
async def test_a_terminal_has_a_history_which_ends_with_it(server, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with browsing(place_of(server.url)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            line = "echo one; read x; clear; echo two; read x"
            made = await tab.call("process.start", place="p0", terminal=True, line=line, **SIZE)
            assert made["history"]
            await tab.call("shown.follow", id=made["id"], channel=1)
            await tab.shows(1, b"one")
            before = (await tab.call("recording.open", id=made["id"]))["duration"]
            await tab.type(1, b"\r")
            await tab.shows(1, b"two")
            [file] = tmp_path.glob("*/*.cast")
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
            assert b"one" in await screen_at(tab, before, id=made["id"])
            refusal = await tab.refusal("recording.screen", id=made["id"], part="x", time=0)
            assert "begun anew" in refusal
            # It is no recording of the list, and it is gone with the terminal.
            assert await tab.call("recording.list") == []
            await tab.call("shown.close", id=made["id"])
    assert list(tmp_path.iterdir()) == []


@requirement("web/terminals:going-back")
async def test_a_long_history_begins_anew_with_the_screen(server, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(terminal_history, "LONGEST", 20_000)
    async with browsing(place_of(server.url)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            line = "echo first; seq 9000; read x; echo done; read x"
            made = await tab.call("process.start", place="p0", terminal=True, line=line, **SIZE)
            await tab.call("shown.follow", id=made["id"], channel=1)
            await tab.shows(1, b"9000")
            await tab.type(1, b"\r")
            await tab.shows(1, b"done")
            facts = await tab.call("recording.open", id=made["id"])
            assert facts["bytes"] < 100_000
            assert len(list(tmp_path.glob("*/*.cast"))) <= 2
            assert b"9000" in await screen_at(tab, facts["duration"], id=made["id"])


@requirement("web/recordings:kept")
async def test_terminals_are_recorded_on_request_without_secrets(server, tmp_path):
    options = options_of(tmp_path / "kept", is_recording=True)
    options = msgspec.structs.replace(options, secrets=("topsecret",))
    async with browsing(place_of(server.url), options=options) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            line = "echo top'secr'et; echo visible"
            made = await tab.call("process.start", place="p0", terminal=True, line=line, **SIZE)
            await tab.event("shown", id=made["id"], state="exited")
            await tab.call("shown.close", id=made["id"])
    [file] = (tmp_path / "kept").glob("*.cast")
    text = file.read_text().partition("\n")[2]
    # The output may come in several pieces.
    assert "visible" in text and "topsecret" not in text and text.count("*") == len("topsecret")


def test_what_a_killed_program_has_left_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(terminal_history, "_NEW_SECONDS", 0.0)
    left = tmp_path / f"exec-server-page-{os.getuid()}-dead"
    left.mkdir()
    (left / "lock").touch()
    first = terminal_history.TerminalHistories()
    assert not left.exists()
    second = terminal_history.TerminalHistories()
    assert len(list(tmp_path.iterdir())) == 2, "the one in use stays"
    first.close()
    second.close()
    assert list(tmp_path.iterdir()) == []
