"""A server that does the least that the benchmark's client asks for: floors of work with programs.

    python bench/bare_server.py PORT

It has the event loop, the WebSocket library and the base64 of our server. It parses no JSON of
requests that are timed: it finds the quotes around a member, decodes base64 into a pipe or a
terminal, and answers with constant words. Output is base64 in a constant frame. There are no
checks, no numbers, no memory of output and no sessions. Answers of one read leave in one write,
and bulk output rests after a key, for as long as with our server: the floor has the same order of
work, and nothing beyond it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import subprocess
import sys
from collections import deque
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pybase64
from picows import WSFrame, WSTransport

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.constant_answers import Answering, frame_header, id_of, serve

_CHUNK_BYTES = 64 * 1024
_OUTPUT_PIPE, _INPUT_PIPE = 256 * 1024, 1024 * 1024
_VECTOR = 256
# As in exec_server/process/echo_first.py.
_SMALL_INPUT, _SMALL_READ = 1024, 4 * 1024
_REST_SECONDS, _BYTES_BETWEEN = 0.006, 512 * 1024
# A longer message is not copied: its two ends are enough to find the quotes around its chunk.
_COPIED_BYTES, _END_BYTES = 2048, 512

_ACCEPTED = b'{"id":%b,"result":{"status":"accepted"}}'
_METADATA = (
    b'{"id":%b,"result":{"isDirectory":false,"isFile":true,"isSymlink":false,"size":4096,'
    b'"createdAtMs":1760000000000,"modifiedAtMs":1760000000000}}'
)
_DATA = b'{"id":%b,"result":{"dataBase64":"%b"}}'
_OUTPUT = b'{"method":"process/output","params":{"processId":"%b","seq":1,"stream":"pty","chunk":"'
_OUTPUT_TAIL = b'"}}'
_CLOSED = b'{"method":"process/closed","params":{"processId":"%b","seq":2}}'


def framed(message: bytes) -> bytes:
    return frame_header(len(message)) + message


def member(message: bytes, name: bytes) -> tuple[int, int]:
    """Where the text of a member begins and ends, without its quotes."""
    start = message.index(b'"%b":"' % name) + len(name) + 4
    return start, message.index(b'"', start)


class _Rest:
    """Bulk output rests for a moment after small input, if it has had its turn."""

    def __init__(self) -> None:
        self.is_on = False
        self.bytes_due = 1
        self._parked: list[_Program] = []

    def begin(self) -> None:
        if self.bytes_due <= 0 and not self.is_on:
            self.is_on = True
            asyncio.get_running_loop().call_later(_REST_SECONDS, self._end)

    def park(self, program: _Program) -> None:
        program.read(False)
        self._parked.append(program)

    def _end(self) -> None:
        self.is_on, self.bytes_due = False, _BYTES_BETWEEN
        parked, self._parked = self._parked, []
        for program in parked:
            program.read(not program.listener.is_full)


_rest = _Rest()


class _Program:
    """A program, its input and its output."""

    def __init__(self, listener: _Bare, params: dict[str, Any]) -> None:
        self.listener = listener
        self._loop = asyncio.get_running_loop()
        self._name = params["processId"].encode()
        self._head = _OUTPUT % self._name
        self._chunks: deque[bytes | memoryview] = deque()
        self._answers: deque[bytes] = deque()
        self._is_bulk = self._is_watched = self._is_read = False
        if params["tty"]:
            self._output, theirs = pty.openpty()
            self._input = self._output
            ends = (theirs, theirs)
        else:
            theirs, self._input = os.pipe()
            self._output, their_output = os.pipe()
            ends = (theirs, their_output)
            fcntl.fcntl(self._output, fcntl.F_SETPIPE_SZ, _OUTPUT_PIPE)
            fcntl.fcntl(self._input, fcntl.F_SETPIPE_SZ, _INPUT_PIPE)
        for fd in (self._input, self._output):
            os.set_blocking(fd, False)
        self.child = subprocess.Popen(
            params["argv"],
            env=params["env"],
            stdin=ends[0],
            stdout=ends[1],
            stderr=ends[1],
            start_new_session=True,
        )
        for fd in set(ends):
            os.close(fd)
        self.read(True)

    # Input.

    def write(self, data: bytes, answer: bytes) -> None:
        """Queue *data*; *answer* is sent once the program has it."""
        if len(data) <= _SMALL_INPUT and not self._is_bulk:
            _rest.begin()
        self._chunks.append(data)
        self._answers.append(answer)

    def flush(self) -> None:
        chunks = self._chunks
        while chunks:
            try:
                sent = os.writev(self._input, tuple(islice(chunks, _VECTOR)))
            except BlockingIOError:
                self._watch(True)
                return
            while chunks and sent >= len(chunks[0]):
                sent -= len(chunks.popleft())
                self.listener.answer(self._answers.popleft())
            if sent:
                chunks[0] = memoryview(chunks[0])[sent:]
        self._watch(False)

    def _watch(self, is_on: bool) -> None:
        if is_on and not self._is_watched:
            self._loop.add_writer(self._input, self._writable)
        elif self._is_watched and not is_on:
            self._loop.remove_writer(self._input)
        self._is_watched = is_on

    def _writable(self) -> None:
        self.flush()
        self.listener.flush()

    # Output.

    def read(self, is_on: bool) -> None:
        if is_on and not self._is_read and self._output >= 0:
            self._loop.add_reader(self._output, self._readable)
        elif self._is_read and not is_on:
            self._loop.remove_reader(self._output)
        self._is_read = is_on and self._output >= 0

    def _readable(self) -> None:
        if self._is_bulk and _rest.is_on:
            _rest.park(self)
            return
        try:
            data = os.read(self._output, _CHUNK_BYTES)
        except OSError:
            # All holders of the terminal have closed it.
            data = b""
        if not data:
            self._close()
            return
        self._is_bulk = len(data) >= _SMALL_READ
        if self._is_bulk:
            _rest.bytes_due -= len(data)
        text = pybase64.b64encode(data)
        size = len(self._head) + len(text) + len(_OUTPUT_TAIL)
        self.listener.write(frame_header(size) + self._head, text, _OUTPUT_TAIL)

    def _close(self) -> None:
        self.read(False)
        self._watch(False)
        for fd in {self._input, self._output}:
            os.close(fd)
        self._output = -1
        self.child.wait()
        self.listener.ended(self._name)

    def kill(self) -> None:
        self.child.kill()


class _Bare(Answering):
    """One connection with its programs."""

    def on_ws_connected(self, transport: WSTransport) -> None:
        super().on_ws_connected(transport)
        self._programs: dict[bytes, _Program] = {}
        self._written: list[_Program] = []
        self.is_full = False

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        view = frame.get_payload_as_memoryview()
        head = bytes(view if len(view) <= _COPIED_BYTES else view[:_END_BYTES])
        if head.startswith(b'{"id":'):
            self._take(head, view)
        if frame.last_in_buffer:
            for program in self._written:
                program.flush()
            self._written.clear()
            self.flush()

    def answer(self, answer: bytes) -> None:
        self._answers.append(answer)

    def ended(self, name: bytes) -> None:
        del self._programs[name]
        self.write(framed(_CLOSED % name))

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        for program in self._programs.values():
            program.kill()

    def pause_writing(self) -> None:
        self.is_full = True
        for program in self._programs.values():
            program.read(False)

    def resume_writing(self) -> None:
        self.is_full = False
        for program in self._programs.values():
            program.read(True)

    def _take(self, head: bytes, view: memoryview) -> None:
        method = head[head.index(b'"method":"') + 10 :][:16]
        if method.startswith(b"process/write"):
            self._write(head, view)
            return
        if method.startswith(b"fs/"):
            self.answer(framed(_file_call(method, head)))
            return
        if method.startswith(b"process/start"):
            params = msgspec.json.decode(view)["params"]
            self._programs[params["processId"].encode()] = _Program(self, params)
        elif method.startswith(b"process/terminat"):
            name = slice(*member(head, b"processId"))
            if program := self._programs.get(head[name]):
                program.kill()
        self.answer(framed(_ACCEPTED % id_of(head)))

    def _write(self, head: bytes, view: memoryview) -> None:
        program = self._programs[head[slice(*member(head, b"processId"))]]
        data: bytes | memoryview
        if len(head) == len(view):
            data = head[slice(*member(head, b"chunk"))]
        else:
            start = head.index(b'"chunk":"') + 9
            data = view[start : len(view) - _END_BYTES + bytes(view[-_END_BYTES:]).index(b'"')]
        answer = framed(_ACCEPTED % id_of(head))
        program.write(pybase64.b64decode(data, None, True), answer)
        if program not in self._written:
            self._written.append(program)


def _file_call(method: bytes, message: bytes) -> bytes:
    path = message[slice(*member(message, b"path"))].removeprefix(b"file://")
    if method.startswith(b"fs/getMetadata"):
        os.stat(path)
        return _METADATA % id_of(message)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    data = os.read(fd, _CHUNK_BYTES)
    os.close(fd)
    return _DATA % (id_of(message), pybase64.b64encode(data))


if __name__ == "__main__":
    serve(_Bare, int(sys.argv[1]))
