"""Connections that succeed, and the errors of those that fail."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import websockets

from exec_server.errors import ConfigurationError, ConnectError, ConnectionRejected
from exec_server.limits import MIB, Limits
from exec_server.server.authentication import CapabilityToken
from exec_server.server.serving import serve
from exec_server.transport.connection import Connection
from exec_server.transport.dial import dial
from exec_server.transport.frames import FrameSocket, Sizes, dial_frames
from exec_server.transport.program import dial_program
from tests.requirements import requirement
from tests.support.fake_server import Talk, fake_server
from tests.support.leaks import eventually
from tests.support.servers import OURS
from tests.support.wire import PATIENCE

LIMITS = Limits()
pytestmark = pytest.mark.usefixtures("no_leaks")


class Inbox:
    """A receiver that keeps what it is given."""

    def __init__(self, connection: Connection) -> None:
        self.messages: asyncio.Queue[bytes] = asyncio.Queue()
        self.lost = asyncio.Event()
        self.connection = connection
        connection.attach(self)

    def message_received(self, data: bytes) -> None:
        self.messages.put_nowait(data)

    def writing_paused(self) -> None: ...

    def writing_resumed(self) -> None: ...

    def connection_lost(self) -> None:
        assert not self.lost.is_set()
        self.lost.set()

    async def next(self) -> bytes:
        async with asyncio.timeout(PATIENCE):
            return await self.messages.get()

    async def end(self) -> None:
        self.connection.close()
        await self.ended()

    async def ended(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.lost.wait()


@contextlib.asynccontextmanager
async def dialled(url: str, **options: Any) -> AsyncIterator[Inbox]:
    inbox = Inbox(await dial(url, limits=options.pop("limits", LIMITS), **options))
    try:
        yield inbox
    finally:
        await inbox.end()


async def shake_hands(inbox: Inbox) -> None:
    inbox.connection.send(b'{"id":1,"method":"initialize",', b'"params":{"clientName":"t"}}')
    assert json.loads(await inbox.next())["result"]["sessionId"]


@contextlib.asynccontextmanager
async def answering(*pieces: bytes, hold: bool = False) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A listener that answers a request head with *pieces*, then ends or holds the connection."""
    heads: list[bytes] = []

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                # Each piece is sent in a segment and a turn of the loop of its own.
                await asyncio.sleep(0)
            if hold:
                await reader.read()
        writer.close()

    server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
    try:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads
    finally:
        server.close()


@requirement("client/dial:websocket")
async def test_a_websocket_is_opened(server):
    async with dialled(server.url) as inbox:
        await shake_hands(inbox)


@requirement("client/dial:websocket")
async def test_an_ipv6_address_has_brackets():
    try:
        running = serve("ws://[::1]:0")
        server = await running.__aenter__()
    except ConfigurationError:
        pytest.skip("this machine has no IPv6")
    async with dialled(server.url) as inbox:
        await shake_hands(inbox)
    await running.__aexit__(None, None, None)


@requirement("client/dial:unix")
async def test_a_unix_socket_carries_a_websocket(tmp_path):
    async with (
        serve(f"unix://{tmp_path}/s") as server,
        dialled(server.url) as inbox,
    ):
        await shake_hands(inbox)
        assert inbox.connection.peer_name == "unix"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a key and a self-signed certificate for localhost."""
    path = tmp_path_factory.mktemp("tls") / "localhost.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        [*command.split(), *names, "-keyout", path, "-out", f"{path}.crt"],
        check=True,
        capture_output=True,
    )
    path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
    return path


@contextlib.asynccontextmanager
async def tls_echo(certificate: Path) -> AsyncIterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def echo(connection: websockets.ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    async with websockets.serve(echo, "localhost", 0, ssl=context, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"wss://localhost:{port}"


@requirement("client/dial:tls")
async def test_tls_is_spoken_where_the_url_says_so(certificate):
    trusting = ssl.create_default_context(cafile=f"{certificate}.crt")
    async with tls_echo(certificate) as url, dialled(url, ssl_context=trusting) as inbox:
        inbox.connection.send(b"x" * 100_000)
        assert await inbox.next() == b"x" * 100_000


@requirement("client/dial:tls")
async def test_a_certificate_that_nobody_vouches_for_is_refused(certificate):
    async with tls_echo(certificate) as url:
        with pytest.raises(ConnectError, match="certificate verify failed"):
            await dial(url, limits=LIMITS)


@requirement("client/dial:bare-upgrade")
async def test_the_upgrade_request_is_bare():
    async with answering(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n") as (url, heads):
        with pytest.raises(ConnectionRejected):
            await dial(f"{url}/?a=b", limits=LIMITS)
    request, *headers = heads[0].decode().removesuffix("\r\n\r\n").split("\r\n")
    assert request == "GET /?a=b HTTP/1.1"
    names = {line.partition(":")[0].lower() for line in headers}
    expected = "host connection upgrade sec-websocket-version sec-websocket-key"
    assert names == set(expected.split())
    assert f"Host: {url.removeprefix('ws://')}" in headers


@requirement("client/dial:bearer-token", "client/dial:http-status")
async def test_a_token_lets_us_in_and_a_wrong_one_is_told():
    token = "correct-horse"
    check = CapabilityToken(hashlib.sha256(token.encode()).digest())
    async with serve(authenticator=check) as server:
        async with dialled(server.url, bearer_token=token) as inbox:
            await shake_hands(inbox)
        with pytest.raises(ConnectionRejected) as caught:
            await dial(server.url, limits=LIMITS, bearer_token="wrong")
        assert caught.value.status == 401 and not caught.value.retryable
        assert str(caught.value).endswith("401 Unauthorized: invalid websocket bearer token")
        assert "wrong" not in str(caught.value)


@requirement("client/dial:bearer-token")
@pytest.mark.parametrize("token", ["", "a b", "a\r\nX: y", "ü"])
async def test_a_token_that_is_no_header_value_is_refused(token):
    with pytest.raises(ConfigurationError):
        await dial("ws://127.0.0.1:1", limits=LIMITS, bearer_token=token)


@requirement("client/dial:bearer-token")
@pytest.mark.parametrize("token", [5, b"token"])
async def test_a_token_that_is_no_text_is_a_type_error(token: Any):
    with pytest.raises(TypeError, match=f"^token must be str, not {type(token).__name__}$"):
        await dial("ws://127.0.0.1:1", limits=LIMITS, bearer_token=token)


@requirement("client/dial:url")
async def test_a_url_without_a_scheme_is_told():
    with pytest.raises(ConfigurationError, match=r"^unsupported URL without a scheme;"):
        await dial("127.0.0.1:8765", limits=LIMITS)


@requirement("client/dial:deadline")
async def test_a_server_that_never_answers_is_given_up():
    async with answering(hold=True) as (url, _):
        with pytest.raises(ConnectError, match=r"timed out after 0\.05 s") as caught:
            await dial(url, limits=LIMITS, connect_timeout=0.05)
        assert caught.value.retryable


async def test_a_caller_that_gives_up_leaves_nothing_behind():
    async with answering(hold=True) as (url, heads):
        dialling = asyncio.ensure_future(dial(url, limits=LIMITS))
        await eventually(lambda: heads)
        dialling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialling


@requirement("client/dial:refused")
async def test_a_refused_connection_names_url_and_cause():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ConnectError) as caught:
            await dial(url, limits=LIMITS)
    expected = f"failed to connect to exec-server websocket `{url}`: Connection refused"
    assert str(caught.value) == expected
    assert caught.value.retryable and not isinstance(caught.value, ConnectionRejected)


@requirement("client/dial:refused")
async def test_a_missing_socket_is_told(tmp_path):
    with pytest.raises(ConnectError, match=r"socket `unix://.*`: No such file or directory"):
        await dial(f"unix://{tmp_path}/nobody", limits=LIMITS)


def http(status: str, body: bytes = b"", *, length: bool = True) -> bytes:
    size = f"Content-Length: {len(body)}\r\n" if length else ""
    return f"HTTP/1.1 {status}\r\n{size}\r\n".encode() + body


@requirement("client/dial:http-status", "client/dial:no-redirects")
@pytest.mark.parametrize(
    ("answer", "words", "is_retryable"),
    [
        ([http("404 Not Found")], "HTTP 404 Not Found (not an exec-server?)", False),
        ([http("200 OK", b"<html>")], "HTTP 200 OK (not an exec-server?): <html>", False),
        ([http("403 Forbidden", b"go\n away")], "HTTP 403 Forbidden: go away", False),
        ([http("302 Found")], "HTTP 302 Found (redirects are not followed)", False),
        ([http("503 Busy", b"later")], "HTTP 503 Busy: later", True),
        ([http("401 No", b"in", length=False), b" parts"], "HTTP 401 No: in parts", False),
        ([http("401 No", b"abcdef")[:-3], b"def"], "HTTP 401 No: abcdef", False),
        ([http("418 T")[:-9], http("418 T")[-9:]], "HTTP 418 T", False),
    ],
)
async def test_an_http_answer_is_told_with_its_words(answer, words, is_retryable):
    async with answering(*answer) as (url, _):
        with pytest.raises(ConnectError) as caught:
            await dial(url, limits=LIMITS)
    assert str(caught.value).endswith(f"`: {words}")
    assert caught.value.retryable is is_retryable


@requirement("client/dial:http-status")
async def test_a_body_that_never_ends_is_not_waited_for():
    limits = Limits(close_timeout=0.05)
    async with answering(http("401 No", b"because", length=False), hold=True) as (url, _):
        with pytest.raises(ConnectionRejected, match="401 No: because"):
            await dial(url, limits=limits)


@requirement("client/dial:not-a-websocket")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the answer is not HTTP"),
        (b"", "closed before it was a WebSocket"),
        (b"HTTP/1.1 101 Switching Protocols\r\n", "closed before it was a WebSocket"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "[Uu]pgrade|[Cc]onnection"),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: bm90IHRoZSByaWdodCBvbmU=\r\n\r\n",
            "[Aa]ccept",
        ),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000, "the answer is too long"),
    ],
)
async def test_what_is_no_websocket_is_told(answer, words):
    async with answering(answer) as (url, _):
        with pytest.raises(ConnectError, match=words):
            await dial(url, limits=LIMITS)


@requirement("client/dial:url")
@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1",
        "127.0.0.1:1",
        "ws://",
        "ws://127.0.0.1:x",
        "ws://127.0.0.1:99999",
        "ws://user:secret@127.0.0.1:1",
        "ws://127.0.0.1:1/a b?secret",
        "unix://",
        "stdio:",
        "stdio:'",
    ],
)
async def test_a_url_that_leads_nowhere_is_refused(url):
    with pytest.raises(ConfigurationError) as caught:
        await dial(url, limits=LIMITS)
    assert "secret" not in str(caught.value)


@requirement("client/dial:url")
async def test_the_query_of_a_url_is_not_shown():
    async with answering(http("404 No")) as (url, _):
        with pytest.raises(ConnectError) as caught:
            await dial(f"{url}/path?signature=secret", limits=LIMITS)
    assert "/path" in str(caught.value) and "secret" not in str(caught.value)


async def lost_before_it_is_used(talk: Talk) -> None:
    talk.socket.transport.abort()


async def test_a_connection_that_ends_before_it_is_used_says_so():
    async with fake_server(lost_before_it_is_used) as url:
        connection = await dial(url, limits=LIMITS)
        # The loss arrives before a receiver is attached.
        await eventually(lambda: connection._is_lost)  # type: ignore[attr-defined]
        await Inbox(connection).ended()


@requirement("client/dial:any-framing", "client/dial:limits")
async def test_large_binary_and_fragmented_messages_arrive():
    whole, piece = b"w" * (16 * MIB), "p" * (16 * MIB)

    async def script(talk: Talk) -> None:
        await talk.socket.recv()
        await talk.socket.send("text")
        await talk.socket.send(b"binary")
        await talk.socket.send(["frag", "", "ments"])
        await talk.socket.send(whole)
        await talk.socket.send([piece] * 4)
        await talk.gone()

    async with fake_server(script) as url, dialled(url) as inbox:
        inbox.connection.send(b"go")
        assert [await inbox.next() for _ in range(3)] == [b"text", b"binary", b"fragments"]
        assert await inbox.next() == whole
        assert await inbox.next() == piece.encode() * 4


@requirement("client/dial:limits")
@pytest.mark.parametrize(
    "message", [[b"x" * 1001], [b"x" * 1000, b"x" * 1000, b"x"]], ids=["frame", "message"]
)
async def test_beyond_the_limits_the_connection_is_dropped(message, caplog):
    async def script(talk: Talk) -> None:
        await talk.socket.recv()
        await talk.socket.send(message)
        await talk.gone()

    limits = Limits(frame_bytes=1000, message_bytes=2000)
    async with fake_server(script) as url, dialled(url, limits=limits) as inbox:
        inbox.connection.send(b"go")
        await inbox.ended()
        assert inbox.messages.empty()
    assert not caplog.records


@requirement("client/dial:pings")
async def test_pings_are_answered():
    async def script(talk: Talk) -> None:
        await talk.socket.recv()
        await (await talk.socket.ping(b"there?"))
        await talk.socket.send("pong came")
        await talk.gone()

    async with fake_server(script) as url, dialled(url) as inbox:
        inbox.connection.send(b"go")
        assert await inbox.next() == b"pong came"


async def test_large_messages_are_cut_into_frames():
    async def script(talk: Talk) -> None:
        pieces = [len(piece) async for piece in talk.socket.recv_streaming()]
        await talk.socket.send(json.dumps(pieces))
        await talk.gone()

    limits = Limits(frame_bytes=1000)
    async with fake_server(script) as url, dialled(url, limits=limits) as inbox:
        inbox.connection.send(b"y" * 2250)
        assert json.loads(await inbox.next()) == [1000, 1000, 250]


# Programs.


@requirement("client/dial:program")
async def test_a_program_is_spoken_to_by_lines():
    command = " ".join([*OURS, "--listen", "stdio"])
    async with dialled(f"stdio:{command}") as inbox:
        await shake_hands(inbox)
        assert inbox.connection.transport_name == "stdio"


async def test_a_program_has_its_own_environment_and_directory(tmp_path):
    script = "import os; print(os.environ['WORD'], os.getcwd(), flush=True); input()"
    connection = await dial_program(
        [sys.executable, "-c", script], limits=LIMITS, env={"WORD": "hi"}, cwd=str(tmp_path)
    )
    inbox = Inbox(connection)
    assert await inbox.next() == f"hi {tmp_path}".encode()
    await inbox.end()


@requirement("client/dial:program")
async def test_a_program_that_ends_is_a_lost_connection():
    inbox = Inbox(await dial(f"stdio:{sys.executable} -c pass", limits=LIMITS))
    await inbox.ended()


@requirement("client/dial:program")
async def test_a_program_that_ends_at_once_can_be_written_to():
    # Its pipes are closed before the event loop says so, in about every third start.
    for _ in range(30):
        connection = await dial_program(["true"], limits=LIMITS)
        inbox = Inbox(connection)
        connection.send(b"hello")
        connection.pause_reading()
        connection.resume_reading()
        assert connection.unsent_bytes >= 0
        await inbox.ended()


@requirement("client/dial:program")
async def test_a_program_that_does_not_exist_is_told():
    with pytest.raises(ConfigurationError, match="cannot run `/no/such`: No such file"):
        await dial("stdio:/no/such", limits=LIMITS)


IGNORES_SIGTERM = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
while True:
    signal.pause()
"""


@requirement("client/dial:program-ends")
async def test_a_program_that_stays_is_killed():
    limits = Limits(program_kill_delay=0.05)
    inbox = Inbox(await dial_program([sys.executable, "-c", IGNORES_SIGTERM], limits=limits))
    pid = int(await inbox.next())
    assert os.getpgid(pid) == pid
    await inbox.end()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@requirement("client/dial:program-ends")
async def test_a_program_is_asked_to_end_first(tmp_path):
    script = (
        "import signal, sys; print('ready', flush=True)\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (open(r'{tmp_path}/asked', 'w'), sys.exit()))\n"
        "print('armed', flush=True)\nsignal.pause()"
    )
    inbox = Inbox(await dial_program([sys.executable, "-c", script], limits=LIMITS))
    assert [await inbox.next(), await inbox.next()] == [b"ready", b"armed"]
    await inbox.end()
    assert (tmp_path / "asked").exists()


@pytest.mark.parametrize("line", [b"\\xff", b"x" * 101], ids=["not UTF-8", "too long"])
async def test_a_line_that_cannot_be_ends_the_connection(line):
    script = (
        f"import sys; sys.stdout.buffer.write(b'{line.decode()}\\n'); sys.stdout.flush(); input()"
    )
    limits = Limits(message_bytes=100)
    inbox = Inbox(await dial_program([sys.executable, "-c", script], limits=limits))
    await inbox.ended()
    assert inbox.messages.empty()


async def test_a_program_can_be_dropped_at_once():
    inbox = Inbox(await dial_program([sys.executable, "-c", IGNORES_SIGTERM], limits=LIMITS))
    await inbox.next()
    inbox.connection.abort()
    await inbox.ended()


async def test_a_paused_program_is_not_read():
    script = "print('one', flush=True); input(); print('two', flush=True); input()"
    connection = await dial_program([sys.executable, "-c", script], limits=LIMITS)
    inbox = Inbox(connection)
    assert await inbox.next() == b"one"
    connection.pause_reading()
    connection.pause_reading()
    connection.send(b"go on")
    with pytest.raises(asyncio.QueueEmpty):
        for _ in range(3):
            await asyncio.sleep(0)
            inbox.messages.get_nowait()
    connection.resume_reading()
    connection.resume_reading()
    assert await inbox.next() == b"two"
    await inbox.end()


async def test_a_dial_that_is_cancelled_when_the_socket_opens_closes_it(server):
    class Receiver:
        def __init__(self) -> None:
            self.lost = asyncio.Event()

        def socket_opened(self, _socket: FrameSocket) -> None:
            # This runs before the dialling task hears of its success.
            asyncio.get_running_loop().call_soon(dialling.cancel)

        def frame_received(self, data: bytes | memoryview) -> None: ...

        def text_received(self, data: bytes) -> None: ...

        def writing_paused(self) -> None: ...

        def writing_resumed(self) -> None: ...

        def socket_lost(self, reason: str) -> None:
            self.lost.set()

    receiver = Receiver()
    sizes = Sizes(frame_bytes=MIB, message_bytes=MIB, sent_frame_bytes=MIB)
    dialling = asyncio.ensure_future(dial_frames(server.url, receiver, sizes=sizes, limits=LIMITS))
    with pytest.raises(asyncio.CancelledError):
        await dialling
    async with asyncio.timeout(PATIENCE):
        await receiver.lost.wait()
