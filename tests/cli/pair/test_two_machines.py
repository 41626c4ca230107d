"""A big machine, a laptop and a registry, by commands alone."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from exec_server.cli.env import env_command
from exec_server.cli.pair import claim, offer, pair_command
from exec_server.errors import ConfigurationError, RegistryError
from exec_server.relay.keys import SEED_BYTES, KeyPair
from tests.cli.pair.conftest import Machine, Visitor
from tests.requirements import requirement
from tests.support.cli import Finished, running, terminals

pytestmark = pytest.mark.one_loop


class PairedMachine(Machine):
    """A machine that pairs at one registry."""

    def __init__(self, home: Path, url: str) -> None:
        super().__init__(home)
        self.where = ("--registry", url)
        self.token_file = ""

    async def pair(self, *words: str) -> Finished:
        return await self.run("pair", *self.where, *words)


@pytest.fixture
async def big(visitor, tmp_path):
    machine = PairedMachine(tmp_path / "big", visitor.hub.url)
    _, secret = await visitor.token("enrol", principal="farm")
    machine.token_file = machine.file("enrol.token", secret)
    return machine


@pytest.fixture
def laptop(visitor, tmp_path):
    return PairedMachine(tmp_path / "laptop", visitor.hub.url)


async def offered(big: PairedMachine, name: str = "big-1") -> str:
    offer = await big.pair("--no-serve", "--token-file", big.token_file, name)
    assert offer.status == 0, offer.stderr
    return offer.stdout.decode().strip()


async def until_online(visitor: Visitor) -> str:
    """Wait until an environment is online; the token of an observer is returned."""
    _, secret = await visitor.token("list", "observe")
    async with asyncio.timeout(60):
        while True:
            found = (await visitor.ask("GET", "/api/environments", secret)).body
            if any(each["isOnline"] for each in found):
                return secret


@asynccontextmanager
async def serving(big: PairedMachine, visitor: Visitor, *options: str):
    words = ("--remote", visitor.hub.url, "--environment-id", "big-1")
    token = ("--registry-token-file", big.token_file)
    async with running(*words, *token, *options, env=big.env):
        yield await until_online(visitor)


@requirement("hub/cli:pair", "hub/pair:shell", "hub/pair:pins", "hub/env:list", "hub/cli:facts")
async def test_a_code_from_the_big_machine_makes_its_shell_open_on_the_laptop(visitor, big, laptop):
    code = await offered(big)
    identity = str(big.home / "state" / "exec-server" / "identity")
    paired = await laptop.pair("--code", code.lower())
    assert (paired.status, paired.stdout) == (0, b"big-1\n"), paired.stderr
    label = ("--label", "gpu=2")
    async with serving(big, visitor, "--identity", identity, *label) as secret:
        with terminals() as terminal:
            screen = terminal("shell", "big-1", "--", "sh", "-c", "echo re''ady", env=laptop.env)
            await screen.until(b"ready\r\n")
            assert await screen.status() == 0
        checked = await laptop.run("env", "check", "big-1")
        assert checked.status == 0 and b"ready" in checked.stdout

        tokens = ("--token-file", laptop.file("my.token", secret))
        listed = await laptop.run("env", "list", *laptop.where, *tokens)
        assert all(word in listed.stdout for word in (b"big-1", b"online since", b"gpu=2"))
        absent = await laptop.run("env", "list", *laptop.where, *tokens, "big-2", "-o", "json")
        assert (absent.status, json.loads(absent.stdout)) == (1, [])
        same = await laptop.run("registry", "env", *laptop.where, *tokens)
        assert same.stdout == listed.stdout
        events = await laptop.run("registry", "events", *laptop.where, *tokens, "-o", "json")
        names = {event["name"] for event in json.loads(events.stdout)}
        assert {"pairing offered", "paired", "registered", "harness online"} <= names

    again = await laptop.pair("--code", code)
    assert (again.status, again.stdout) == (1, b"")
    assert (await laptop.run("pair", "--forget", "big-1")).status == 0
    assert "not configured" in (await laptop.run("run", "big-1", "true")).stderr


@requirement("hub/pair:pins")
async def test_another_key_is_not_believed(visitor, big, laptop):
    await laptop.pair("--code", await offered(big))
    # With a new key each time.
    async with serving(big, visitor):
        done = await laptop.run("run", "big-1", "--", "touch", str(big.home / "touched"))
        assert done.status != 0 and "HAS CHANGED" in done.stderr
    assert not (big.home / "touched").exists()
    big.file("state/exec-server/identity", "nonsense")
    offer = await big.pair("--no-serve", "--token-file", big.token_file, "big-1")
    assert (offer.status, offer.stdout) == (1, b"") and "identity" in offer.stderr


@requirement("hub/pair:pins")
async def test_a_registry_cannot_put_in_a_key_of_its_own(visitor, big, laptop):
    code = await offered(big)
    pairings = visitor.hub.store
    take = pairings.take_pairing

    async def taken(digest, *, now):
        found = await take(digest, now=now)
        other = KeyPair(os.urandom(SEED_BYTES)).public.fingerprint
        return msgspec.structs.replace(found, fingerprint=other)

    pairings.take_pairing = taken
    done = await laptop.pair("--code", code)
    assert (done.status, done.stdout) == (1, b"")
    assert "another machine pretends" in done.stderr
    assert not (laptop.home / "state").exists()


async def test_a_name_that_is_taken_gets_a_number(visitor, big, laptop, monkeypatch, capsys):
    toml = '[[environments]]\nid = "big-1"\nurl = "ws://h"\n'
    laptop.file("codex/environments.toml", toml)
    for name in ("CODEX_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, laptop.env[name])
    url = visitor.hub.url
    plan = offer.OfferPlan(
        registry=url,
        name="big-1",
        identity=big.home / "identity",
        token_file=big.token_file,
        serves=False,
    )

    async def paired(alias=None):
        await offer.offer(plan)
        code = capsys.readouterr().out.strip()
        assert await claim.claim(url, code, alias) == 0
        return capsys.readouterr().out.strip()

    # This happens before the code is used.
    with pytest.raises(ConfigurationError, match="duplicated"):
        await claim.claim(url, "K7QF-2MXT-9PWRSA", "big-1")
    assert await paired() == "big-1-2"
    assert await paired() == "big-1-2"
    assert await paired("mine") == "mine"


def test_every_name_can_be_spelled_as_ours_are():
    candidates = claim.candidates("a.b" * 40)
    first, second = next(candidates), next(candidates)
    assert first.startswith("a-ba-b") and len(first) == 64
    assert second.endswith("-2") and len(second) == 64


@pytest.mark.parametrize(
    "changes",
    [{"environment_id": "a\x1b[2J"}, {"environment_id": ""}, {"token": "a\n"}, {"proof": None}],
)
def test_an_answer_that_could_do_harm_is_none(changes):
    granted = {"environment_id": "e", "token": "t", "fingerprint": "f", "proof": "p", **changes}
    with pytest.raises(RegistryError, match="is not a pairing"):
        claim.read_granted(granted)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--registry http://localhost --serve --no-serve",
        "--forget x --serve",
        "K7QF-2MXT-9PWRSA@localhost --registry http://localhost",
        "K7QF-2MXT-9PWRSA@localhost --label a=b",
        "--registry http://localhost x -- --no-such-option",
        "--registry http://localhost x --code y",
        "--registry http://localhost x --as y",
        "--registry http://localhost --code y --identity f",
        "--registry http://localhost --code y --any-harness",
        "--registry http://localhost x --wait",
        "x",
        "--code y",
    ],
)
def test_what_makes_no_sense_is_refused(words):
    with pytest.raises(SystemExit, match="2"):
        pair_command.pair_command(words.split())


def test_only_lists_are_asked_of_a_registry():
    with pytest.raises(SystemExit, match="2"):
        env_command(["check", "--registry", "http://localhost"])
