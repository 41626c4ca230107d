"""Forwards as people write them: `-L 8080:localhost:3000`, in the manner of ssh."""

from __future__ import annotations

import argparse
import re
from typing import Literal, NamedTuple

from exec_server.client.streams.stream_place import StreamPlace
from exec_server.errors import ConfigurationError

ForwardKind = Literal["local", "remote", "socks", "preview"]

_PARTS = re.compile(r"\[([^\]]*)\]|([^:\[\]]*)")
_EVERYWHERE = ("", "*")
_SOCKS_FORMS = "expected [BIND:]PORT or a path"
_FORMS = "expected [BIND:]PORT:HOST:PORT, PORT:PORT, PORT, or a path in place of BIND:PORT"


class ForwardSpec(NamedTuple):
    """One forward: where is listened, and where connections lead."""

    kind: ForwardKind
    listen: StreamPlace
    to: StreamPlace | None = None


def local_spec(text: str) -> ForwardSpec:
    """`-L`: listen here, connect there."""
    listen, to = _both(text)
    return ForwardSpec("local", listen, to)


def remote_spec(text: str) -> ForwardSpec:
    """`-R`: listen there, connect here."""
    listen, to = _both(text)
    return ForwardSpec("remote", listen, to)


def socks_spec(text: str) -> ForwardSpec:
    """`-D`: a SOCKS5 proxy here."""
    return ForwardSpec("socks", _listen(_split(text, _SOCKS_FORMS), text, _SOCKS_FORMS))


def preview_spec(text: str) -> ForwardSpec:
    """`--open`: a web page of a port there."""
    port = _destination(text, text, "expected the number of a port there")
    return ForwardSpec("preview", StreamPlace("127.0.0.1", 0), StreamPlace("localhost", port))


def preview_port(text: str) -> int:
    """`--preview-port`: a port of this machine."""
    return _port(text, text, "expected the number of a port here")


def _both(text: str) -> tuple[StreamPlace, StreamPlace]:
    parts = _split(text)
    if len(parts) == 1 and not parts[0].startswith("/"):
        port = _destination(parts[0], text)
        return StreamPlace("localhost", port), StreamPlace("localhost", port)
    if parts[-1].startswith("/"):
        return _listen(parts[:-1], text), _unix(parts[-1])
    port = _destination(parts[-1], text)
    if len(parts) == 2:
        return _listen(parts[:1], text), StreamPlace("localhost", port)
    if not parts[-2]:
        raise argparse.ArgumentTypeError(f"`{text}` has no host; {_FORMS}")
    return _listen(parts[:-2], text), StreamPlace(parts[-2], port)


def _listen(parts: list[str], text: str, forms: str = _FORMS) -> StreamPlace:
    if len(parts) == 1:
        if parts[0].startswith("/"):
            return _unix(parts[0])
        return StreamPlace("localhost", _port(parts[0], text, forms))
    if len(parts) != 2:
        raise argparse.ArgumentTypeError(f"`{text}` is not a forward; {forms}")
    host = "0.0.0.0" if parts[0] in _EVERYWHERE else parts[0]
    return StreamPlace(host, _port(parts[1], text, forms))


def _unix(path: str) -> StreamPlace:
    try:
        return StreamPlace.unix(path)
    except ConfigurationError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def _port(text: str, whole: str, forms: str = _FORMS) -> int:
    if text.isascii() and text.isdigit() and int(text) <= 65535:
        return int(text)
    where = "" if text == whole else f"`{whole}`: "
    raise argparse.ArgumentTypeError(f"{where}`{text}` is not a port; {forms}")


def _destination(text: str, whole: str, forms: str = _FORMS) -> int:
    """A port to connect to. The system can choose one to listen on alone."""
    port = _port(text, whole, forms)
    if port == 0:
        raise argparse.ArgumentTypeError(f"`{whole}`: 0 is not the port of a server")
    return port


def _split(text: str, forms: str = _FORMS) -> list[str]:
    """The parts between colons; an IPv6 address is in brackets."""
    parts, at = [], 0
    while True:
        found = _PARTS.match(text, at)
        assert found is not None
        parts.append(found[2] if found[1] is None else found[1])
        at = found.end()
        if at == len(text):
            return parts
        if text[at] != ":":
            raise argparse.ArgumentTypeError(f"`{text}` is not a forward; {forms}")
        at += 1
