"""Identities that last, and harnesses that accept no other key, whatever the registry says."""

from __future__ import annotations

import asyncio
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

import exec_server
from exec_server.cli.main import main
from exec_server.errors import ConfigurationError, SessionLost, UntrustedExecutor
from exec_server.relay.keys import SEED_BYTES, KeyPair
from exec_server.remote.executor_trust import Trust, check_pin
from exec_server.remote.identity import create_identity, load_identity
from exec_server.remote.known_executors import KnownExecutors
from tests.remote.conftest import connect, executor
from tests.remote.test_cli import ENV, words
from tests.requirements import requirement
from tests.support import cli
from tests.support.rendezvous import TOKEN, Rendezvous

ALICE, MALLORY = KeyPair(bytes(range(SEED_BYTES))), KeyPair(bytes(range(1, SEED_BYTES + 1)))


def swap_key(relay, pair: KeyPair) -> None:
    """Make the registry name another key from now on."""
    relay._registrations["env-1"]["executor_public_key"] = pair.public.to_object()


def connects(relay: Rendezvous) -> int:
    return relay.count("harness")


# Fingerprints.


@requirement("remote/identity:fingerprint")
def test_a_fingerprint_is_short_and_stays_the_same():
    found = ALICE.public.fingerprint
    assert found == "SHA256:nKpfXmmOUdZ8d94ylIdhB2dsrZsH5AcbxhZoZNdlq50"
    assert check_pin(f" {found}\n") == found
    assert MALLORY.public.fingerprint != found


@requirement("remote/identity:fingerprint")
def test_a_fingerprint_depends_on_both_keys():
    seed = bytes(range(SEED_BYTES))
    others = [bytes(32) + seed[32:], seed[:32] + bytes(SEED_BYTES - 32)]
    found = {KeyPair(each).public.fingerprint for each in (seed, *others)}
    assert len(found) == 3


@requirement("remote/trust:pin")
@pytest.mark.parametrize("text", ["", "first", "SHA256:", "SHA256:" + "x" * 42, "MD5:" + "x" * 43])
def test_what_is_no_fingerprint_is_no_pin(text):
    with pytest.raises(ConfigurationError, match="invalid pin"):
        check_pin(text)


# Identity files.


@requirement("remote/identity:file")
def test_an_identity_is_private_and_comes_back(tmp_path):
    path = tmp_path / "new" / "identity"
    made = create_identity(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_identity(path).public == made.public
    assert [each.name for each in path.parent.iterdir()] == ["identity"]


@requirement("remote/identity:file")
def test_an_identity_is_never_overwritten_unasked(tmp_path):
    path = tmp_path / "identity"
    first = create_identity(path)
    with pytest.raises(ConfigurationError, match="exists already"):
        create_identity(path)
    assert load_identity(path).public == first.public
    second = create_identity(path, may_replace=True)
    assert load_identity(path).public == second.public != first.public
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["identity"]


@requirement("remote/identity:file")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_an_identity_that_others_can_read_is_refused(tmp_path, mode):
    path = tmp_path / "identity"
    create_identity(path)
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        load_identity(path)


@requirement("remote/identity:file")
@pytest.mark.parametrize(
    "text", ["", "x", "-----BEGIN EXEC-SERVER IDENTITY-----\nAAAA\nx\n", "\xff"]
)
def test_what_is_no_identity_is_refused(tmp_path, text):
    path = tmp_path / "identity"
    path.write_text(text, encoding="latin-1")
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match="holds no identity"):
        load_identity(path)
    os.mkfifo(tmp_path / "fifo", 0o600)
    for each in (tmp_path, tmp_path / "absent", tmp_path / "fifo"):
        with pytest.raises(ConfigurationError):
            load_identity(each)


# Known executors.


@requirement("remote/trust:known")
@given(names=st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=5, unique=True))
def test_every_environment_finds_its_own_line(tmp_path_factory, names):
    known = KnownExecutors(tmp_path_factory.mktemp("known") / "file")
    names = list({name.strip(): None for name in names})
    for number, name in enumerate(names):
        known.add("https://h", name, f"SHA256:{number}")
    for number, name in enumerate(names):
        found = known.find("https://h", name)
        assert found is not None
        assert (found.fingerprint, found.line) == (f"SHA256:{number}", number + 1)


@requirement("remote/trust:known")
def test_the_spelling_of_a_registry_makes_no_difference_and_the_first_line_counts(tmp_path):
    path = tmp_path / "known"
    path.write_text("# by hand\n\nhttps://h/Base env SHA256:one")
    path.chmod(0o600)
    known = KnownExecutors(path)
    assert known.add(" https://H:443/Base/ ", "env ", "SHA256:two")[::2] == ("SHA256:one", 3)
    assert known.find("https://h/base", "env") is None
    assert known.find("https://h/Base", "Env") is None
    assert path.read_text().splitlines()[3] == "https://h/Base env SHA256:two"


@requirement("remote/trust:known")
def test_a_file_that_others_can_change_or_that_is_none_is_refused(tmp_path):
    path = tmp_path / "known"
    known = KnownExecutors(path)
    assert known.find("https://h", "e") is None
    known.add("https://h", "e", "SHA256:x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o660)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        known.find("https://h", "e")
    path.chmod(0o600)
    path.write_text("only two\n")
    with pytest.raises(ConfigurationError, match="line 1"):
        known.find("https://h", "e")
    path.write_bytes(b"#" * (1 << 20) + b"#")
    with pytest.raises(ConfigurationError, match="too long"):
        known.find("https://h", "e")


@requirement("remote/trust:known")
def test_who_was_quicker_is_believed(tmp_path):
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    one, other = (Trust("https://h", "e", pin="first-use", environ=environ) for _ in range(2))
    for trust, fingerprint in ((one, "SHA256:1"), (other, "SHA256:2")):
        trust.check(fingerprint)
    one.remember("SHA256:1")
    with pytest.raises(UntrustedExecutor, match="HAS CHANGED"):
        other.check("SHA256:2")


# Registries that lie.


@requirement("remote/trust:pin")
async def test_a_pin_lets_in_one_key_and_no_other(relay):
    pin = ALICE.public.fingerprint
    async with executor(relay, identity=ALICE):
        async with connect(relay, pin=pin) as client:
            assert (await client.run(["echo", "alice"])).stdout == b"alice\n"
        seen = connects(relay)
        with pytest.raises(UntrustedExecutor) as caught:
            async with connect(relay, pin=MALLORY.public.fingerprint):
                pass
        assert pin in str(caught.value)
        assert MALLORY.public.fingerprint in str(caught.value)
        swap_key(relay, MALLORY)
        with pytest.raises(UntrustedExecutor):
            async with connect(relay, pin=pin):
                pass
        # An executor with another key is not even dialled.
        assert connects(relay) == seen


@requirement("remote/trust:first-use")
async def test_the_key_of_the_first_use_is_the_only_one_from_then_on(relay, state_home):
    path = state_home / "known_executors"
    async with executor(relay, identity=ALICE):
        async with connect(relay):
            assert not path.exists()
        async with connect(relay, pin="first-use"):
            line = f"{relay.url} env-1 {ALICE.public.fingerprint}\n"
            assert path.read_text() == line
        for pin in ("first-use", None):
            async with connect(relay, pin=pin):
                assert path.read_text() == line
    # The key is that of another executor, or of a registry that lies.
    async with executor(relay, identity=MALLORY):
        seen = connects(relay)
        for pin in ("first-use", None):
            with pytest.raises(UntrustedExecutor) as caught:
                async with connect(relay, pin=pin):
                    pass
        text = str(caught.value)
        for words_ in ("HAS CHANGED", f"line 1 of {path}", "delete line 1"):
            assert words_ in text
        for pair in (ALICE, MALLORY):
            assert pair.public.fingerprint in text
        assert connects(relay) == seen
        path.write_text("")
        async with connect(relay, pin="first-use"):
            assert MALLORY.public.fingerprint in path.read_text()


@requirement("remote/trust:first-use")
async def test_a_key_that_nobody_has_is_not_remembered(online, state_home):
    swap_key(online, MALLORY)
    with pytest.raises(exec_server.ConnectError):
        async with connect(online, pin="first-use"):
            pass
    assert not (state_home / "known_executors").exists()


@requirement("remote/trust:recovery")
async def test_a_key_that_changes_under_way_ends_the_session_at_once(relay):
    async with executor(relay, identity=ALICE):
        async with connect(relay, pin=ALICE.public.fingerprint) as client:
            swap_key(relay, MALLORY)
            seen = connects(relay)
            relay.cut("harness")
            async with asyncio.timeout(60):
                await client.wait_closed()
            with pytest.raises(SessionLost, match="PINNED KEY"):
                await client.run(["true"])
            assert connects(relay) == seen


@requirement("remote/trust:pin")
async def test_only_servers_behind_a_registry_can_be_pinned(server, relay):
    urls = (server.url, relay._sign("env-1", "harness"))
    for url in urls:
        with pytest.raises(ConfigurationError, match="pinned"):
            async with exec_server.connect(url, pin="first-use"):
                pass
    async with exec_server.environments(env={}, pin="first-use") as manager:
        with pytest.raises(ConfigurationError, match="pinned"):
            async with manager.connect("local"):
                pass


@requirement("remote/trust:variable")
async def test_the_variable_pins_and_an_option_comes_before_it(relay, monkeypatch):
    monkeypatch.setenv("EXEC_SERVER_PIN", MALLORY.public.fingerprint)
    env = {
        "CODEX_EXEC_SERVER_NOISE_REGISTRY_URL": relay.url,
        "CODEX_EXEC_SERVER_NOISE_ENVIRONMENT_ID": "env-1",
        "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": "t",
    }
    async with executor(relay, identity=ALICE):
        with pytest.raises(UntrustedExecutor):
            async with connect(relay):
                pass
        async with exec_server.environments(env=env) as manager:
            with pytest.raises(UntrustedExecutor):
                await manager.client()
            async with manager.connect(pin=ALICE.public.fingerprint) as client:
                assert (await client.run(["true"])).returncode == 0


# Commands.


@requirement("remote/identity:commands")
def test_a_key_is_made_once_and_shown(tmp_path, state_home, capsys):
    path = tmp_path / "identity"
    assert main(["keygen", str(path)]) == 0
    made = capsys.readouterr()
    assert made.out.strip() == load_identity(path).public.fingerprint
    assert str(path) in made.err
    assert main(["keygen", str(path)]) == 1
    assert "--force" in capsys.readouterr().err
    assert main(["fingerprint", str(path)]) == 0
    assert capsys.readouterr().out == made.out
    assert main(["keygen", "--force", str(path)]) == 0
    assert capsys.readouterr().out != made.out
    # This is the default path.
    assert main(["keygen"]) == 0
    assert load_identity(state_home / "identity").public.fingerprint in capsys.readouterr().out
    assert main(["fingerprint", str(tmp_path / "absent")]) == 1
    assert main(["fingerprint", "local"]) == 1


@requirement("remote/identity:commands")
@pytest.mark.one_loop
async def test_a_key_is_served_compared_and_pinned(relay, tmp_path, state_home):
    path = tmp_path / "identity"
    fingerprint = create_identity(path).public.fingerprint
    env = {**ENV, "XDG_STATE_HOME": str(state_home.parent)}
    url = relay.noise_url()
    async with cli.running(*words(relay, "--identity", str(path)), env=env):
        await relay.until(relay.is_online, 30)
        run = ("run", "--pin", fingerprint, url, "--", "echo", "hi")
        assert (await cli.finished(*run, env=env)).stdout == b"hi\n"
        listed = await cli.finished("ls", "--pin", "first-use", f"{url}:/", env=env)
        assert listed.status == 0
        shown = await cli.finished("fingerprint", url, env=env)
        assert (shown.status, shown.stdout.decode()) == (0, f"{fingerprint}\n")
        swap_key(relay, MALLORY)
        for command in (("cat", f"{url}:/etc/hosts"), ("fingerprint", url)):
            refused = await cli.finished(*command, env=env)
            assert refused.status == 1
            assert fingerprint in refused.stderr
            assert MALLORY.public.fingerprint in refused.stderr


@requirement("remote/identity:commands")
@pytest.mark.one_loop
async def test_an_identity_that_is_not_secret_is_status_1_and_nothing_is_sent(relay, tmp_path):
    path = tmp_path / "identity"
    create_identity(path)
    path.chmod(0o644)
    for command in (words(relay), ("forward", "--connect", "ws://127.0.0.1:1", *words(relay))):
        done = await cli.finished(*command, "--identity", str(path), env=ENV)
        assert done.status == 1
        assert "chmod 600" in done.stderr
    done = await cli.finished(
        *words(relay, "--identity", str(path), "--relay", "plaintext"), env=ENV
    )
    assert (done.status, "--relay noise" in done.stderr) == (1, True)
    assert not relay.asked
    assert TOKEN not in done.stderr
    wrong = await cli.finished("run", "--pin", "nonsense", relay.noise_url(), "--", "true", env=ENV)
    assert wrong.status == 2
