"""One connection on standard input and output, one message a line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.limits import Limits
from exec_server.server.serving import serve_stdio
from exec_server.transport.lines import LineBuffer, LineTooLong
from exec_server.transport.stdio import StdioConnection
from tests.requirements import requirement
from tests.support.servers import OURS
from tests.support.tether import Tether
from tests.support.wire import PATIENCE, decoded, start_params

PREFIX = "failed to parse JSON-RPC message from exec-server stdio: "
MIB = 1 << 20


class Lines:
    """The client's side: a pipe in, a pipe out."""

    def __init__(self, reader: asyncio.StreamReader, writer: int) -> None:
        self._reader = reader
        self._writer = writer
        self._is_open = True

    def send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._writer, data) :]

    def send_json(self, message: Any) -> None:
        self.send(json.dumps(message).encode() + b"\n")

    async def receive(self) -> Any:
        async with asyncio.timeout(PATIENCE):
            line = await self._reader.readline()
        assert line.endswith(b"\n"), line
        assert b"\r" not in line
        return json.loads(line)

    async def event(self, method: str) -> Any:
        message = await self.receive()
        while message.get("method") != method:
            message = await self.receive()
        return message["params"]

    async def handshake(self) -> Any:
        self.send_json({"id": 0, "method": "initialize", "params": {"clientName": "x"}})
        self.send_json({"method": "initialized"})
        return (await self.receive())["result"]

    async def rest(self) -> bytes:
        """Return everything until the output ends."""
        async with asyncio.timeout(PATIENCE):
            return await self._reader.read()

    def end(self) -> None:
        """End the input."""
        if self._is_open:
            self._is_open = False
            os.close(self._writer)


@contextlib.asynccontextmanager
async def served(**limits: Any) -> AsyncIterator[tuple[Lines, asyncio.Task[None]]]:
    """A server on pipes in this process; leaving ends its input and waits for it."""
    their_input, our_output = os.pipe()
    our_input, their_output = os.pipe()
    reader = asyncio.StreamReader(limit=2 * MIB)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(our_input, "rb")
    )

    async def serve() -> None:
        try:
            await serve_stdio(limits=Limits(**limits), reader=their_input, writer=their_output)
        finally:
            os.close(their_input)
            os.close(their_output)

    lines = Lines(reader, our_output)
    serving = asyncio.create_task(serve())
    try:
        yield lines, serving
        lines.end()
        async with asyncio.timeout(PATIENCE):
            await serving
    finally:
        lines.end()
        serving.cancel()
        transport.close()


@pytest.fixture
async def lines(no_leaks) -> AsyncIterator[Lines]:
    async with served() as (made, _):
        yield made


@contextlib.contextmanager
def server_process(stdin: Any = subprocess.PIPE) -> Iterator[subprocess.Popen[bytes]]:
    """The command itself."""
    with subprocess.Popen(
        [*OURS, "--listen", "stdio"], stdin=stdin, stdout=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


# Lines.


@requirement("stdio:lines")
async def test_a_message_is_a_line(lines):
    lines.send(b'{"id":1,"method":"x"}\n{"id":2,"method":"x"}\r\n{"id":3,"meth')
    assert [(await lines.receive())["id"] for _ in range(2)] == [1, 2]
    lines.send(b'od":"x"}\n')
    assert (await lines.receive())["id"] == 3


@requirement("stdio:blank-lines")
async def test_blank_lines_are_skipped(lines):
    lines.send(b'\n\r\n  \t \n{"id":1,"method":"x"}\n\n')
    assert (await lines.receive())["id"] == 1


@pytest.mark.parametrize(
    "line",
    [
        b"hello",
        b'{"id":1,"method":"x"} {"id":2,"method":"x"}',
        b"Content-Length: 5",
        b"{",
        b"[]",
        b'{"id":1,"id":1,"method":"x"}',
    ],
)
@requirement("stdio:malformed")
async def test_a_malformed_line_is_answered_and_the_connection_goes_on(lines, line):
    lines.send(line + b'\n{"id":"next","method":"x"}\n')
    answer = await lines.receive()
    assert (answer["id"], answer["error"]["code"]) == (-1, -32600)
    assert answer["error"]["message"].startswith(PREFIX)
    assert (await lines.receive())["id"] == "next"


@requirement("stdio:not-utf8")
async def test_a_line_that_is_not_utf8_ends_the_connection(no_leaks):
    async with served() as (lines, serving):
        await lines.handshake()
        lines.send(b'{"id":1,"method":"\xff"}\n{"id":2,"method":"x"}\n')
        assert await lines.rest() == b""
        await serving


@requirement("stdio:violation")
async def test_a_violation_is_told_and_ends_the_connection(no_leaks):
    async with served() as (lines, serving):
        await lines.handshake()
        lines.send(b'{"method":"no/such"}\n{"id":2,"method":"x"}\n')
        assert (await lines.receive())["id"] == -1
        assert await lines.rest() == b""
        await serving


@requirement("stdio:line-limit")
async def test_the_longest_line_excludes_its_terminator(no_leaks):
    message = b'{"id":1,"method":"x"}'
    for terminator in (b"\n", b"\r\n"):
        async with served(message_bytes=1000) as (lines, serving):
            lines.send(message.ljust(1000) + terminator)
            assert (await lines.receive())["id"] == 1
            lines.send(message.ljust(1001) + terminator)
            assert await lines.rest() == b""
            await serving


@requirement("stdio:line-limit")
async def test_a_line_without_an_end_is_not_kept(no_leaks):
    async with served(message_bytes=1000) as (lines, serving):
        lines.send(b"x" * 1002)
        assert await lines.rest() == b""
        await serving


@requirement("stdio:line-limit")
async def test_a_line_may_have_64_mib(lines):
    message = b'{"id":1,"method":"x"}'.ljust(64 * MIB)
    await asyncio.to_thread(lines.send, message + b"\n")
    assert (await lines.receive())["id"] == 1


# Processes and the end.


@requirement("stdio:end-of-input")
async def test_the_end_of_input_kills_everything_at_once(no_leaks, tmp_path):
    with Tether(tmp_path) as tether:
        async with served() as (lines, serving):
            await lines.handshake()
            script = f"exec 9>{tether.path}; trap '' TERM HUP; echo ready; sleep 60 & wait"
            params = start_params("p", ["sh", "-c", script])
            lines.send_json({"id": 1, "method": "process/start", "params": params})
            assert decoded(await lines.event("process/output")) == b"ready\n"
            # This request waits when the input ends, and is never answered.
            params = {"processId": "p", "afterSeq": 1, "waitMs": 600_000}
            lines.send_json({"id": 2, "method": "process/read", "params": params})
            lines.end()
            await tether.released()
            await serving
            assert await lines.rest() == b""


@requirement("stdio:no-resume")
async def test_there_is_nothing_to_resume(lines):
    params = {"clientName": "x", "resumeSessionId": "00000000-0000-4000-8000-000000000000"}
    lines.send_json({"id": 1, "method": "initialize", "params": params})
    assert (await lines.receive())["error"]["code"] == -32600
    assert (await lines.handshake())["sessionId"]


@requirement("stdio:unterminated")
async def test_an_unterminated_last_line_is_not_answered(no_leaks):
    async with served() as (lines, serving):
        lines.send(b'{"id":1,"method":"x"}\n{"id":2,"method":"x"}')
        assert (await lines.receive())["id"] == 1
        lines.end()
        assert await lines.rest() == b""
        await serving


@requirement("stdio:flow-control")
async def test_a_client_that_does_not_read_loses_nothing(lines):
    await lines.handshake()
    params = start_params("p", ["seq", "1", "500000"])
    lines.send_json({"id": 1, "method": "process/start", "params": params})
    assert (await lines.receive())["id"] == 1
    said = b""
    while not said.endswith(b"\n500000\n"):
        said += decoded(await lines.event("process/output"))
    assert said == b"".join(b"%d\n" % n for n in range(1, 500_001))


class Collector:
    """A receiver that keeps what it is given."""

    def __init__(self) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.received: list[bytes] = []

    def message_received(self, data: bytes) -> None:
        self.received.append(data)

    def writing_paused(self) -> None: ...

    def writing_resumed(self) -> None: ...

    def connection_lost(self) -> None:
        self.lost.set_result(None)


@pytest.mark.parametrize("reads_on", [True, False])
@requirement("stdio:last-words")
async def test_what_is_queued_leaves_before_the_end(no_leaks, reads_on):
    their_input, our_output = os.pipe()
    our_input, their_output = os.pipe()
    connection = StdioConnection(their_input, their_output, limits=Limits(close_timeout=0.1))
    receiver = Collector()
    connection.attach(receiver)
    # This is more than a pipe holds, so the rest waits.
    sent = [b"%06d" % number + bytes(1000) for number in range(300)]
    for line in sent:
        connection.send(line)
    os.write(our_output, b"never read\n")
    connection.close()
    connection.close()
    connection.send(b"too late")
    if reads_on:
        expected = b"".join(line + b"\n" for line in sent)
        seen = b""
        while len(seen) < len(expected):
            seen += await asyncio.to_thread(os.read, our_input, 1 << 16)
        assert seen == expected
    async with asyncio.timeout(PATIENCE):
        await receiver.lost
    assert receiver.received == []
    for fd in (their_input, our_output, our_input, their_output):
        os.close(fd)


@requirement("stdio:end-of-input")
async def test_the_end_of_a_socket_is_seen_behind_its_last_words(no_leaks):
    ours, theirs = socket.socketpair()
    with ours:
        # It is never read: the kernel reports its loss as an error beside the last words.
        ours.send(b"unread")
        theirs.send(b"a line\n")
        theirs.close()
        writer = os.dup(ours.fileno())
        connection = StdioConnection(ours.fileno(), writer, limits=Limits())
        receiver = Collector()
        connection.attach(receiver)
        async with asyncio.timeout(PATIENCE):
            await receiver.lost
        assert receiver.received == [b"a line"]
        os.close(writer)


# The command.


@pytest.mark.one_loop
@requirement("stdio:exit-status", "stdio:only-protocol-on-stdout")
async def test_the_command_exits_with_0_at_the_end_of_input():
    with server_process() as process:
        out, _ = await asyncio.to_thread(
            process.communicate, b'{"id":1,"method":"x"}\nnot JSON\n', PATIENCE
        )
        assert [json.loads(line)["id"] for line in out.splitlines()] == [1, -1]
        assert process.returncode == 0


@pytest.mark.one_loop
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@requirement("stdio:signals")
async def test_a_signal_ends_the_command_though_its_input_is_open(number, tmp_path):
    with Tether(tmp_path) as tether, server_process() as process:
        assert process.stdin is not None and process.stdout is not None
        script = (
            f"exec 9>{tether.path}; trap 'echo handled >&9' TERM HUP; echo ready; sleep 60 & wait"
        )
        start = start_params("p", ["sh", "-c", script])
        for message in (
            {"id": 1, "method": "initialize", "params": {"clientName": "x"}},
            {"method": "initialized"},
            {"id": 2, "method": "process/start", "params": start},
        ):
            process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        while b"cmVhZHkK" not in await asyncio.to_thread(process.stdout.readline):
            pass
        process.send_signal(number)
        assert await asyncio.to_thread(process.wait, PATIENCE) == 0
        # The process is asked to end before it is killed.
        assert await tether.released() == b"handled\n"


@pytest.mark.one_loop
@requirement("stdio:signals")
async def test_a_command_hears_of_the_end_before_its_children(tmp_path):
    """A shell whose child is ended first leaves, and what it would do at the end is not done."""
    count = 12
    with Tether(tmp_path) as tether, server_process() as process:
        assert process.stdin is not None and process.stdout is not None
        script = (
            f"exec 9>{tether.path}; trap 'echo handled >&9' TERM; sleep 60 & echo ready >&9; wait"
        )
        starts = (
            {
                "id": 2,
                "method": "process/start",
                "params": start_params(str(n), ["sh", "-c", script]),
            }
            for n in range(count)
        )
        for message in (
            {"id": 1, "method": "initialize", "params": {"clientName": "x"}},
            {"method": "initialized"},
            *starts,
        ):
            process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        await tether.heard(b"ready\n" * count)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, PATIENCE) == 0
        assert (await tether.released()).count(b"handled\n") == count


@pytest.mark.one_loop
@pytest.mark.parametrize("is_empty", [True, False])
@requirement("stdio:files")
async def test_input_may_be_a_file(tmp_path, is_empty):
    path = tmp_path / "requests"
    path.write_bytes(b"" if is_empty else b'{"id":1,"method":"x"}\n')
    with path.open("rb") as file, server_process(stdin=file) as process:
        out, _ = await asyncio.to_thread(process.communicate, None, PATIENCE)
        assert process.returncode == 0
        assert [json.loads(line)["id"] for line in out.splitlines()] == ([] if is_empty else [1])


# Pure.


@given(st.binary(max_size=60).map(lambda data: data.replace(b"x", b"\n")), st.data())
@requirement("stdio:any-split")
def test_any_split_of_the_bytes_gives_the_same_lines(data, draw):
    whole = list(LineBuffer(max_bytes=100).feed(data))
    buffer = LineBuffer(max_bytes=100)
    found: list[bytes] = []
    while data:
        size = draw.draw(st.integers(1, len(data)))
        found += buffer.feed(data[:size])
        data = data[size:]
    assert found == whole


@given(st.lists(st.integers(0, 12), max_size=8), st.booleans(), st.integers(1, 5))
@requirement("stdio:line-limit")
def test_a_line_beyond_the_limit_is_refused_however_it_arrives(sizes, has_return, step):
    data = b"".join(b"x" * size + (b"\r\n" if has_return else b"\n") for size in sizes)
    buffer = LineBuffer(max_bytes=8)
    found: list[bytes] = []
    try:
        for start in range(0, len(data), step):
            found += buffer.feed(data[start : start + step])
    except LineTooLong:
        assert max(sizes) > 8
    else:
        assert max(sizes, default=0) <= 8
        assert found == [b"x" * size for size in sizes if size]
