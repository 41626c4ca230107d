"""http/request on a machine that has run out of something."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from collections.abc import Iterator

import pytest

from exec_server.outbound import base64_pieces
from tests.requirements import requirement
from tests.support.certificates import make_certificates
from tests.support.http_target import hello, target
from tests.support.http_wire import ask, body, deltas
from tests.support.local import wire_with
from tests.support.servers import start_server
from tests.support.wire import Wire

pytestmark = pytest.mark.one_loop

NO_DESCRIPTORS = "Too many open files (os error 24)"


@contextlib.contextmanager
def without_descriptors(pid: int) -> Iterator[None]:
    """Let a process open nothing more; what it has stays open."""
    old = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    free = next(number for number in range(len(used) + 1) if number not in used)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, old[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, old)


@pytest.mark.parametrize("is_first", [True, False])
@requirement("http/request:shortages")
async def test_a_lack_of_descriptors_is_told_and_passes(is_first):
    with start_server() as server:
        async with target(hello) as origin, Wire(server.url) as wire:
            await wire.initialize()
            if not is_first:
                # An address that answers nothing leaves no connection behind that could be reused.
                await ask(wire, "http://127.0.0.1:1/")
            with without_descriptors(server.pid):
                error = await ask(wire, origin.url)
            assert error["code"] == -32603
            assert error["message"].startswith("http/request failed: ")
            assert error["message"].endswith(NO_DESCRIPTORS)
            assert body(await ask(wire, origin.url)) == b"hello"


@requirement("http/request:shortages")
async def test_certificates_that_could_not_be_read_are_read_the_next_time(tmp_path):
    certificates = make_certificates(tmp_path)
    with start_server(env={"CODEX_CA_CERTIFICATE": str(certificates.authority)}) as server:
        async with target(hello, tls=certificates.server) as origin, Wire(server.url) as wire:
            await wire.initialize()
            await ask(wire, "http://127.0.0.1:1/")
            with without_descriptors(server.pid):
                assert (await ask(wire, origin.url))["message"].endswith(NO_DESCRIPTORS)
            assert body(await ask(wire, origin.url)) == b"hello"


@requirement("http/request:shortages")
async def test_a_lack_of_threads_is_told_and_passes(monkeypatch):
    async with wire_with() as wire, target(hello) as origin:
        loop = asyncio.get_running_loop()

        def refuse(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as lacking:
            lacking.setattr(type(loop), "run_in_executor", refuse, raising=True)
            error = await ask(wire, origin.url)
        assert error["message"].endswith("Resource temporarily unavailable (os error 11)")
        assert body(await ask(wire, origin.url)) == b"hello"


@pytest.mark.parametrize("is_streamed", [False, True])
@requirement("http/request:shortages")
async def test_a_lack_of_memory_is_told_and_passes(monkeypatch, is_streamed):
    from exec_server.outbound import exchanges

    def refuse(_: object) -> bytes:
        raise MemoryError

    async with wire_with() as wire, target(hello) as origin:
        with monkeypatch.context() as lacking:
            lacking.setattr(base64_pieces, "encode_base64", refuse)
            lacking.setattr(exchanges, "encode_base64", refuse)
            result = await ask(wire, origin.url, streamResponse=is_streamed)
            if is_streamed:
                (last,) = await deltas(wire)
                assert last["seq"] == 1
                text = last["error"]
            else:
                text = result["message"]
        assert text.endswith("Cannot allocate memory (os error 12)")
        assert body(await ask(wire, origin.url)) == b"hello"
