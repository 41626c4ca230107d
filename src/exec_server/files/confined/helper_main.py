"""The helper process: it answers calls on the socket that is its stdin until the server is gone.

The sandbox is in force before this module runs. The helper's arguments are names that it does not
make or change, because nothing is mounted there; see `operations.changes`.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec

from exec_server.errors import InternalError, RpcError
from exec_server.files.confined import packets, work
from exec_server.files.confined.interpreter import HIDDEN
from exec_server.files.confined.packets import FileContent, HelperAnswer, HelperCall
from exec_server.files.operations import changes
from exec_server.files.operations.oserrors import rpc_error
from exec_server.files.operations.table import OpenedFile
from exec_server.own_interpreter import hide

# The number of long tasks that run at a time; further ones wait.
_THREADS = 4
# A helper sends this once, before any answer, when it can take calls.
READY = b"ready"

_decode = msgspec.msgpack.Decoder(HelperCall).decode
_encode = msgspec.msgpack.Encoder().encode


class HelperServer:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sending = threading.Lock()

    def run(self) -> None:
        self._send(READY, None)
        with ThreadPoolExecutor(_THREADS) as threads:
            while True:
                packet, fd = packets.receive(self._sock)
                if not packet:
                    return
                call = _decode(packet)
                if work.is_short(call):
                    self._answer(call, fd)
                else:
                    threads.submit(self._answer, call, fd)

    def _answer(self, call: HelperCall, fd: int | None) -> None:
        try:
            content = call.content if fd is None else FileContent(fd)
            result = work.perform(call, content)
        except Exception as exc:
            error = _as_rpc_error(exc)
            text = error.message.encode("utf-8", "surrogatepass")[: packets.INLINE_BYTES]
            answer = HelperAnswer(call.id, text, error.code, details=error.details())
            self._send(_encode(answer), None)
        else:
            self._send_result(call.id, result)
        finally:
            if fd is not None:
                os.close(fd)

    def _send_result(self, call_id: int, result: tuple[bytes, ...] | OpenedFile) -> None:
        if isinstance(result, OpenedFile):
            attached, answer = result.fd, HelperAnswer(call_id, b"", is_opened=True)
        elif sum(map(len, result)) > packets.INLINE_BYTES:
            attached, answer = _file_of(result), HelperAnswer(call_id, b"")
        else:
            self._send(_encode(HelperAnswer(call_id, b"".join(result))), None)
            return
        try:
            self._send(_encode(answer), attached)
        finally:
            os.close(attached)

    def _send(self, packet: bytes, fd: int | None) -> None:
        with self._sending:
            packets.send(self._sock, packet, fd)


def _as_rpc_error(exc: Exception) -> RpcError:
    if isinstance(exc, RpcError):
        return exc
    if isinstance(exc, OSError):
        return rpc_error(exc)
    return InternalError(f"fs sandbox helper failed: {type(exc).__name__}")


def _file_of(parts: tuple[bytes, ...]) -> int:
    fd = os.memfd_create("result", os.MFD_CLOEXEC)
    for part in parts:
        view = memoryview(part)
        while view:
            view = view[os.write(fd, view) :]
    return fd


def main() -> None:
    try:
        if os.environ.get(HIDDEN):
            hide()
        # The type is given, because the sandbox's filter refuses to ask the kernel for it.
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=sys.stdin.fileno())
        changes.keep_closed(map(os.fsencode, sys.argv[1:]))
        HelperServer(sock).run()
    except (BrokenPipeError, ConnectionResetError):
        # The server is gone, so there is nothing left to answer.
        pass
    except Exception as exc:
        # The server passes this one line on to the client.
        sys.exit(f"{type(exc).__name__}: {exc}")


if __name__ == "__main__":
    main()
