"""Ask a server for a WebSocket, and print the status of its answer and the text behind it.

calls_a_server.py ADDRESS [uid=N] [token=T] [trick=NAME] [lines] [through=PROXY_PORT,...]

The address is HOST:PORT, or the path of a Unix socket. The tricks hide who makes the connection:
`in-flight` leaves it in no process for a while, `grandchild` makes it in a process whose parents
have ended. With `lines` plain JSON is sent in place of an upgrade.
"""

import os
import socket
import sys
import time


def connect(address):
    if address.startswith("/"):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address)
        return sock
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    sock.connect((host.strip("[]"), int(port)))
    return sock


def through(ports, address):
    first, *others = [f"127.0.0.1:{port}" for port in ports.split(",")]
    sock = connect(first)
    for place in (*others, address):
        ask_proxy(sock, place)
    return sock


def ask_proxy(sock, address):
    sock.sendall(f"CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = sock.recv(1)
        if not byte:
            sys.exit("the proxy refused: " + head.decode())
        head += byte


def in_flight(sock):
    """Let no process have *sock* open while the server looks at it."""
    ours, theirs = socket.socketpair()
    socket.send_fds(ours, [b"x"], [sock.fileno()])
    sock.close()
    time.sleep(0.5)
    _, fds, _, _ = socket.recv_fds(theirs, 1, 1)
    return socket.socket(fileno=fds[0])


def grandchild():
    """Go on in a process whose parents have ended; the first one waits for it to print."""
    done, say = os.pipe()
    if os.fork():
        os.close(say)
        os.read(done, 1)
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)


def main():
    address, *rest = sys.argv[1:]
    options = dict(word.partition("=")[::2] for word in rest)
    if "uid" in options:
        os.setgroups([])
        os.setuid(int(options["uid"]))
    if options.get("trick") == "grandchild":
        grandchild()
    if "through" in options:
        sock = through(options["through"], address)
    else:
        sock = connect(address)
    if options.get("trick") == "in-flight":
        sock = in_flight(sock)
    sock.settimeout(10)
    head = "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    head += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    if "token" in options:
        head += f"Authorization: Bearer {options['token']}\r\n"
    request = (head + "\r\n").encode()
    if "lines" in options:
        request = b'{"id":1,"method":"initialize","params":{"clientName":"x"}}\n'
    try:
        sock.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer and not answer.startswith(b"{"):
            data = sock.recv(65536)
            if not data:
                break
            answer += data
    except (ConnectionError, TimeoutError) as exc:
        answer = type(exc).__name__.encode()
    words = answer.split(b"\r\n")
    print(words[0].decode() or "closed", "|", words[-1].decode(), flush=True)


main()
