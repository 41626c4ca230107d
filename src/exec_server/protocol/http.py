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
    # A variable of the server's environment, whose value is put behind `value`.
    value_env_var: str | None = None

    def __repr__(self) -> str:
        # Values may be credentials.
        return f"RequestHeader({self.name!r})"


class Header(msgspec.Struct, rename="camel", frozen=True):
    name: str
    value: str


class RequestParams(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    method: str
    url: str
    headers: list[RequestHeader] = msgspec.field(default_factory=list)
    body_base64: Blob | None = None
    # For the whole exchange, redirects and body included; None waits for ever.
    timeout_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None
    redirect_policy: RedirectPolicy = "follow"
    # Names the body's deltas when it is streamed.
    request_id: str
    stream_response: bool = False

    def __post_init__(self) -> None:
        if not fits_u64(self.timeout_ms):
            raise ValueError("invalid number: more than 64 bits")


class RequestResult(msgspec.Struct, rename="camel"):
    status: int
    # Names in lower case, those of a name together.
    headers: list[Header]
    # Empty when the body is streamed.
    body_base64: Blob = _NO_BODY


class BodyDelta(msgspec.Struct, rename="camel"):
    request_id: str
    # From 1 on, without gaps.
    seq: int
    delta_base64: Blob
    # The last one: nothing follows, and `error` says whether the body is whole.
    done: bool = False
    error: str | None = None


REQUEST = Method("http/request", RequestParams, RequestResult, family="http")
BODY_DELTA = Event("http/request/bodyDelta", BodyDelta)
