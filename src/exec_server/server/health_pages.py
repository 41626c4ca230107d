"""What a server answers to HTTP besides upgrades: `/healthz`, `/readyz` and `/metrics`."""

from __future__ import annotations

from collections.abc import Callable

from exec_server.errors import InternalError
from exec_server.server.server import ExecServer
from exec_server.transport.http_front import HttpAnswer, HttpPage


def health_pages(core: ExecServer) -> dict[str, HttpPage]:
    """The pages that need no token: monitors have none, and they tell no secret."""

    def ready() -> HttpAnswer:
        try:
            # This does nothing while the keeper runs.
            core.spawner.start()
        except InternalError as exc:
            return HttpAnswer(503, f"commands cannot be started: {exc}\n")
        return HttpAnswer(200)

    return {
        "/healthz": HttpPage(lambda: HttpAnswer(200, "ok\n")),
        "/readyz": HttpPage(ready, methods=("GET", "HEAD")),
    }


def metrics_page(text: Callable[[], str]) -> HttpPage:
    """The page `/metrics`, which needs a token if clients need one."""
    from exec_server.prometheus import CONTENT_TYPE

    headers = (("Content-Type", CONTENT_TYPE),)
    return HttpPage(lambda: HttpAnswer(200, text(), headers), needs_token=True)
