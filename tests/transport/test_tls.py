"""TLS on a listener: who gets in, who is refused and how, and who waits for whom."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

import exec_server
from exec_server.errors import ConfigurationError, ConnectError
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.server.serving import RunningServer, serve
from exec_server.transport.certificate import Certificate
from exec_server.transport.certificate_facts import warn_of_end
from tests.requirements import requirement
from tests.support.certificates import make_certificates
from tests.support.leaks import eventually
from tests.support.raw import RawSocket, http, request_head
from tests.support.servers import OURS, start_server
from tests.support.wire import PATIENCE, Wire

# The descriptors of a server that has few of them.
FEW = 256


@contextlib.asynccontextmanager
async def secure_server(
    folder: Path, *, asks_clients: bool = False, limits: Limits = DEFAULT_LIMITS
) -> AsyncIterator[RunningServer]:
    pem = str(folder / "server.pem")
    authority = str(folder / "authority.pem") if asks_clients else None
    async with serve(tls=Certificate(pem, pem, client_ca=authority), limits=limits) as server:
        yield server


def address_of(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("wss://").rpartition(":")
    return host, int(port)


async def output_of(*words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(PATIENCE):
        output, _ = await process.communicate()
    return output.decode(errors="replace")


@requirement("tls:url")
async def test_the_url_says_that_there_is_tls_and_our_client_uses_it(no_leaks, certificate_files):
    async with secure_server(certificate_files) as server:
        assert server.url.startswith("wss://127.0.0.1:")
        ca_file = str(certificate_files / "authority.pem")
        async with exec_server.connect(server.url, ca_file=ca_file) as client:
            assert (await client.run(["echo", "over TLS"])).stdout == b"over TLS\n"
            much = await client.run(["head", "-c", "5000000", "/dev/zero"])
            assert len(much.stdout) == 5_000_000


@requirement("tls:url")
async def test_a_client_reconnects_over_tls(no_leaks, certificate_files):
    async with secure_server(certificate_files) as server:
        ca_file = str(certificate_files / "authority.pem")
        async with exec_server.connect(server.url, ca_file=ca_file) as client:
            process = await client.start(["sh", "-c", "read line; echo got $line"], stdin=True)
            (context,) = server.core._contexts
            context.connection.abort()
            await process.write(b"it\n")
            assert (await process.wait()) == 0
            assert client.is_connected


@requirement("tls:client-trust")
async def test_a_client_trusts_the_authorities_that_it_is_given(no_leaks, certificate_files):
    async with secure_server(certificate_files) as server:
        with pytest.raises(ConnectError, match=r"CERTIFICATE_VERIFY_FAILED.*--ca-file"):
            async with exec_server.connect(server.url, reconnect=False):
                pass


@requirement("tls:versions")
async def test_old_versions_of_tls_are_refused(no_leaks, certificate_files):
    async with secure_server(certificate_files) as server:
        host, port = address_of(server.url)
        for version, works in (("-tls1_1", False), ("-tls1_2", True), ("-tls1_3", True)):
            # The security level of the distribution would already refuse to try the old version.
            words = ["-cipher", "DEFAULT@SECLEVEL=0"] if version == "-tls1_1" else []
            shown = await output_of(
                "openssl", "s_client", "-connect", f"{host}:{port}", version, *words
            )
            assert ("Cipher is (NONE)" not in shown) is works, shown


@requirement("tls:client-certificate")
async def test_a_client_needs_an_accepted_certificate_if_the_server_asks(
    no_leaks, certificate_files, tmp_path, caplog
):
    caplog.set_level(logging.WARNING)
    make_certificates(tmp_path)
    authority = str(certificate_files / "authority.pem")
    right, wrong = str(certificate_files / "server.pem"), str(tmp_path / "server.pem")
    async with secure_server(certificate_files, asks_clients=True) as server:
        async with exec_server.connect(server.url, ca_file=authority, client_cert=right) as client:
            assert (await client.run(["echo", "in"])).stdout == b"in\n"
        with pytest.raises(ConnectError, match=r"(?i)certificate required.*--client-cert"):
            async with exec_server.connect(server.url, ca_file=authority, reconnect=False):
                pass
        with pytest.raises(ConnectError, match=r"(?i)alert"):
            async with exec_server.connect(
                server.url, ca_file=authority, client_cert=wrong, reconnect=False
            ):
                pass
        host, port = address_of(server.url)
        url = f"https://{host}:{port}/readyz"
        shown = await output_of("curl", "-s", "-S", "--cacert", authority, url)
        assert "certificate required" in shown
        shown = await output_of(
            "curl", "-sSi", "--noproxy", "*", "--cacert", authority, "--cert", right, url
        )
        assert "200 OK" in shown
    assert "TLS: it has no certificate" in caplog.text
    assert "TLS: its certificate is not accepted: " in caplog.text


@requirement("tls:client-certificate")
async def test_certificates_of_clients_open_a_public_address(no_leaks, certificate_files):
    pem, authority = (str(certificate_files / f"{name}.pem") for name in ("server", "authority"))
    with pytest.raises(ConfigurationError, match="refusing to listen"):
        async with serve("ws://0.0.0.0:0", tls=Certificate(pem, pem)):
            pass
    async with serve("ws://0.0.0.0:0", tls=Certificate(pem, pem, client_ca=authority)) as server:
        assert server.url.startswith("wss://0.0.0.0:")


@requirement("tls:plain-http")
async def test_a_request_without_tls_is_answered_and_closed(no_leaks, certificate_files):
    async with secure_server(certificate_files) as server:
        plain = server.url.replace("wss:", "ws:")
        answer = await http(plain, request_head("GET", "/readyz", {"Host": "x"}))
        assert (answer.status, answer.body) == (400, b"this port needs TLS: use wss://, not ws://")
        async with RawSocket(plain) as sock:
            await sock.send(request_head("GET", "/", {}))
            await sock.answer()
            # Data behind it is not collected, and the server ends the connection by itself.
            await sock.send(b"x" * 100_000)
            assert await sock.at_end() == b""
        with pytest.raises(ConnectError, match="use wss://"):
            async with exec_server.connect(plain, reconnect=False):
                pass
        async with RawSocket(plain) as sock:
            await sock.send(b"\x00\x01 neither TLS nor HTTP" * 10)
            await sock.at_end()


@requirement("tls:slow-handshakes")
async def test_slow_and_silent_handshakes_are_ended_and_harm_no_other_client(
    no_leaks, certificate_files
):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, http_head_timeout=0.5)
    async with secure_server(certificate_files, limits=limits) as server:
        with contextlib.ExitStack() as held:
            strangers = [
                held.enter_context(socket.create_connection(address_of(server.url), timeout=10))
                for _ in range(50)
            ]
            for sock in strangers[::2]:
                # The beginning of a record with a ClientHello.
                sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
            async with Wire(server.url) as wire:
                await wire.initialize()
                assert (await wire.run("p", ["echo", "served"])).stdout == b"served\n"
            for sock in strangers:
                sock.setblocking(False)
                await eventually(partial(is_closed, sock))


@pytest.mark.one_loop
@requirement("tls:slow-handshakes")
async def test_commands_of_clients_run_while_strangers_fill_the_port(certificate_files):
    few = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({FEW}, {FEW})); "
    command = [sys.executable, "-c", few + "os.execv(sys.argv[1], sys.argv[1:])", *OURS]
    pem = str(certificate_files / "server.pem")
    with (
        start_server("--tls-cert", pem, "--tls-key", pem, command=command) as server,
        contextlib.ExitStack() as held,
    ):
        async with Wire(server.url) as wire:
            await wire.initialize()
            for _ in range(2 * FEW):
                held.enter_context(socket.create_connection(address_of(server.url), timeout=10))
            for number in range(5):
                assert (await wire.run(f"p{number}", ["echo", "done"])).stdout == b"done\n"
            async with Wire(server.url) as late:
                await late.initialize()


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(100) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@requirement("tls:slow-handshakes")
async def test_the_handshake_that_has_waited_longest_gives_way(no_leaks, certificate_files):
    # Half of the six connections may be in a handshake.
    limits = msgspec.structs.replace(DEFAULT_LIMITS, waiting_connections=6)
    async with secure_server(certificate_files, limits=limits) as server:
        with contextlib.ExitStack() as held:
            first, *others = [
                held.enter_context(socket.create_connection(address_of(server.url), timeout=10))
                for _ in range(3)
            ]
            async with Wire(server.url) as late:
                await late.initialize()
                first.setblocking(False)
                await eventually(lambda: is_closed(first))
                for sock in others:
                    sock.setblocking(False)
                    with pytest.raises(BlockingIOError):
                        sock.recv(1)


@requirement("tls:abrupt-end")
async def test_a_peer_that_goes_away_in_the_handshake_leaves_nothing(
    no_leaks, certificate_files, caplog
):
    caplog.set_level(logging.ERROR)
    async with secure_server(certificate_files) as server:
        for said in (b"", b"\x16\x03\x01", b"\x16\x03\x01\x00\x05hello"):
            with socket.create_connection(address_of(server.url), timeout=10) as sock:
                sock.sendall(said)
        async with Wire(server.url) as wire:
            await wire.initialize()
            wire.cut()
    assert not caplog.records


# The files.


@requirement("tls:files")
def test_files_that_cannot_be_used_are_refused(certificate_files, tmp_path):
    pem = str(certificate_files / "server.pem")
    with pytest.raises(ConfigurationError, match="No such file"):
        Certificate(str(tmp_path / "missing"), pem)
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ConfigurationError, match="cannot use the certificate"):
        Certificate(str(tmp_path / "text"), pem)
    make_certificates(tmp_path)
    other = str(tmp_path / "server.pem")
    with pytest.raises(ConfigurationError, match=rf"{other} .*(?i:mismatch)"):
        Certificate(pem, other)
    missing = str(tmp_path / "missing")
    with pytest.raises(ConfigurationError, match=f"{missing}: No such file or directory$"):
        Certificate(pem, missing)
    key = str(tmp_path / "text")
    with pytest.raises(ConfigurationError, match=f"{key} has to hold its key"):
        Certificate(pem, key)
    with pytest.raises(ConfigurationError, match=f"{key} holds no certificates of authorities$"):
        Certificate(pem, pem, client_ca=key)


@requirement("tls:files")
async def test_a_key_with_a_password_is_refused_and_not_asked_for(certificate_files, tmp_path):
    pem, locked = str(certificate_files / "server.pem"), str(tmp_path / "locked.pem")
    await output_of(
        "openssl", "pkey", "-in", pem, "-aes128", "-passout", "pass:secret", "-out", locked
    )
    with pytest.raises(ConfigurationError, match="the key is encrypted"):
        Certificate(pem, locked)


@requirement("tls:client-files")
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ca_file": "/no/such/file"}, "cannot use the CA file /no/such/file: No such file"),
        ({"client_cert": "/no/such/file"}, "cannot use the client certificate /no/such/file"),
        ({"client_key": "key.pem"}, "a client key needs a client certificate"),
        (
            {"ca_file": "ca.pem", "ssl_context": ssl.create_default_context()},
            "give an ssl_context or ca_file, not both",
        ),
    ],
)
async def test_a_client_says_which_file_it_cannot_use(options, text):
    with pytest.raises(ConfigurationError, match=text):
        async with exec_server.connect("wss://127.0.0.1:1", **options):
            pass


@requirement("tls:client-files")
async def test_a_client_names_the_key_that_it_cannot_use(certificate_files, tmp_path):
    pem, missing = str(certificate_files / "server.pem"), str(tmp_path / "missing")
    (tmp_path / "alone.pem").write_text(pem_of_certificate(pem))
    alone = str(tmp_path / "alone.pem")
    with pytest.raises(ConfigurationError, match=f"{missing}: No such file or directory$"):
        async with exec_server.connect("wss://127.0.0.1:1", client_cert=pem, client_key=missing):
            pass
    with pytest.raises(ConfigurationError, match=f"{alone} has to hold its key"):
        async with exec_server.connect("wss://127.0.0.1:1", client_cert=alone):
            pass


@requirement("tls:client-files")
async def test_tls_with_a_port_without_tls_fails_at_once_and_says_so(server, caplog):
    caplog.set_level(logging.WARNING)
    url = server.url.replace("ws://", "wss://")
    with pytest.raises(ConnectError, match="without TLS: use ws://"):
        async with exec_server.connect(url, connect_timeout=600):
            pass
    assert "the request is not HTTP" in caplog.text


def pem_of_certificate(path: str) -> str:
    """The first certificate of a file, without its key."""
    text = Path(path).read_text()
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return text[text.index(begin) : text.index(end) + len(end)] + "\n"


async def test_files_for_tls_do_not_matter_without_tls(server):
    async with exec_server.connect(server.url, ca_file="/no/such/file") as client:
        assert client.is_connected


async def test_a_unix_socket_has_no_tls(certificate_files, tmp_path):
    pem = str(certificate_files / "server.pem")
    with pytest.raises(ConfigurationError, match="not unix"):
        async with serve(f"unix://{tmp_path}/socket", tls=Certificate(pem, pem)):
            pass


@requirement("tls:end-of-validity")
def test_a_certificate_near_its_end_is_warned_of(tmp_path, caplog):
    from exec_server.cli.cert.cert_command import cert_command

    lab = tmp_path / "lab"
    assert cert_command(["ca", str(lab)]) == 0
    files = str(lab / "server-localhost.pem"), str(lab / "server-localhost-key.pem")

    def renew(days: str) -> None:
        assert cert_command(["server", str(lab), "localhost", "--force", "--days", days]) == 0

    renew("300")
    certificate = Certificate(*files)
    assert not caplog.records
    renew("3")
    assert certificate.reload()
    assert f"the certificate {files[0]} expires soon, at 20" in caplog.text
    (record,) = caplog.records
    assert record.levelname == "WARNING" and record.__dict__["notice"] == "certificate"
    Certificate(*files)
    assert len(caplog.records) == 2


@requirement("tls:end-of-validity")
def test_an_expired_certificate_is_warned_of(tmp_path, caplog):
    make_certificates(tmp_path)
    pem = str(tmp_path / "server.pem")
    for hours, said in ((2, "has expired"), (-2, "is not valid before")):
        now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours)
        warn_of_end(pem, now=now)
        assert f"the certificate {pem} {said}" in caplog.text
