"""Requests and programs that would take the models away from other clients."""

from __future__ import annotations

import asyncio
import signal
import socket

import msgspec
import pytest

import exec_server
from exec_server.errors import InvalidParams
from exec_server.protocol.screen import ScreenParams, WaitForParams
from exec_server.screens import host_messages as messages
from exec_server.screens import screen_waits
from exec_server.screens.host_link import HostLink
from exec_server.screens.host_main import ScreenHost
from exec_server.screens.screen_model import ScreenModel
from exec_server.terminal import open_engine
from exec_server.terminal.engine import ENGINES

_PRINTS = ["sh", "-c", "printf shown; cat"]


@pytest.fixture
async def client(server):
    async with exec_server.connect(server.url) as opened:
        yield opened


async def test_one_client_cannot_end_the_host_of_all(client, server):
    async with (
        await client.start(_PRINTS, tty=True, screen=True) as other,
        await client.start(_PRINTS, tty=True, screen=True, rows=65535, cols=65535) as process,
    ):
        await other.wait_for("shown")
        host = server.core.screens.host_pid
        # Sizes that no memory holds.
        screen = await process.screen()
        assert screen.inexact and screen.columns < 65535
        for rows, cols in ((1, 65535), (65535, 1000), (24, 80)):
            await process.resize(rows, cols)
            await process.wait_for("shown")
        # Times that no clock holds.
        waiting = [
            asyncio.create_task(process.wait_for(still=1e15, timeout=1e15)),
            asyncio.create_task(process.wait_for("never", timeout=1e15)),
        ]
        await process.write(b"more\n")
        await process.wait_for("more")
        for each in waiting:
            assert not each.done()
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert (await other.screen()).text.startswith("shown")
        assert server.core.screens.host_pid == host


async def test_a_model_that_fails_fails_alone():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        host = ScreenHost(theirs)
        for number in (1, 2):
            host._take(messages.OpenModel(number, 80, 24))
        wait = b'{"processId":"p","conditions":[{"kind":"exit"}]}'
        host._take(messages.Question(1, 7, "wait", wait))
        with host._failing_alone(1):
            raise RuntimeError("no memory")
        answer = messages.decode_from_host(ours.recv(messages.PACKET_BYTES))
        assert (answer.call, answer.is_last) == (7, True)
        assert b"no memory" in answer.data
        assert list(host._models) == [2]
        host._drop(2)


@pytest.mark.parametrize("field", ["after", "timeoutMs", "ms"])
def test_numbers_of_waits_have_at_most_64_bits(field):
    number = str(10**30)
    text = '{"processId":"p","conditions":[{"kind":"still","ms":1}],"after":1,"timeoutMs":1}'
    assert msgspec.json.decode(text, type=WaitForParams).after == 1
    with pytest.raises(msgspec.ValidationError, match="64 bits"):
        msgspec.json.decode(text.replace(f'"{field}":1', f'"{field}":{number}'), type=WaitForParams)


@pytest.mark.parametrize("name", ENGINES)
def test_engines_bound_their_sizes(name):
    engine = open_engine(65535, 65535, engine=name)
    try:
        assert engine.columns * engine.rows <= 1 << 18
        engine.resize(65535, 2)
        assert engine.columns * engine.rows <= 1 << 18
        engine.resize(80, 24)
        assert (engine.columns, engine.rows) == (80, 24)
    finally:
        engine.close()


def test_a_model_of_usual_size_is_exact():
    model = ScreenModel(500, 200, rebuilt=0, now=0.0)
    try:
        model.resize(1000, 250, 1)
        assert not model.screen(ScreenParams("p")).inexact
    finally:
        model.close()


def test_a_pattern_whose_time_ends_with_it_is_refused(monkeypatch):
    def ends_late():
        with screen_waits.limited():
            pass

    # The signal arrives after the search, before the timer is stopped.
    def stop_late(which, seconds):
        if seconds == 0:
            raise screen_waits._TooLong

    monkeypatch.setattr(signal, "setitimer", stop_late)
    with pytest.raises(InvalidParams):
        ends_late()


async def test_questions_about_one_terminal_do_not_wait_before_those_of_others(client, monkeypatch):
    """The host answers in order; a large screen in many colours takes seconds."""
    under_way: list[int] = []
    most = 0
    ask = HostLink.ask

    async def counted(link: HostLink, model: int, call: int, what: str, params: bytes) -> bytes:
        nonlocal most
        under_way.append(model)
        most = max(most, under_way.count(model))
        try:
            return await ask(link, model, call, what, params)
        finally:
            under_way.remove(model)

    async with await client.start(_PRINTS, tty=True, screen=True) as process:
        await process.wait_for("shown")
        monkeypatch.setattr(HostLink, "ask", counted)
        screens = await asyncio.gather(*(process.screen() for _ in range(8)))
        assert all(screen.text.startswith("shown") for screen in screens)
    assert most == 1
