"""A transport for httpx: requests are made by the server's machine. Needs httpx (`[httpx]`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx

from exec_server.client.http.httpx_carrier import HttpxCarrier

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient


class ExecutorTransport(HttpxCarrier, httpx.AsyncBaseTransport):
    """Pass it to `httpx.AsyncClient(transport=...)`; it does not close the exec-server client."""

    def __init__(self, client: ExecServerClient) -> None:
        super().__init__(client, httpx)
