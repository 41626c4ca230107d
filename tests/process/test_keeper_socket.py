"""The server's end of the socket to a keeper."""

from __future__ import annotations

import asyncio
import marshal
import os
import socket
from typing import Any

from exec_server.process.keeper_socket import KeeperSocket
from tests.support.wire import PATIENCE


def framed(*message: Any) -> bytes:
    data = marshal.dumps(message, 4)
    return len(data).to_bytes(4, "big") + data


async def test_a_message_that_cannot_be_handled_keeps_no_other_one_back():
    """Neither later messages nor their descriptors are affected."""
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    faults: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: faults.append(context))
    got: list[tuple[Any, list[int]]] = []
    has_all = asyncio.Event()

    def handle(message: tuple[Any, ...]) -> None:
        if message[0] == "bad":
            raise LookupError(message[1])
        got.append((message[0], link.take_fds() if message[0] == "file" else []))
        if message[0] == "last":
            has_all.set()

    first, second = os.pipe()
    with theirs:
        theirs.sendall(framed("bad", 1) + framed("one"))
        socket.send_fds(theirs, [framed("bad", 2)], [first])
        # The kernel joins these two.
        theirs.sendall(framed("two"))
        socket.send_fds(theirs, [framed("file")], [second])
        theirs.sendall(framed("last"))
        link = KeeperSocket(
            ours, on_message=handle, on_lost=lambda: None, on_refused=lambda *_: None
        )
        async with asyncio.timeout(PATIENCE):
            await has_all.wait()
        link.close()
    assert [kind for kind, _ in got] == ["one", "two", "file", "last"]
    assert [str(fault["exception"]) for fault in faults] == ["1", "2"]
    ((fd,),) = (fds for kind, fds in got if kind == "file")
    assert os.fstat(fd).st_ino == os.fstat(second).st_ino
    os.set_blocking(fd, False)
    # It is the end for writing: the descriptor of the message that failed was closed.
    os.write(fd, b"x")
    assert os.read(first, 1) == b"x"
    for each in (fd, first, second):
        os.close(each)
    loop.set_exception_handler(None)
