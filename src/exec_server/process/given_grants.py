"""Grants that a start brings along: those of earlier records, which a client has remembered."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable

from exec_server.errors import InvalidParams
from exec_server.protocol.denials import NETWORK_GRANT
from exec_server.protocol.permissions import PROTECTED_NAMES

# More grants than this are a mistake; each path is a mount.
_MOST = 64
_SOCKET = "unix:"
_NEVER_GRANTED = ("proc", "sys", "dev")


def given_grants(texts: Iterable[str]) -> dict[bytes, str]:
    """The targets of *texts*, each with its kind, as the launcher keeps those of a session.

    Only the grants of records are accepted. Protected names are no part of one; the files of the
    server are closed by every sandbox. Raises InvalidParams.
    """
    found: dict[bytes, str] = {}
    for text in texts:
        if text == NETWORK_GRANT:
            found[b"on"] = "network"
            continue
        kind, _, target = text.partition("=")
        path = target.removeprefix(_SOCKET) if kind == "socket" else target
        is_known = kind in ("write", "read") or (kind == "socket" and target.startswith(_SOCKET))
        if not is_known or not _is_grantable(path):
            raise InvalidParams(f"`{text:.200}` is no grant of a record")
        try:
            found[os.fsencode(target)] = kind
        except UnicodeEncodeError:
            raise InvalidParams("a grant is no text") from None
        if len(found) > _MOST:
            raise InvalidParams(f"more than {_MOST} grants")
    return found


def _is_grantable(path: str) -> bool:
    names = path.split("/")
    is_absolute = len(names) > 1 and not names[0] and names[1] not in ("", *_NEVER_GRANTED)
    is_normal = posixpath.normpath(path) == path and "\0" not in path
    return is_absolute and is_normal and set(PROTECTED_NAMES).isdisjoint(names)
