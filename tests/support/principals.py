"""A file of principals, and connections of each of them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from exec_server.access.principal import Scope, read_scopes
from exec_server.access.principal_record import PrincipalRecord
from exec_server.access.principals_file import PrincipalsFile
from exec_server.access.token_secrets import digest_of, new_secret
from exec_server.limits import DEFAULT_LIMITS
from tests.support.wire import Wire

# Detached sessions stay for the whole test; changes of the file are seen soon.
LIMITS = msgspec.structs.replace(
    DEFAULT_LIMITS, orphan_grace=0.2, principals_check_seconds=0.02, detached_session_seconds=600.0
)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class MadePrincipals:
    """Principals in a file below *folder*, each with a token."""

    def __init__(self, folder: Path) -> None:
        self.file = PrincipalsFile(folder / "principals.sqlite3")
        self.tokens: dict[str, str] = {}

    @property
    def path(self) -> Path:
        return self.file.path

    def add(self, name: str, may: str = "all", **members: Any) -> str:
        """Add a principal; returns its token."""
        token = self.tokens[name] = new_secret()
        scopes: frozenset[Scope] = read_scopes(may) if may else frozenset()
        members = {"digest": digest_of(token), "created_at": time.time(), **members}
        self.file.add(PrincipalRecord(name=name, may=scopes, **members))
        return token

    def change(self, name: str, **members: Any) -> None:
        before = self.file.find(name)
        self.file.replace(msgspec.structs.replace(before, **members), before=before)

    def wire(self, url: str, name: str) -> Wire:
        """A connection of the principal called *name*."""
        return Wire(url, headers=bearer(self.tokens[name]))
