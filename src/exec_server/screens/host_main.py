"""The host: a process that holds the models of all terminals of a server.

It reads packets from the socket that is its stdin until the server is gone. Nothing is lost if it
ends: the server starts another one, which makes the models again from retained output.
"""

from __future__ import annotations

import resource
import select
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import msgspec

from exec_server.errors import InternalError, InvalidRequest, RpcError
from exec_server.protocol.screen import ScreenParams, WaitForParams
from exec_server.screens import host_messages as messages
from exec_server.screens.host_messages import PACKET_BYTES, PART_BYTES
from exec_server.screens.screen_model import ScreenModel
from exec_server.terminal import engine_name

# A dump takes some milliseconds, as long as the model of a megabyte of output. So it is taken when
# so much was fed since the last one, in a pause of this length.
_CHECKPOINT_BYTES, _PAUSE_SECONDS = 256 * 1024, 0.05
# A program that never pauses gets one after so much: `StoredScreen` takes none before that, and the
# journal of a durable job keeps more.
_BUSY_CHECKPOINT_BYTES = 16 << 20
_MAX_CHECKPOINT_BYTES = PART_BYTES
# A dump that takes long, of a large screen in many colours, is not taken again before so many times
# its own processor time: the models of others need the host, too.
_CHECKPOINT_REST = 50.0
# `select` takes no longer times than some hundred years.
_MAX_SELECT_SECONDS = 3600.0

_encode_json = msgspec.json.Encoder().encode
_decode_screen = msgspec.json.Decoder(ScreenParams).decode
_decode_wait = msgspec.json.Decoder(WaitForParams).decode


class ScreenHost:
    """Answers the packets of one server."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._models: dict[int, ScreenModel] = {}
        self._checkpointed: dict[int, int] = {}
        # When the next checkpoint of a model may be taken.
        self._rested_at: dict[int, float] = {}
        self._is_replay = False
        # Models with output since their last checkpoint.
        self._fed: set[int] = set()
        self._waiting: set[int] = set()

    def run(self) -> None:
        self._send(messages.Ready(engine_name() or "none"))
        packet = memoryview(bytearray(PACKET_BYTES))
        while True:
            try:
                size = self._sock.recv_into(packet, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                self._rest()
                continue
            if not size:
                return
            message = messages.decode_to_host(packet[:size])
            with self._failing_alone(message.model):
                self._take(message)

    def _rest(self) -> None:
        """Wait for the next packet, and do what is to be done meanwhile."""
        timeout = self._timeout()
        if self._fed:
            timeout = _PAUSE_SECONDS if timeout is None else min(timeout, _PAUSE_SECONDS)
        if not select.select([self._sock], [], [], timeout)[0]:
            self._expire()
            if timeout == _PAUSE_SECONDS:
                self._checkpoint()

    @contextmanager
    def _failing_alone(self, number: int) -> Iterator[None]:
        """An error of one model ends that one, and leaves those of others alone."""
        try:
            yield
        except OSError:
            # The server is gone.
            raise
        except Exception as exc:
            error = InternalError(f"the model has failed: {type(exc).__name__}: {exc}")
            model = self._models.get(number)
            waits = [] if model is None else [wait.call for wait in model.waits]
            self._drop(number)
            for call in waits:
                self._answer_error(call, error)

    # Packets.

    def _take(self, message: messages.ToHost) -> None:
        now = time.monotonic()
        if isinstance(message, messages.OpenModel):
            self._open(message, now)
            return
        model = self._models.get(message.model)
        if isinstance(message, messages.Question):
            self._ask(message, model, now)
        elif model is None:
            return
        elif isinstance(message, messages.Feed):
            if message.is_partial:
                model.held += message.data
                return
            self._is_replay = message.is_replay
            held, model.held = model.held, b""
            model.feed(message.seq, held + message.data, now)
            self._fed.add(message.model)
            if self._unsaved(message.model, model) >= _BUSY_CHECKPOINT_BYTES:
                self._save(message.model, model)
        elif isinstance(message, messages.Size):
            model.resize(message.columns, message.rows, message.resizes)
        elif isinstance(message, messages.Miss):
            model.missed(message.seq)
        elif isinstance(message, messages.Exit):
            model.exited(message.seq, message.exit_code, now)
        elif isinstance(message, messages.Cancel):
            model.cancel(message.call)
        else:
            self._drop(message.model)
        if model is not None:
            self._tell(message.model, model)

    def _open(self, message: messages.OpenModel, now: float) -> None:
        self._drop(message.model)
        model = ScreenModel(message.columns, message.rows, rebuilt=message.rebuilt, now=now)
        model.wanted = sorted(message.wanted)
        model.engine.on_answer = partial(self._reply, message.model)
        self._models[message.model] = model

    def _drop(self, number: int) -> None:
        model = self._models.pop(number, None)
        for numbers in (self._fed, self._waiting):
            numbers.discard(number)
        self._checkpointed.pop(number, None)
        self._rested_at.pop(number, None)
        if model is not None:
            model.close()

    def _reply(self, number: int, data: bytes) -> None:
        if not self._is_replay:
            self._send(messages.Reply(number, self._models[number].seq, data))

    def _ask(self, message: messages.Question, model: ScreenModel | None, now: float) -> None:
        try:
            if model is None:
                raise InvalidRequest("the terminal has no model")
            if message.what == "wait":
                model.wait(message.call, _decode_wait(message.params), now)
                return
            if message.what == "screen":
                answer = _encode_json(model.screen(_decode_screen(message.params)))
            else:
                answer = _dump(model, int(message.params or b"0"))
        except RpcError as exc:
            self._answer_error(message.call, exc)
        except Exception as exc:
            self._answer_error(message.call, InternalError(f"{type(exc).__name__}: {exc}"))
        else:
            self._answer(message.call, answer)

    def _tell(self, number: int, model: ScreenModel) -> None:
        """Send the answers of waits that have ended."""
        answers, model.answers = model.answers, []
        for call, answer in answers:
            if isinstance(answer, RpcError):
                self._answer_error(call, answer)
            else:
                self._answer(call, _encode_json(answer))
        if model.waits:
            self._waiting.add(number)
        else:
            self._waiting.discard(number)

    # Time.

    def _timeout(self) -> float | None:
        times = [self._models[number].next_deadline() for number in self._waiting]
        known = [at for at in times if at is not None]
        if not known:
            return None
        return min(max(0.0, min(known) - time.monotonic()), _MAX_SELECT_SECONDS)

    def _expire(self) -> None:
        now = time.monotonic()
        for number in tuple(self._waiting):
            with self._failing_alone(number):
                model = self._models[number]
                model.expire(now)
                self._tell(number, model)

    def _checkpoint(self) -> None:
        """Nothing is to do: save what can be made again only from much output."""
        while self._fed:
            number = self._fed.pop()
            model = self._models[number]
            with self._failing_alone(number):
                model.settle()
                if self._unsaved(number, model) < _CHECKPOINT_BYTES:
                    continue
                self._save(number, model)
            return

    def _unsaved(self, number: int, model: ScreenModel) -> int:
        """The bytes that it was fed with since its last checkpoint."""
        return model.fed_bytes - self._checkpointed.get(number, 0)

    def _save(self, number: int, model: ScreenModel) -> None:
        if time.monotonic() < self._rested_at.get(number, 0.0):
            return
        self._checkpointed[number] = model.fed_bytes
        model.settle()
        began = time.thread_time()
        dump = model.engine.dump(history=200)
        took = time.thread_time() - began
        self._rested_at[number] = time.monotonic() + _CHECKPOINT_REST * took
        if len(dump) > _MAX_CHECKPOINT_BYTES:
            dump = model.engine.dump()
        if len(dump) <= _MAX_CHECKPOINT_BYTES and not model.is_inexact:
            self._send(messages.Checkpoint(number, model.seq, dump))

    # Answers.

    def _answer(self, call: int, answer: bytes) -> None:
        for at in range(0, len(answer) or 1, PART_BYTES):
            part = answer[at : at + PART_BYTES]
            self._send(messages.AnswerPart(call, part, at + PART_BYTES >= len(answer)))

    def _answer_error(self, call: int, error: RpcError) -> None:
        self._send(messages.AnswerPart(call, error.message.encode()[:PART_BYTES], True, error.code))

    def _send(self, message: messages.FromHost) -> None:
        self._sock.send(messages.encode(message))


def _dump(model: ScreenModel, history: int) -> bytes:
    """A line with the facts about the dump, and the dump."""
    model.settle()
    engine = model.engine
    facts = (model.seq, engine.rows, engine.columns, model.version, model.is_inexact)
    return _encode_json(facts) + b"\n" + engine.dump(history=history)


def main() -> None:
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=sys.stdin.fileno())
        ScreenHost(sock).run()
    except (BrokenPipeError, ConnectionResetError):
        # The server is gone.
        pass
    except Exception as exc:
        # The server logs this line.
        sys.exit(f"{type(exc).__name__}: {exc}")


if __name__ == "__main__":
    main()
