"""The keys that two machines exchange with a code, and what happens if the code is wrong."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from typing import Any

import msgspec
import pytest

from exec_server.relay.keys import SEED_BYTES, KeyPair
from tests.cli.pair.conftest import Machine
from tests.requirements import requirement
from tests.support.cli import line, status

pytestmark = pytest.mark.one_loop


@pytest.fixture
async def opened(visit):
    return await visit(allows_open_pairing=True)


@pytest.fixture
def second(tmp_path) -> Machine:
    return Machine(tmp_path / "second")


def typed(offer: dict[str, Any]) -> list[str]:
    return shlex.split(offer["pairCommand"])[1:]


def mistyped(offer: dict[str, Any]) -> list[str]:
    code, at, registry = typed(offer)[1].partition("@")
    return ["pair", code[:-1] + ("2" if code[-1] != "2" else "3") + at + registry]


async def paired(process) -> None:
    assert json.loads(await line(process)) == {"name": "big-1", "state": "paired"}


async def says_hi(machine: Machine, *words: str) -> bool:
    done = await machine.run("run", *words, "--", "echo", "hi")
    return done.stdout == b"hi\n"


@requirement("security:paired-harness", "pair:keys")
async def test_a_registry_cannot_let_itself_in_at_a_paired_machine(opened, big, laptop, second):
    """The registry makes a token that may connect to every environment, and uses it."""
    _, token = await opened.token("connect")
    address = ("--token", token, f"noise+{opened.hub.url}/big-1")
    async with big.offering(opened.hub.url, "big-1") as (process, offer):
        assert "--authorized-harness" in offer["serveCommand"]
        assert (await laptop.run(*typed(offer))).status == 0
        await paired(process)
        assert await says_hi(laptop, "big-1")
        assert not await says_hi(second, *address)
    async with big.running("pair", "--serve", "big-1", "--any-harness"):
        async with asyncio.timeout(60):
            while not await says_hi(second, *address):
                pass


@requirement("security:paired-harness", "pair:keys")
async def test_a_second_machine_is_accepted_while_the_first_is_served(opened, big, laptop, second):
    url = opened.hub.url
    async with big.offering(url, "big-1") as (process, offer):
        assert (await laptop.run(*typed(offer))).status == 0
        await paired(process)
        early = await big.run("pair", "--registry", url, "--no-serve", "big-1")
        assert "with --wait the key" in early.stderr
        async with big.offering(url, "--no-serve", "--wait", "big-1") as (waiting, again):
            assert (await second.run(*typed(again))).status == 0
            await paired(waiting)
            assert await status(waiting) == 0
        assert await says_hi(second, "big-1")
        assert await says_hi(laptop, "big-1")
    known = (big.state / "enrolled" / "big-1.harnesses").read_text().splitlines()
    assert len(known) == 2


@requirement("security:paired-harness", "pair:keys")
async def test_a_registry_that_names_a_key_of_its_own_is_refused(opened, big, laptop):
    store = opened.hub.store
    keep = store.reply_to_pairing

    async def changed(digest, reply, *, now):
        other = KeyPair(os.urandom(SEED_BYTES)).public.fingerprint
        return await keep(digest, f"{other} {reply.partition(' ')[2]}", now=now)

    store.reply_to_pairing = changed
    async with big.offering(opened.hub.url, "big-1") as (process, offer):
        await laptop.run(*typed(offer))
        assert await status(process) == 1
        assert b"that the code does not prove" in await process.stderr.read()
    assert not (big.state / "enrolled").exists()


@requirement("pair:refused")
async def test_the_serving_machine_is_told_when_the_last_letters_are_wrong(opened, big, laptop):
    async with big.offering(opened.hub.url, "big-1") as (process, offer):
        done = await laptop.run(*mistyped(offer))
        assert done.status == 1 and "mistyped" in done.stderr and "used up" in done.stderr
        assert await status(process) == 1
        heard = await process.stderr.read()
        assert b"mistyped there" in heard and b"used up" in heard
    assert not (big.state / "enrolled").exists() and not laptop.state.exists()
    assert [each for each in await opened.hub.store.tokens() if each.revoked_at is None] == []
    # The code is burned, and the name is free for the next one.
    assert "not known" in (await laptop.run(*typed(offer))).stderr
    async with big.offering(opened.hub.url, "big-1") as (process, offer):
        assert (await laptop.run(*typed(offer))).status == 0
        await paired(process)


@requirement("pair:versions")
async def test_an_older_client_is_told_and_so_is_the_serving_machine(opened, big):
    async with big.offering(opened.hub.url, "big-1") as (process, offer):
        answer = await opened.ask("POST", "/api/pair", body={"code": offer["code"][:9]})
        assert (answer.status, answer.code) == (409, "old_client")
        assert await status(process) == 1
        assert b"refused the code" in await process.stderr.read()


@requirement("pair:versions")
async def test_the_code_of_an_older_machine_is_refused_with_a_clear_message(opened, big, laptop):
    store = opened.hub.store
    add = store.add_pairing

    async def aged(pairing, **bounds):
        return await add(msgspec.structs.replace(pairing, proof="AAAA"), **bounds)

    store.add_pairing = aged
    async with big.offering(opened.hub.url, "big-1") as (process, offer):
        done = await laptop.run(*typed(offer))
        assert done.status == 1 and "another version of exec-server" in done.stderr
        assert await status(process) == 1


@requirement("pair:refused")
async def test_a_reply_is_taken_once_and_only_for_a_code_that_was_typed(opened):
    offer = (await opened.ask("POST", "/api/pairings/big-1")).body
    reply = {"code": offer["code"], "fingerprint": "SHA256:a", "proof": "p"}
    assert (await opened.ask("POST", "/api/pair/reply", body=reply)).code == "unknown_code"
    assert (await opened.ask("POST", "/api/pair", body={"code": offer["code"]})).status == 200
    assert (await opened.ask("POST", "/api/pair/reply", body=reply)).status == 200
    again = {"code": offer["code"], "refused": True}
    assert (await opened.ask("POST", "/api/pair/reply", body=again)).code == "unknown_code"
    state = await opened.ask("GET", "/api/pairings/big-1", offer["ticket"])
    assert state.body["reply"] == {"fingerprint": "SHA256:a", "proof": "p"}
    for wrong in (
        {},
        {"code": 1},
        {"code": "a", "proof": "p" * 201},
        {"code": "a", "proof": "a b"},
    ):
        malformed = await opened.ask("POST", "/api/pair/reply", body=wrong)
        assert malformed.code == "invalid_request"
