"""What a server answers to HTTP besides upgrades: `/healthz`, `/readyz` and `/metrics`."""

from __future__ import annotations

from collections.abc import Callable

from exec_server.errors import InternalError
from exec_server.server.server import ExecServer
from exec_server.transport.http_front import HttpAnswer, HttpPage


def ready_page(core: ExecServer) -> HttpPage:
    """The page `/readyz`, which the reference has, too. It needs no token."""

    def ready() -> HttpAnswer:
        try:
            # This does nothing while the keeper runs.
            core.spawner.start()
        except InternalError as exc:
            return HttpAnswer(503, f"commands cannot be started: {exc}\n")
        return HttpAnswer(200)

    return HttpPage(ready, methods=("GET", "HEAD"))


def monitoring_pages(metrics: Callable[[], str], *, is_open: bool) -> dict[str, HttpPage]:
    """The pages that have to be asked for: the reference answers 404 to these paths.

    `/metrics` needs a token if clients need one. If it *is_open*, without token and TLS, a web page
    must not reach it under a name of its own. Monitors have no token for `/healthz`.
    """
    from exec_server.prometheus import CONTENT_TYPE

    headers = (("Content-Type", CONTENT_TYPE),)
    return {
        "/healthz": HttpPage(lambda: HttpAnswer(200, "ok\n")),
        "/metrics": HttpPage(
            lambda: HttpAnswer(200, metrics(), headers), needs_token=True, needs_address=is_open
        ),
    }
