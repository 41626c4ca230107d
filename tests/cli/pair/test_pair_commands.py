"""One command on each of two machines, which share only a registry."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import time
from contextlib import asynccontextmanager
from typing import Any

import pytest

from exec_server.cli.pair import claim, forget
from exec_server.cli.pair import offer as pair_offer
from exec_server.cli.registry.registry_options import ask
from exec_server.client.environments import paired
from exec_server.errors import ConfigurationError, RegistryError, UntrustedExecutor
from exec_server.hub.store.open_store import open_store
from exec_server.remote.enrolments import Enrolled, Enrolments
from exec_server.remote.known_executors import KnownExecutors
from tests.cli.pair.conftest import Machine
from tests.requirements import requirement
from tests.support.cli import line, status

pytestmark = pytest.mark.one_loop


@pytest.fixture
async def opened(visit):
    return await visit(allows_open_pairing=True)


@pytest.fixture
async def registry(tmp_path, no_leaks):
    """The command itself, and its URL."""
    machine = Machine(tmp_path / "registry")
    async with machine.running("registry", "--open-pairing", "--log-level", "error") as process:
        machine.url = (await line(process)).decode().strip()
        yield machine


def typed(offer: dict[str, Any]) -> list[str]:
    """The words that the big machine asks people to type."""
    program, *words = shlex.split(offer["pairCommand"])
    assert program == "exec-server"
    return words


async def good_tokens(registry: Machine) -> set[str]:
    store = await open_store(str(registry.state / "registry.sqlite3"))
    try:
        return {each.principal for each in await store.tokens() if each.revoked_at is None}
    finally:
        await store.close()


async def check_that_it_says_hi(laptop: Machine, name: str = "big-1") -> None:
    done = await laptop.run("run", name, "--", "echo", "hi")
    assert (done.status, done.stdout) == (0, b"hi\n"), done.stderr


@asynccontextmanager
async def serving(big: Machine, laptop: Machine, *words: str):
    """Wait until the registry tells the laptop that the big machine is online."""
    kept = paired.load(laptop.state / "paired" / "big-1.json")
    before = time.time()
    async with big.running(*words):
        async with asyncio.timeout(60):
            while not await is_online(kept, since=before):
                pass
        yield


async def is_online(kept: paired.Paired, *, since: float) -> bool:
    (found,) = await ask(kept.registry, "GET", "/api/environments", token=kept.token)
    return (found["onlineSince"] or 0) > since


@requirement("hub/pair:one-command", "hub/pair:again", "hub/pair:forget", "hub/cli:pair")
async def test_a_code_is_shown_and_typed_and_then_everything_works(registry, big, laptop):
    label = ("--label", "gpu=2", "big-1")
    async with big.offering(registry.url, *label) as (process, offer):
        assert offer["name"] == "big-1"
        paired = await laptop.run(*typed(offer))
        assert (paired.status, paired.stdout) == (0, b"big-1\n"), paired.stderr
        # At once, without waiting for anything.
        await check_that_it_says_hi(laptop)
        assert json.loads(await line(process)) == {"name": "big-1", "state": "paired"}
        assert b"big-1" in (await laptop.run("env", "list")).stdout
        process.send_signal(signal.SIGINT)
        assert await status(process) == 0

    again = ("pair", "--serve", "big-1")
    plain = shlex.split(offer["serveCommand"])[1:]
    assert plain[-2:] == ["--label", "gpu=2"]
    for words in (again, plain):
        async with serving(big, laptop, *words):
            await check_that_it_says_hi(laptop)

    assert await good_tokens(registry) == {"machine big-1", "paired with big-1"}
    assert laptop.known.find(registry.url, "big-1") is not None
    forgotten = await laptop.run("pair", "--forget", "big-1")
    assert (forgotten.status, forgotten.stderr) == (0, "")
    assert laptop.known.find(registry.url, "big-1") is None
    assert await good_tokens(registry) == {"machine big-1"}

    assert (await big.run("pair", "--forget", "big-1")).status == 0
    assert list((big.state / "enrolled").iterdir()) == []
    assert await good_tokens(registry) == set()
    assert "not enrolled" in (await big.run(*again)).stderr


@requirement("hub/pair:withdrawn")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
async def test_who_stops_waiting_withdraws_the_code(opened, big, laptop, signum):
    async with big.offering(opened.hub.url, "big-1") as (process, offer):
        process.send_signal(signum)
        assert await status(process) == 128 + signum
    late = await laptop.run(*typed(offer))
    assert (late.status, late.stdout) == (1, b"") and "not known" in late.stderr
    assert not (big.state / "enrolled").exists()
    assert (await opened.ask("POST", "/api/pairings/big-1")).status == 200


@requirement("hub/pair:heard")
async def test_who_waits_in_vain_is_told(opened, big, clock):
    async with big.offering(opened.hub.url, "big-1") as (process, _):
        clock.ahead = 301
        assert await status(process) == 1
        assert b"the code was not typed in time" in await process.stderr.read()
    assert not (big.state / "enrolled").exists()


@requirement("hub/pair:again")
async def test_a_code_for_a_second_laptop_is_shown_while_the_first_works(opened, big, laptop):
    url = opened.hub.url
    async with big.offering(url, "big-1") as (_, first):
        assert (await laptop.run(*typed(first))).status == 0
        second = await big.run("pair", "--registry", url, "--no-serve", "-o", "json", "big-1")
        offer = json.loads(second.stdout)
        paired = await laptop.run(*typed(offer), "--as", "mine", "-o", "json")
        told = {"name": "mine", "environment": "big-1", "registry": url}
        assert json.loads(paired.stdout) == told
        await check_that_it_says_hi(laptop, "mine")
        # The key stays pinned for the other name.
        assert (await laptop.run("pair", "--forget", "mine")).status == 0
        assert laptop.known.find(url, "big-1") is not None


@requirement("hub/pair:forget")
async def test_a_token_that_was_given_is_not_the_machines_to_revoke(visitor, big, laptop, tmp_path):
    token, secret = await visitor.token("enrol", principal="farm")
    (tmp_path / "enrol.token").write_text(secret)
    options = ("--token-file", str(tmp_path / "enrol.token"), "big-1")
    async with big.offering(visitor.hub.url, *options) as (_, offer):
        assert (await laptop.run(*typed(offer))).status == 0
        await check_that_it_says_hi(laptop)
    # The next time the path of the token is known.
    async with serving(big, laptop, "pair", "--serve", "big-1"):
        pass
    done = await big.run("pair", "--forget", "big-1")
    assert done.status == 0 and "is still valid" in done.stderr
    assert (await visitor.hub.store.token(token.id)).revoked_at is None


# Both machines have the same home in this process.


@pytest.fixture
def home(monkeypatch, tmp_path):
    for name in ("XDG_STATE_HOME", "CODEX_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("EXEC_SERVER_REGISTRY_TOKEN", raising=False)
    return tmp_path / "exec-server"


@pytest.fixture
def offer(home, capsys):
    """Show a code, and return it."""

    async def offered(url: str, *, name: str = "big-1") -> str:
        identity = home / "identity"
        plan = pair_offer.OfferPlan(registry=url, name=name, identity=identity, serves=False)
        assert await pair_offer.offer(plan) == 0
        return str(capsys.readouterr().out.split()[-1])

    return offered


@requirement("hub/pair:closed")
async def test_a_closed_registry_says_what_would_help(visitor, offer):
    with pytest.raises(RegistryError, match=r"token create enrol.*--open-pairing"):
        await offer(visitor.hub.url)


@requirement("hub/pair:fresh-name")
async def test_a_name_that_is_taken_is_refused_with_a_hint(opened, offer):
    await opened.ask("POST", "/api/pairings/big-1")
    with pytest.raises(RegistryError, match="choose another one"):
        await offer(opened.hub.url)


async def test_a_code_that_was_not_typed_is_replaced_by_another_one(opened, offer, home):
    url = opened.hub.url
    first = await offer(url)
    token_file = home / "enrolled" / "big-1.token"
    useless = token_file.read_text()
    # At once: it is the same machine.
    second = await offer(url)
    assert token_file.read_text() != useless
    with pytest.raises(RegistryError, match="not known"):
        await claim.claim(url, first, None)
    assert await claim.claim(url, second, None) == 0
    assert (await opened.register("big-1", token_file.read_text().strip())).status == 200


async def test_to_pair_again_replaces_the_token(opened, offer):
    for _ in range(2):
        await claim.claim(opened.hub.url, await offer(opened.hub.url), None)
    tokens = [each for each in await opened.hub.store.tokens() if "connect" in each.rights]
    assert sorted(each.revoked_at is None for each in tokens) == [False, True]


@requirement("hub/pair:pins")
async def test_a_token_is_given_back_when_the_last_letters_are_wrong(opened, offer, home):
    code = await offer(opened.hub.url)
    last = "2" if code[-1] != "2" else "3"
    with pytest.raises(UntrustedExecutor, match="mistyped"):
        await claim.claim(opened.hub.url, code[:-1] + last, None)
    (token,) = [each for each in await opened.hub.store.tokens() if "connect" in each.rights]
    assert token.revoked_at is not None
    assert not (home / "paired").exists() and not (home / "known_executors").exists()


@requirement("hub/pair:forget")
async def test_what_cannot_be_revoked_is_forgotten_all_the_same(home, capsys):
    url = "http://127.0.0.1:1"
    paired.save(home / "paired", "big-1", paired.Paired(registry=url, environment="e", token="t"))
    KnownExecutors(home / "known_executors").add(url, "e", "SHA256:a")
    own = Enrolments().own_token_file("big-1")
    enrolled = Enrolled(
        registry=url, environment="big-1", identity="/i", token_file=str(own), is_own=True
    )
    Enrolments().save(enrolled, "t")
    assert await forget.forget("big-1") == 0
    # Of the one that was used, and of the one that was served.
    assert capsys.readouterr().err.count(f"still valid at {url}") == 2
    assert KnownExecutors(home / "known_executors").find(url, "e") is None
    with pytest.raises(ConfigurationError, match="there is no pairing"):
        await forget.forget("big-1")


async def test_a_file_that_cannot_be_read_is_forgotten(home, capsys):
    (home / "paired").mkdir(parents=True)
    (home / "paired" / "big-1.json").write_text("nonsense")
    assert await forget.forget("big-1") == 0
    assert "not at its registry" in capsys.readouterr().err
    assert list((home / "paired").iterdir()) == []


async def test_a_machine_is_not_the_same_at_two_registries(opened, offer):
    await offer(opened.hub.url)
    with pytest.raises(ConfigurationError, match="pair --forget big-1"):
        await offer("https://registry.example.net")


def test_a_machine_is_called_as_its_host(monkeypatch):
    for host, name in (
        ("big-1.example.net", "big-1"),
        ("Großer Host", "Gro-er-Host"),
        ("-", "machine"),
    ):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        assert pair_offer.host_name() == name
