"""What a principal was refused, as the log and an audit are told."""

from __future__ import annotations

import msgspec

from exec_server.access.principal import Scope


class RefusedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One refusal."""

    principal: str
    # The address of its client.
    peer: str
    # The method, or what else it has tried.
    what: str
    # The scope that it lacks; None if it has tried to use what belongs to another principal.
    scope: Scope | None = None

    def __str__(self) -> str:
        why = "it belongs to another principal" if self.scope is None else f"it needs {self.scope}"
        return f"principal `{self.principal}` from {self.peer} was refused {self.what}: {why}"
