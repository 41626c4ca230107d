"""`http/request` and the notifications that carry a streamed body: shapes and names."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from exec_server.protocol.base64 import Blob
from exec_server.protocol.method import Event, Method
from exec_server.protocol.numbers import fits_u64

RedirectPolicy = Literal["follow", "stop"]

_NO_BODY = Blob(b"")


class RequestHeader(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str
    value: str
    # A variable of the server's environment; its value is appended to `value`.
    value_env_var: str | None = None

    def __repr__(self) -> str:
        # The value is left out, because it may be a credential.
        return f"RequestHeader({self.name!r})"


class Header(msgspec.Struct, rename="camel", frozen=True):
    name: str
    value: str


class RequestParams(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    method: str
    url: str
    headers: list[RequestHeader] = msgspec.field(default_factory=list)
    body_base64: Blob | None = None
    # The limit for the whole exchange with redirects and body; None is no limit.
    timeout_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None
    redirect_policy: RedirectPolicy = "follow"
    # The `requestId` of the body's notifications when it is streamed.
    request_id: str
    stream_response: bool = False

    def __post_init__(self) -> None:
        if not fits_u64(self.timeout_ms):
            raise ValueError("invalid number: more than 64 bits")


class RequestResult(msgspec.Struct, rename="camel"):
    status: int
    # The names are in lower case; headers of the same name follow one another.
    headers: list[Header]
    # This is empty when the body is streamed.
    body_base64: Blob = msgspec.field(default_factory=lambda: _NO_BODY)


class BodyDelta(msgspec.Struct, rename="camel"):
    request_id: str
    # Numbers start at 1 and have no gaps.
    seq: int
    delta_base64: Blob
    # True in the last delta; the body is complete unless `error` is set.
    done: bool = False
    error: str | None = None


# Makes an HTTP request on the server's machine.
REQUEST = Method(
    "http/request", RequestParams, RequestResult, family="http", dialect="undocumented"
)
# A piece of the body of an answer that is streamed.
BODY_DELTA = Event("http/request/bodyDelta", BodyDelta, dialect="undocumented")
