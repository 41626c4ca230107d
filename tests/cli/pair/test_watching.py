"""What people see of an executor at a terminal."""

from __future__ import annotations

import pytest

from tests.cli.pair.conftest import Machine, Visitor
from tests.requirements import requirement
from tests.support.cli import finished, running, terminals

pytestmark = pytest.mark.one_loop


async def serving_words(visitor: Visitor, big: Machine) -> list[str]:
    _, secret = await visitor.token("enrol", principal="farm")
    token_file = big.file("enrol.token", secret)
    words = ["--remote", visitor.hub.url, "--environment-id", "build-1"]
    return [*words, "--registry-token-file", token_file]


@requirement("remote/executor:replaced", "remote/executor:states")
async def test_an_executor_says_that_it_serves_and_that_another_one_has_come(
    visitor, big: Machine, laptop: Machine
):
    words = await serving_words(visitor, big)
    with terminals() as terminal:
        screen = terminal(*words, env=big.env)
        await screen.until(f"serving build-1 through {visitor.hub.url} until Ctrl-C\r\n".encode())
        async with running(*words, env=laptop.env):
            await screen.until(b"another executor has registered as build-1; waiting")
            # It is in the log as well, at the level that is shown by default.
            await screen.until(b"another executor has registered as build-1; the sessions")


@requirement("remote/executor:states")
async def test_a_loss_is_told_and_so_is_the_return(visitor, big: Machine):
    words = await serving_words(visitor, big)
    with terminals() as terminal:
        screen = terminal(*words, env=big.env)
        await screen.until(b"serving build-1")
        for sockets in visitor.hub.rendezvous._live.values():
            for socket in tuple(sockets):
                socket.end(1001, "for a test")
        await screen.until(b"is lost; trying again\r\n")
        await screen.until(b"connected again: serving build-1\r\n")


@requirement("remote/executor:states")
async def test_nothing_is_printed_for_programs(visitor, big: Machine):
    env = {**big.env, "EXEC_SERVER_REGISTRY_TOKEN": "wrong"}
    done = await finished("--remote", visitor.hub.url, "--environment-id", "e", env=env)
    assert done.status == 1 and done.stdout == b""
    assert len(done.stderr.splitlines()) == 1
