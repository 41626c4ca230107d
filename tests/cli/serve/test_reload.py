"""SIGHUP: tokens, secrets, certificates and the log level of a server that runs."""

from __future__ import annotations

import base64
import hmac
import json
import os
import pty
import signal
import ssl
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
import websockets

from exec_server.cli.cert.cert_command import cert_command
from exec_server.limits import DEFAULT_LIMITS
from exec_server.server.authentication import CapabilityToken
from exec_server.server.serving import serve
from exec_server.transport.certificate import Certificate
from tests.requirements import requirement
from tests.support.leaks import eventually
from tests.support.servers import ServerProcess, start_server
from tests.support.wire import Wire

LISTEN = ("--listen", "ws://127.0.0.1:0", "--log-level", "info")
DONE = "everything was read again"
KEPT = "the old value stays in use"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def is_accepted(url: str, token: str) -> bool:
    try:
        async with Wire(url, headers=bearer(token)) as wire:
            await wire.initialize()
    except websockets.InvalidStatus as exc:
        assert exc.response.status_code == 401
        return False
    return True


async def reload(server: ServerProcess, log: Path, wanted: str) -> None:
    """Send SIGHUP, and wait until the log has *wanted* once more."""
    before = log.read_text().count(wanted)
    server.signal(signal.SIGHUP)
    await eventually(lambda: log.read_text().count(wanted) > before)


def jwt(secret: str) -> str:
    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    claims = json.dumps({"exp": int(time.time()) + 3600}).encode()
    signed = part(b'{"alg":"HS256"}') + "." + part(claims)
    return f"{signed}.{part(hmac.digest(secret.encode(), signed.encode(), 'sha256'))}"


@pytest.mark.one_loop
@requirement("reload:tokens")
@pytest.mark.parametrize(
    ("mode", "option", "token_of"),
    [
        ("capability-token", "--ws-token-file", str),
        ("signed-bearer-token", "--ws-shared-secret-file", jwt),
    ],
)
async def test_a_token_that_is_replaced_ends_the_connections_that_used_it(
    tmp_path, mode, option, token_of: Callable[[str], str]
):
    file, log = tmp_path / "secret", tmp_path / "log"
    file.write_text("a" * 40)
    file.chmod(0o600)
    old, new = token_of("a" * 40), token_of("b" * 40)
    with start_server(*LISTEN, "--ws-auth", mode, option, str(file), log=log) as server:
        async with Wire(server.url, headers=bearer(old)) as wire:
            session = (await wire.initialize())["sessionId"]
            await reload(server, log, DONE)
            # Nothing has changed, so nothing happens.
            assert (await wire.run("p", ["echo", "still"])).stdout == b"still\n"
            file.write_text("b" * 40)
            assert not await is_accepted(server.url, new)
            await reload(server, log, DONE)
            await wire.closed()
            assert wire.socket.close_code == 1008
            assert wire.socket.close_reason == "the token of this connection is no longer accepted"
        assert not await is_accepted(server.url, old)
        async with Wire(server.url, headers=bearer(new)) as wire:
            assert (await wire.initialize(resumeSessionId=session))["sessionId"] == session
    assert "a" * 40 not in log.read_text() and "b" * 40 not in log.read_text()


@pytest.mark.one_loop
@requirement("reload:broken")
@pytest.mark.parametrize("content", ["", "\n", b"\xff\xfe", None])
async def test_a_broken_token_file_keeps_the_old_token(tmp_path, content):
    file, log = tmp_path / "token", tmp_path / "log"
    file.write_text("right")
    options = ("--ws-auth", "capability-token", "--ws-token-file", str(file))
    with start_server(*LISTEN, *options, log=log) as server:
        async with Wire(server.url, headers=bearer("right")) as wire:
            await wire.initialize()
            if content is None:
                file.unlink()
            else:
                file.write_bytes(content if isinstance(content, bytes) else content.encode())
            await reload(server, log, KEPT)
            assert str(file) in log.read_text() and DONE not in log.read_text()
            assert (await wire.run("p", ["echo", "still"])).stdout == b"still\n"
            assert await is_accepted(server.url, "right")


@pytest.mark.one_loop
@requirement("reload:log-level")
async def test_the_log_level_is_read_again(tmp_path):
    file, log = tmp_path / "level", tmp_path / "log"
    file.write_text("error\n")
    with start_server("--log-level-file", str(file), log=log) as server:
        async with Wire(server.url) as wire:
            await wire.initialize()
        assert "connection from" not in log.read_text()
        file.write_text("INFO\n")
        await reload(server, log, DONE)
        async with Wire(server.url) as wire:
            await wire.initialize()
        assert "connection from 127.0.0.1" in log.read_text()
        file.write_text("loud")
        await reload(server, log, KEPT)
        assert "has to hold one of error, warning, info, debug" in log.read_text()


# Certificates.


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    folder = tmp_path / "lab"
    assert cert_command(["ca", str(folder)]) == 0
    renew(folder)
    return folder


def renew(folder: Path) -> str:
    """A new certificate for the server; returns what clients see of it."""
    assert cert_command(["server", str(folder), "127.0.0.1", "--force"]) == 0
    return ssl.PEM_cert_to_DER_cert((folder / "server-127.0.0.1.pem").read_text()).hex()


def files_of(folder: Path) -> tuple[str, str]:
    return str(folder / "server-127.0.0.1.pem"), str(folder / "server-127.0.0.1-key.pem")


def presented(wire: Wire) -> str:
    found: bytes = wire.socket.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return found.hex()


@pytest.mark.one_loop
@requirement("reload:certificate", "reload:broken")
async def test_a_certificate_is_read_again_at_sighup(tmp_path, lab):
    certificate, key = files_of(lab)
    log = tmp_path / "log"
    with start_server(*LISTEN, "--tls-cert", certificate, "--tls-key", key, log=log) as server:
        async with Wire(server.url) as old:
            await old.initialize()
            Path(key).write_text("broken")
            await reload(server, log, "the certificate was not read again")
            async with Wire(server.url) as wire:
                assert presented(wire) == presented(old)
            new = renew(lab)
            assert new != presented(old)
            await reload(server, log, DONE)
            async with Wire(server.url) as wire:
                assert presented(wire) == new
            assert (await old.run("p", ["echo", "still"])).stdout == b"still\n"


@requirement("reload:certificate", "reload:broken")
@pytest.mark.parametrize("asks_clients", [False, True])
async def test_a_change_of_the_certificate_files_is_noticed(no_leaks, lab, caplog, asks_clients):
    tls = Certificate(*files_of(lab), client_ca=str(lab / "ca.pem") if asks_clients else None)
    limits = msgspec.structs.replace(DEFAULT_LIMITS, certificate_check_seconds=0.02)
    async with serve(tls=tls, limits=limits):
        before = tls.context
        (lab / "server-127.0.0.1-key.pem").unlink()
        await eventually(lambda: "was not read again" in caplog.text)
        # It is said once for a state of the files, and not at each look.
        assert tls.context is before and len(caplog.records) == 1
        with caplog.at_level("INFO"):
            renew(lab)
            await eventually(lambda: "the certificate was read again" in caplog.text)
        assert tls.context is not before


@pytest.mark.one_loop
@requirement("reload:client-ca")
@pytest.mark.parametrize("has_token", [False, True])
async def test_the_clients_of_an_authority_that_is_removed_are_out(no_leaks, lab, has_token):
    assert cert_command(["client", str(lab), "alice"]) == 0
    context = ssl.create_default_context(cafile=str(lab / "ca.pem"))
    context.load_cert_chain(lab / "client-alice.pem", lab / "client-alice-key.pem")
    authority = lab.parent / "clients.pem"
    authority.write_bytes((lab / "ca.pem").read_bytes())
    other = lab.parent / "other"
    assert cert_command(["ca", str(other)]) == 0
    assert cert_command(["client", str(other), "bob"]) == 0
    theirs = ssl.create_default_context(cafile=str(lab / "ca.pem"))
    theirs.load_cert_chain(other / "client-bob.pem", other / "client-bob-key.pem")
    authority.write_bytes((lab / "ca.pem").read_bytes() + (other / "ca.pem").read_bytes())
    tls = Certificate(*files_of(lab), client_ca=str(authority))
    token = CapabilityToken(sha256(b"t").digest()) if has_token else None
    headers = bearer("t") if has_token else None
    async with serve(tls=tls, authenticator=token) as server:
        async with (
            Wire(server.url, headers=headers, context=context) as alice,
            Wire(server.url, headers=headers, context=theirs) as bob,
        ):
            await alice.initialize()
            await bob.initialize()
            # An authority that comes, or a file that is written again, ends no connection.
            assert tls.reload()
            await alice.call("session/ping", {})
            authority.write_bytes((other / "ca.pem").read_bytes())
            assert tls.reload()
            await alice.closed()
            assert alice.socket.close_code == 1008
            await bob.call("session/ping", {})
            with pytest.raises((ssl.SSLError, ConnectionError, websockets.InvalidMessage)):
                async with Wire(server.url, headers=headers, context=context):
                    pass


# The terminal.


@pytest.mark.one_loop
@requirement("reload:terminal")
async def test_a_server_ends_with_its_terminal_but_not_at_another_hangup(tmp_path):
    log = tmp_path / "log"
    master, slave = pty.openpty()

    def take_terminal() -> None:
        os.setsid()
        # The first terminal that the leader of a session opens is its controlling one.
        os.close(os.open(os.ttyname(slave), os.O_RDWR))

    level = tmp_path / "level"
    level.write_text("info\n")
    options = ("--listen", "ws://127.0.0.1:0", "--log-level-file", str(level))
    with start_server(*options, log=log, preexec_fn=take_terminal) as server:
        os.close(slave)
        await reload(server, log, DONE)
        os.close(master)
        assert server.wait() == 0


@pytest.mark.one_loop
@requirement("reload:nothing")
async def test_a_server_without_files_to_read_dies_as_the_reference_does():
    with start_server() as server:
        server.signal(signal.SIGHUP)
        assert server.wait() == -signal.SIGHUP
