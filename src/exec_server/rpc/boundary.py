"""The only place where params and results are decoded, and exceptions become error bodies."""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from exec_server.errors import InternalError, InvalidParams, ProtocolError, RpcError
from exec_server.protocol.hooks import decode_hook, encode_hook
from exec_server.protocol.method import NOTHING, Nothing, is_unit

logger = logging.getLogger(__name__)

T = TypeVar("T")

_MISSING = r"^Object missing required field (`[^`]*`)(.*)"


# The operating system has no more of something; the client is told of what.
_LACKS = frozenset(
    (
        errno.EMFILE,
        errno.ENFILE,
        errno.EAGAIN,
        errno.ENOMEM,
        errno.ENOBUFS,
        errno.ENOSPC,
        errno.EDQUOT,
    )
)


class ErrorBody(NamedTuple):
    code: int
    message: str


def decode_params(shape: type[T], params: Any) -> T:
    """Decode *params* as *shape*; raise InvalidParams that says what is wrong."""
    if shape is Nothing:
        # The usual case first; `is_unit` says what else counts as nothing.
        if params == {} or is_unit(params):
            return NOTHING  # type: ignore[return-value]
        raise InvalidParams(f"invalid type: {type(params).__name__}, expected unit")
    try:
        return msgspec.convert(params, shape, dec_hook=decode_hook)
    except msgspec.ValidationError as exc:
        raise InvalidParams(re.sub(_MISSING, r"missing field \1\2", str(exc))) from exc


def decode_result(shape: type[T], result: Any) -> T:
    """Decode a peer's *result* as *shape*; raise ProtocolError that says what is wrong."""
    if shape is Nothing:
        return NOTHING  # type: ignore[return-value]
    try:
        return msgspec.convert(result, shape, dec_hook=decode_hook)
    except msgspec.ValidationError as exc:
        raise ProtocolError(f"an answer of the wrong shape: {exc}") from exc


# Encodes a result or parameters as JSON.
encode: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=encode_hook).encode


def error_body(exc: BaseException, *, method: str) -> ErrorBody:
    """The error that the peer is told. Only an RpcError is told in its own words."""
    if isinstance(exc, RpcError):
        return ErrorBody(exc.code, exc.message)
    lack = _lack_of_resources(exc)
    if lack is not None:
        logger.warning("%s failed: %s", method, lack)
        return ErrorBody(InternalError.code, lack)
    logger.error("%s failed", method, exc_info=exc)
    return ErrorBody(InternalError.code, "internal error")


def _lack_of_resources(exc: BaseException) -> str | None:
    """The system's text if *exc* says that it has no room for more; None for other faults."""
    number: int | None = None
    if isinstance(exc, OSError) and exc.errno in _LACKS:
        number = exc.errno
    elif isinstance(exc, MemoryError):
        number = errno.ENOMEM
    elif isinstance(exc, RuntimeError) and "can't start new thread" in str(exc):
        number = errno.EAGAIN
    return None if number is None else f"{os.strerror(number)} (os error {number})"
