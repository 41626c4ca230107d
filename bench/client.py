"""Calls over a wire, and the loads that the workloads put on a server with them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from bench.wire import Wire, encode_frame

now = time.perf_counter

_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"}
_CHUNK = b'"chunk":"'
_CLOSED = b"process/closed"
_ERROR = b'"error"'
# A notification names its process and stream before its chunk; a name of ours is short.
_HEAD_BYTES = 512
_PAD = ord("=")

_numbers = itertools.count(1)


class Spawned(NamedTuple):
    """Each one's seconds from start to closed, and how many were done a second."""

    times: list[float]
    rate: float


class CallFailed(Exception):
    """The server answered a call with an error, or output got lost."""


def unique(prefix: str) -> str:
    """A name that no process or write of this run has had."""
    return f"{prefix}{next(_numbers)}"


def request(method: str, params: dict[str, Any], request_id: int) -> bytes:
    """A call as a frame."""
    message = {"id": request_id, "method": method, "params": params}
    return encode_frame(msgspec.json.encode(message))


def start_params(
    process: str, argv: Sequence[str], *, tty: bool = False, stdin: bool = False
) -> dict[str, Any]:
    return {
        "processId": process,
        "argv": argv,
        "cwd": "file:///tmp",
        "env": _ENV,
        "tty": tty,
        "pipeStdin": stdin,
        "arg0": None,
    }


class Client(Wire):
    """A wire that has done its handshake."""

    def initialize(self) -> None:
        self.call("initialize", {"clientName": "bench"})
        self.send(encode_frame(b'{"method":"initialized","params":{}}'))

    def call(self, method: str, params: dict[str, Any]) -> Any:
        """The result; what else arrives before it is dropped."""
        request_id = next(_numbers)
        self.send(request(method, params, request_id))
        while True:
            message = self.decode()
            if message.get("id") == request_id:
                return _result(method, message)

    def start(
        self,
        process: str,
        argv: Sequence[str],
        *,
        tty: bool = False,
        stdin: bool = False,
        durable: bool = False,
    ) -> None:
        """Ask for a process, without waiting for the answer."""
        params = start_params(process, argv, tty=tty, stdin=stdin)
        if durable:
            # Other servers do not know it.
            params["durable"] = True
        self.send(request("process/start", params, next(_numbers)))

    def terminate(self, process: str) -> None:
        """Ask for its end, without waiting for the answer."""
        self.send(request("process/terminate", {"processId": process}, next(_numbers)))

    def decode(self) -> dict[str, Any]:
        """The next message as a value tree, for whatever is not timed."""
        message: dict[str, Any] = msgspec.json.decode(self.message())
        return message

    def wait_event(self, method: str, process: str) -> None:
        """Drop what arrives until the event has."""
        while True:
            message = self.decode()
            if message.get("method") == method and message["params"]["processId"] == process:
                return
            if "error" in message:
                raise CallFailed(str(message["error"]))


def _result(method: str, message: dict[str, Any]) -> Any:
    if "error" in message:
        raise CallFailed(f"{method}: {message['error']}")
    return message["result"]


def chunk_size(buffer: bytearray, start: int, end: int) -> int:
    """How many bytes the chunk between these offsets stands for; -1 when there is no chunk."""
    first = buffer.find(_CHUNK, start, min(end, start + _HEAD_BYTES))
    if first < 0:
        return -1
    first += len(_CHUNK)
    last = buffer.find(b'"', first, end)
    size = (last - first) // 4 * 3
    if size and buffer[last - 1] == _PAD:
        size -= 2 if buffer[last - 2] == _PAD else 1
    return size


def is_closed_event(buffer: bytearray, start: int, end: int) -> bool:
    """True for process/closed; an error raises."""
    if buffer.find(_CLOSED, start, end) >= 0:
        return True
    if buffer.find(_ERROR, start, end) >= 0:
        raise CallFailed(bytes(buffer[start:end])[:400].decode(errors="replace"))
    return False


def drain(wire: Wire, *, closes: int = 1) -> int:
    """Take output until *closes* processes are closed: how many bytes it stood for.

    Neither JSON nor base64 is decoded.
    """
    total = 0
    while closes:
        start, end = wire.frame()
        size = chunk_size(wire.buffer, start, end)
        if size >= 0:
            total += size
        elif is_closed_event(wire.buffer, start, end):
            closes -= 1
    return total


def expect_size(wanted: int, size: int) -> None:
    if size != wanted:
        raise CallFailed(f"{wanted} bytes of output were due and {size} came")


def serially(wire: Wire, frames: Sequence[bytes]) -> list[float]:
    """Send one request after the other; the seconds that each took."""
    times = []
    for frame in frames:
        begin = now()
        wire.send(frame)
        wire.frame()
        times.append(now() - begin)
    return times


def pipelined(wire: Wire, frames: Sequence[bytes], *, depth: int) -> float:
    """Keep *depth* requests in flight; the seconds for all of them."""
    begin = now()
    sent = answered = 0
    while answered < len(frames):
        if (until := min(len(frames), answered + depth)) > sent:
            wire.send(b"".join(frames[sent:until]))
            sent = until
        # All that is there is taken before the next write.
        answered += wire.skip(sent - answered)
    return now() - begin


def spawn(
    client: Client,
    argv: Sequence[str],
    *,
    count: int,
    at_once: int = 1,
    within: float = 60.0,
    tty: bool = False,
) -> Spawned:
    """Run *argv* *count* times, or as often as can be begun *within* so many seconds."""
    waiting = [
        (name, request("process/start", start_params(name, argv, tty=tty), number))
        for number, name in enumerate((unique("q") for _ in range(count)), 1)
    ]
    waiting.reverse()
    started: dict[str, float] = {}
    times: list[float] = []
    begin = now()
    while waiting or started:
        while waiting and len(started) < at_once:
            name, frame = waiting.pop()
            started[name] = now()
            client.send(frame)
        if closed := _closed_process(client):
            times.append(now() - started.pop(closed))
            if now() - begin > within:
                waiting.clear()
    return Spawned(times, len(times) / (now() - begin))


def _closed_process(client: Client) -> str | None:
    """Take a frame: the process that it says is closed, if it does."""
    start, end = client.frame()
    is_chunk = chunk_size(client.buffer, start, end) >= 0
    if is_chunk or not is_closed_event(client.buffer, start, end):
        return None
    name: str = msgspec.json.decode(client.buffer[start:end])["params"]["processId"]
    return name


def percentile(times: Sequence[float], fraction: float) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))]


def repeat(make: Callable[[int], bytes], count: int) -> list[bytes]:
    """Frames made ahead of time, so that making them is not measured."""
    return [make(number) for number in range(1, count + 1)]
