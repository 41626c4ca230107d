"""The answers of requests that are refused."""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec

from exec_server.protocol.registry import (
    AUTHENTICATION_UNAVAILABLE,
    REGISTER,
    REJECTION_REASON_HEADER,
    RENDEZVOUS_PATH,
)

_RETRY_SECONDS = 1, 3


class RegistryRefusal(Exception):
    """A request is refused. The body of the answer has *code* and *message*."""

    def __init__(
        self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})

    @property
    def body(self) -> bytes:
        return msgspec.json.encode({"error": {"code": self.code, "message": self.message}})


# The status of each reason. The reasons have the names of OpenAI Codex's own `codex exec-server`
# ("the reference"). Its executors register again after any 4xx. Its harnesses ask for a new URL
# only after a 401, so a refusal that a new URL would cure is a 401.
_STATUS = {
    "malformed_query": 400,
    "unknown_route": 404,
    "expired": 401,
    "route_unavailable": 503,
    "pod_draining": 503,
}


def no_socket(reason: str, *, status: int | None = None) -> RegistryRefusal:
    """The refusal of a rendezvous socket, for a reason that the reference knows."""
    status = status or _STATUS.get(reason, 403)
    return RegistryRefusal(
        status,
        reason,
        f"the rendezvous refuses: {reason.replace('_', ' ')}",
        headers={REJECTION_REASON_HEADER: reason, **(_later() if status == 503 else {})},
    )


def put_off(path: str, code: str, message: str) -> RegistryRefusal:
    """The refusal of a request that may succeed later."""
    if path.startswith(RENDEZVOUS_PATH):
        return no_socket("route_unavailable")
    if path.endswith(f"/{REGISTER}"):
        # This is the only answer after which the reference's executor registers again; after any
        # other one it exits.
        return RegistryRefusal(502, AUTHENTICATION_UNAVAILABLE, message, headers=_later())
    return RegistryRefusal(503, code, message, headers=_later())


def _later() -> dict[str, str]:
    """A random pause, so that not all callers come back at the same time."""
    return {"Retry-After": str(random.randint(*_RETRY_SECONDS))}
