"""httpx code that reaches the network from the server's machine; needs httpx (`[httpx]`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx

from exec_server.client.http.httpx_carrier import HttpxCarrier

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient


class ExecutorTransport(HttpxCarrier, httpx.AsyncBaseTransport):
    """Give it to `httpx.AsyncClient(transport=...)`; the client stays the caller's to close."""

    def __init__(self, client: ExecServerClient) -> None:
        super().__init__(client, httpx)
