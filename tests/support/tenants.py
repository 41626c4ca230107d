"""Servers whose connections belong to principals of a test's own choice."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from exec_server.access.principal import Floors, Principal, Quotas, unrestricted
from exec_server.server.serving import RunningServer, serve
from exec_server.transport.connection import Connection


class Refusals(list[tuple[str, str, str]]):
    """Every refusal that the server told of: principal, method and rule."""

    def note(self, who: Principal, method: str, rule: str) -> None:
        self.append((who.name, method, rule))


class Tenants:
    """Says whose the next connections are: of `who`, or without restrictions."""

    def __init__(self) -> None:
        self.who: Principal | None = None

    def find(self, connection: Connection) -> Principal:
        return self.who or unrestricted("operator")


def principal(name: str = "ci", *, quotas: Quotas | None = None, **floors: Any) -> Principal:
    return Principal(name=name, floors=Floors(**floors), quotas=quotas or Quotas())


@contextlib.asynccontextmanager
async def serving(
    who: Principal | None = None, **options: Any
) -> AsyncIterator[tuple[RunningServer, Tenants, Refusals]]:
    """A server in this process; all connections are of *who* until `Tenants.who` is changed."""
    tenants, refusals = Tenants(), Refusals()
    tenants.who = who
    async with serve(find_principal=tenants.find, **options) as running:
        running.core.on_rule_refused = refusals.note
        yield running, tenants, refusals


def uri(path: object) -> str:
    return f"file://{path}"


def environment(**values: str) -> Mapping[str, str]:
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", **values}
