"""`http/request` over a raw connection."""

from __future__ import annotations

import base64
from typing import Any

from tests.support.wire import Wire


def request_params(url: str, method: str = "GET", **params: Any) -> dict[str, Any]:
    return {"method": method, "url": url, "requestId": "r", **params}


async def ask(wire: Wire, url: str, method: str = "GET", **params: Any) -> dict[str, Any]:
    """The result, or the error, of one request."""
    answer = await wire.answer(
        await wire.request("http/request", request_params(url, method, **params))
    )
    outcome: dict[str, Any] = answer["result"] if "result" in answer else answer["error"]
    return outcome


async def deltas(wire: Wire, request_id: str = "r") -> list[dict[str, Any]]:
    """Every delta of a stream, up to the last."""
    found: list[dict[str, Any]] = []
    while not found or not found[-1]["done"]:
        found.append(await next_delta(wire, request_id))
    return found


async def next_delta(wire: Wire, request_id: str = "r") -> dict[str, Any]:
    def is_it(message: dict[str, Any]) -> bool:
        params = message.get("params") or {}
        return (
            message.get("method") == "http/request/bodyDelta"
            and params.get("requestId") == request_id
        )

    params: dict[str, Any] = (await wire.find(is_it))["params"]
    return params


def body_of(found: list[dict[str, Any]]) -> bytes:
    return b"".join(base64.b64decode(delta["deltaBase64"]) for delta in found)


def body(result: dict[str, Any]) -> bytes:
    return base64.b64decode(result["bodyBase64"])


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()
