"""Terminals, commands and jobs of the page, on a real server and without a browser."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from exec_server.client_urls import connect
from exec_server.errors import ControlLost
from exec_server.web import shown_process
from exec_server.web.viewer import WINDOW_BYTES
from tests.requirements import requirement
from tests.support.durable import StateServers
from tests.support.page import browsing, place_of

pytestmark = [pytest.mark.one_loop, pytest.mark.timeout(180)]

SIZE = {"columns": 80, "rows": 24}


@requirement("web/terminals:typing")
async def test_a_terminal_is_typed_to_resized_and_closed(server):
    async with browsing(place_of(server.url)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            made = await tab.call("process.start", place="p0", terminal=True, line="cat", **SIZE)
            assert made["state"] == "running" and made["terminal"] and made["pid"]
            await tab.call("shown.follow", id=made["id"], channel=1)
            await tab.type(1, b"hello\r")
            await tab.shows(1, b"hello\r\nhello\r\n")
            await tab.call("shown.resize", id=made["id"], columns=100, rows=30)
            await tab.event("shown", id=made["id"], columns=100, rows=30)
            # Another tab, and this one after a reload, sees the same at once.
            async with browser.tab() as other:
                [listed] = await other.call("shown.list")
                assert listed["id"] == made["id"]
                await other.call("shown.follow", id=made["id"], channel=9)
                await other.shows(9, b"hello")
                assert other.frames[9] == 1
            await tab.call("shown.close", id=made["id"])
            await tab.event("gone", id=made["id"])
            assert await tab.call("shown.list") == []


@requirement("web/terminals:environment")
async def test_a_terminal_has_the_size_and_the_name_of_the_page(server):
    async with browsing(place_of(server.url)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            line = "stty size; echo $TERM; pwd"
            made = await tab.call(
                "process.start", place="p0", terminal=True, line=line, cwd="/", columns=91, rows=17
            )
            await tab.call("shown.follow", id=made["id"], channel=1)
            ended = await tab.event("shown", id=made["id"], state="exited")
            assert ended["exitCode"] == 0
            await tab.shows(1, b"17 91")
            await tab.shows(1, b"xterm-256color")


@requirement("web/processes:reports")
async def test_a_command_is_listed_signalled_and_reported(server):
    async with browsing(place_of(server.url)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            words = {"place": "p0", "terminal": False, **SIZE}
            made = await tab.call("process.start", line="echo out; echo err >&2; cat", **words)
            await tab.call("shown.follow", id=made["id"], channel=1)
            await tab.shows(1, b"out\n")
            await tab.shows(1, b"err\n")
            [listed] = await tab.call("process.list", place="p0")
            assert listed["shown"] == made["id"] and listed["processId"] == made["processId"]
            slow = await tab.call("process.start", line="exec sleep 600", **words)
            await tab.call("process.signal", id=slow["id"], signal="SIGTERM")
            ended = await tab.event("shown", id=slow["id"], state="exited")
            assert ended["exitCode"] == 143 and ended["end"]["signal"] == "SIGTERM"
            assert ended["usage"]["wall"] >= 0
            assert "not found" not in await tab.refusal("process.signal", id="x", place="p0")


@requirement("web/terminals:window")
async def test_a_flood_waits_for_the_tab_and_ctrl_c_works(server, monkeypatch):
    monkeypatch.setattr(shown_process, "PATIENCE", 600.0)
    async with browsing(place_of(server.url)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            line = "yes; echo interrupted"
            made = await tab.call("process.start", place="p0", terminal=True, line=line, **SIZE)
            tab.draws = False
            await tab.call("shown.follow", id=made["id"], channel=1)
            await tab.until(lambda: len(tab.output.get(1, b"")) >= WINDOW_BYTES)
            # Nothing more comes until something is drawn; what was read in one piece may be over.
            held = tab.received[1]
            assert held < WINDOW_BYTES + 2 * 1024 * 1024
            await tab.type(1, b"\x03")
            tab.draws = True
            await tab.drawn(1, held)
            ended = await tab.event("shown", id=made["id"], state="exited")
            assert ended["exitCode"] == 130 or b"interrupted" in tab.output[1]


@requirement("web/terminals:sleeping")
async def test_a_tab_that_sleeps_does_not_hold_the_process_up(server, monkeypatch):
    monkeypatch.setattr(shown_process, "PATIENCE", 0.05)
    async with browsing(place_of(server.url)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            line = (
                "head -c 3000000 /dev/zero | tr '\\0' x; printf '\\033[2J\\033[Hfinished\\n'; cat"
            )
            made = await tab.call("process.start", place="p0", terminal=True, line=line, **SIZE)
            tab.draws = False
            await tab.call("shown.follow", id=made["id"], channel=1)
            await tab.until(lambda: len(tab.output.get(1, b"")) >= WINDOW_BYTES)
            async with browser.tab() as other:
                await other.call("shown.follow", id=made["id"], channel=2)
                await other.shows(2, b"finished")
            held = tab.received[1]
            assert held < 2_000_000
            tab.draws = True
            await tab.drawn(1, held)
            await tab.shows(1, b"finished")
            assert tab.frames[1] == 2 and len(tab.output[1]) < 200_000


@requirement("web/terminals:queries")
async def test_questions_of_a_program_are_answered_while_no_tab_looks(server):
    async with browsing(place_of(server.url)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            line = "stty raw -echo; printf '\\033[6n'; head -c 6 | od -c; stty sane; cat"
            made = await tab.call("process.start", place="p0", terminal=True, line=line, **SIZE)

            async def shows_answer() -> bool:
                async with browser.tab() as other:
                    await other.call("tab.hide", hidden=True)
                    await other.call("shown.follow", id=made["id"], channel=1)
                    await other.until(lambda: 1 in other.frames)
                    return b"033" in other.output[1]

            async with asyncio.timeout(60):
                while not await shows_answer():
                    pass


@requirement("web/processes:jobs")
async def test_a_job_of_another_session_is_followed_and_left_alone(tmp_path):
    servers = StateServers(tmp_path / "state")
    try:
        async with connect(servers.url) as client:
            handle = await client.start(
                ["sh", "-c", "echo begun; read x; echo got $x; cat"], tty=True, durable=True
            )
            await handle.read_until(b"begun")
            process_id, session_id = handle.process_id, client.session_id
            async with browsing(place_of(servers.url)) as browser:
                await browser.sign_in()
                async with browser.tab() as tab:
                    await tab.call("place.connect", place="p0")
                    [job] = await tab.call("process.list", place="p0")
                    assert job["processId"] == process_id and job["sessionId"] == session_id
                    assert job["durable"] and job["attached"]
                    words = {"place": "p0", "process": process_id, "session": session_id, **SIZE}
                    refused = await tab.ask("process.attach", **words)
                    assert refused["error"]["code"] == -32010
                    made = await tab.call("process.attach", take=True, **words)
                    await tab.call("shown.follow", id=made["id"], channel=1)
                    await tab.shows(1, b"begun")
                    await tab.type(1, b"it\r")
                    await tab.shows(1, b"got it")
                    await tab.call("shown.close", id=made["id"])
                    async with asyncio.timeout(60):
                        while (await tab.call("process.list", place="p0"))[0]["attached"]:
                            pass
                    [job] = await tab.call("process.list", place="p0")
                    assert job["state"] == "running"
    finally:
        servers.close()


@requirement("web/environments:states")
async def test_an_environment_says_how_it_is(server):
    async with browsing(place_of(server.url)) as browser:
        await browser.sign_in()
        async with browser.tab() as tab:
            assert "not connected" in await tab.refusal("process.list", place="p0")
            facts = await tab.call("place.connect", place="p0")
            assert facts["state"] == "connected" and facts["info"]["shell"]
            assert facts["info"]["home"] and "processReport" in facts["info"]["capabilities"]
            states = [facts["state"] for name, facts in tab.events if name == "place"]
            assert states[0] == "connecting" and states[-1] == "connected"
            await tab.call("place.disconnect", place="p0")
            await tab.event("place", state="idle")
            assert (await tab.call("place.connect", place="p0"))["state"] == "connected"


@requirement("web/safety:sizes")
async def test_a_terminal_of_another_client_is_no_larger_than_a_tab_can_draw(server):
    async with connect(server.url) as agent:
        handle = await agent.start(["cat"], tty=True, rows=65535, cols=65535)
        async with browsing(place_of(server.url)) as browser:
            await browser.sign_in()
            async with browser.tab() as tab:
                await tab.call("place.connect", place="p0")
                [listed] = await tab.call("process.list", place="p0")
                named = {"process": handle.process_id, "session": listed["sessionId"]}
                made = await tab.call("process.watch", place="p0", **named, **SIZE)
                assert (made["columns"], made["rows"]) == (1000, 1000)
                await tab.call("shown.follow", id=made["id"], channel=1)
                await handle.resize(65535, 3)
                await tab.event("shown", id=made["id"], columns=3, rows=1000)
                await tab.call("shown.close", id=made["id"])
        await handle.terminate()


@requirement("web/processes:watch")
async def test_a_process_of_an_agent_is_watched_taken_and_given_back(server):
    async with connect(server.url) as agent:
        handle = await agent.start(["cat"], tty=True, name="work", rows=20, cols=70)
        await handle.write(b"of the agent\n")
        await handle.read_until(b"agent\r\nof the agent\r\n")
        async with browsing(place_of(server.url)) as browser:
            await browser.sign_in()
            async with browser.tab() as tab:
                await tab.call("place.connect", place="p0")
                [listed] = await tab.call("process.list", place="p0")
                assert listed["processId"] == handle.process_id and not listed["durable"]
                assert listed["name"] == "work"
                made = await tab.call(
                    "process.watch",
                    place="p0",
                    process=handle.process_id,
                    session=listed["sessionId"],
                    **SIZE,
                )
                assert made["watched"] and not made["drives"]
                assert (made["columns"], made["rows"]) == (70, 20)
                await tab.call("shown.follow", id=made["id"], channel=1)
                await tab.shows(1, b"agent")
                # Those who look on neither type nor size.
                await tab.type(1, b"not taken yet\r")
                await tab.call("shown.resize", id=made["id"], columns=30, rows=9)
                await tab.call("shown.take", id=made["id"])
                taken = await tab.event("shown", id=made["id"], drives=True)
                kinds = {each["kind"]: each["drives"] for each in taken["people"]}
                assert kinds == {"agent": False, "person": True}
                await tab.type(1, b"person\r")
                await tab.shows(1, b"person\r\nperson")
                with pytest.raises(ControlLost):
                    await handle.write(b"refused\n")
                await tab.call("shown.giveBack", id=made["id"])
                async with asyncio.timeout(60):
                    while not handle.drives:
                        await handle.control_state()
                with contextlib.suppress(ControlLost):
                    # The first write after a change says that there was one.
                    await handle.write(b"")
                assert b"not taken yet" not in tab.output[1]
                await tab.call("shown.close", id=made["id"])
        assert handle.returncode is None
        await handle.terminate()
