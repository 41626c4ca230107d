"""Decode and encode JSON-RPC messages of all four kinds, and refuse harmful ones early.

msgspec checks the grammar, UTF-8 and surrogates. This module checks repeated keys, the number of
values and the depth. Counting bytes is enough to accept most messages. For the others the values
are counted exactly in the message's skeleton, which is the text without its strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from exec_server.errors import MalformedMessage
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.protocol.base64 import Base64Error, Blob, LongBase64, decode_base64
from exec_server.protocol.bulk import (
    AROUND_BYTES,
    BACKSLASH,
    MARK,
    MARKERS,
    QUOTED,
    Cut,
    member_start,
)
from exec_server.protocol.hooks import encode_hook
from exec_server.protocol.packed import unpack

MALFORMED_ID = -1


_I64_MIN, _I64_MAX = -(1 << 63), (1 << 63) - 1

Id = Annotated[int, msgspec.Meta(ge=_I64_MIN, le=_I64_MAX)] | str


class Request(msgspec.Struct, gc=False):
    id: Id
    method: str
    params: Any = None
    trace: Any = None
    # The size of the message in bytes, by which waiting requests are bounded.
    size: Any = 0


class Notification(msgspec.Struct, gc=False):
    method: str
    params: Any


class Response(msgspec.Struct, gc=False):
    id: Any
    result: Any


class ErrorResponse(msgspec.Struct, gc=False):
    id: Any
    code: int
    message: str
    # The optional member `data`, if it is an object with something in it.
    data: dict[str, Any] | None = None


Message = Request | Notification | Response | ErrorResponse

# From this size on, cutting a member out costs less than checking every byte of it.
_BULK_BYTES = 1024
# From this size on the bytes stay in pieces. It is above the largest block of a file.
_LONG_BYTES = 2 * 1024 * 1024

# Without the hook msgspec refuses numbers that are too large for a double; JSON allows them.
_decode = msgspec.json.Decoder(float_hook=float).decode
# This is faster than a dictionary of the members, and gives no proof of which members there were.
_decode_request = msgspec.json.Decoder(Request, float_hook=float).decode
_encode = msgspec.json.Encoder().encode
encode_shape: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=encode_hook).encode
_SPACED_COLON = re.compile(rb"[ \t\r\n]:")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BLANKS = b" \t\r\n"
_CONTAINERS = (dict, list)
_COLON, _BRACKET = ord(":"), ord("[")
_PACKED = bytes((MARK,))


def decode(data: bytes | Cut, limits: Limits = DEFAULT_LIMITS) -> Message:
    """The message in *data*. Raises MalformedMessage for anything that is not exactly one."""
    return decoder(limits)(data)


def decoder(limits: Limits, *, takes_packed: bool = False) -> Callable[[bytes | Cut], Message]:
    """`decode` with these limits, and without the work that is the same for all messages.

    A packed message is malformed unless it *takes_packed* ones.
    """
    # A value with its separator has at least two bytes, so a short message has too few values.
    plain_bytes = min(_BULK_BYTES, 2 * limits.json_values - 1) if limits.json_depth >= 3 else -1
    decode_request = _decode_request

    def decode_message(data: bytes | Cut) -> Message:
        # In the usual form of a request there is no list, and all keys are those of the root and of
        # its params.
        text = data if type(data) is bytes else _around_bulk(data)
        if len(text) <= plain_bytes and _BRACKET not in text:
            try:
                request = decode_request(text)
            except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
                return decode_closely(data)
            params = request.params
            # Every key has a colon. An id, a method and params are there, so equal counts prove
            # that there are no other keys, that no key occurred twice, and that objects in the
            # params have no keys: the message is no deeper than three levels.
            if type(params) is dict and (
                text.count(_COLON) == (keys := 3 + len(params)) or _has_keys(text, keys)
            ):
                if text is data:
                    return request
                assert type(data) is Cut
                # Without escapes, the name before the cut is a key; all keys but three are those of
                # the params, and each is there once.
                if BACKSLASH not in text and params.get(data.name) == "":
                    params[data.name] = _bulk_of(data)
                    return request
        return decode_closely(data)

    def decode_closely(data: bytes | Cut) -> Message:
        if takes_packed and not isinstance(data, Cut) and data[:1] == _PACKED:
            return decode_message(unpack(data, limits=limits))
        return _decode_closely(data, limits)

    return decode_message


def _around_bulk(data: bytes | Cut) -> bytes:
    """The text of a request without its long member; one that is not plain for other messages."""
    return data.head + data.tail if type(data) is Cut and b'"id":' in data.head else b"["


def _bulk_of(data: Cut) -> Blob | LongBase64:
    return data.bulk if data.bulk.size > _LONG_BYTES else Blob(data.bulk.decode())


def _decode_closely(data: bytes | Cut, limits: Limits) -> Message:
    if type(data) is Cut:
        tree = _parse_around(data.head + data.tail, data.name, _bulk_of(data), limits)
        if tree is not None:
            return _classify(tree)
        data = data.text()
    assert not isinstance(data, Cut)
    tree = _decode_around_bulk(data, limits) if len(data) > _BULK_BYTES else None
    if tree is None:
        if has_too_many_values(data, limits):
            raise MalformedMessage(f"more than {limits.json_values} JSON values")
        tree = _parse(data, limits)
    if type(tree) is not dict:
        raise MalformedMessage("expected a JSON object")
    return _classify(tree)


def _parse(data: bytes, limits: Limits) -> Any:
    try:
        tree = _decode(data)
    except UnicodeDecodeError as exc:
        raise MalformedMessage("invalid UTF-8") from exc
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise MalformedMessage(str(exc)) from exc
    containers = data.count(b"{") + data.count(b"[")
    if containers > 2:
        # This comes first: whatever looks at the tree afterwards may be recursive.
        if containers > limits.json_depth and _depth(tree) > limits.json_depth:
            raise MalformedMessage(f"nested deeper than {limits.json_depth}")
        keys = _key_count(tree)
    else:
        # In the usual request only the root and its params have keys.
        params = tree.get("params") if type(tree) is dict else None
        keys = len(tree) + len(params) if type(params) is dict else _key_count(tree)
    # Every key has a colon, so equal counts prove that no key occurred twice.
    if (
        data.count(_COLON) != keys
        and not _has_keys(data, keys)
        and _skeleton(data).count(b":") != keys
    ):
        raise MalformedMessage("duplicate JSON object key")
    return tree


def _has_keys(data: bytes, count: int) -> bool:
    """True if a JSON text with at least *count* keys is proven to have no more of them."""
    # Paths as URIs have colons, too. If no colon has a blank before it, `":` occurs at least once
    # for each key; if it also occurs inside of strings, the counts differ.
    return data.count(b'":') == count and not (_has_blanks(data) and _SPACED_COLON.search(data))


def _has_blanks(data: bytes) -> bool:
    # Searching for an integer takes a third of the time of searching for bytes.
    return 0x20 in data or 0x0A in data or 0x09 in data or 0x0D in data


def _key_count(value: Any) -> int:
    if type(value) is dict:
        return len(value) + sum(_key_count(v) for v in value.values() if type(v) in _CONTAINERS)
    if type(value) is list:
        return sum(_key_count(v) for v in value if type(v) in _CONTAINERS)
    return 0


def _depth(value: Any) -> int:
    """The depth of nesting with the root. Not recursive, because the value may be very deep."""
    deepest, level = 0, [value]
    while level:
        level = [item for item in level if type(item) in _CONTAINERS]
        deepest += bool(level)
        level = [
            member for item in level for member in (item.values() if type(item) is dict else item)
        ]
    return deepest


def _skeleton(data: bytes) -> bytes:
    return _STRING.sub(b'"', data).translate(None, _BLANKS)


def has_too_many_values(data: bytes, limits: Limits) -> bool:
    """True if *data*, which is valid JSON, has more values than the limit."""
    # A value with its separator has at least two bytes.
    return len(data) >= 2 * limits.json_values and _value_count(data) > limits.json_values


def _value_count(data: bytes) -> int:
    """The number of values in valid JSON: the root, and for each container its commas plus one."""
    text = _skeleton(data)
    containers = text.count(b"[") + text.count(b"{") - text.count(b"[]") - text.count(b"{}")
    return 1 + text.count(b",") + containers


def _decode_around_bulk(data: bytes, limits: Limits) -> dict[str, Any] | None:
    """Parse around one long base64 member of the params or the result.

    Returns None if the message must be parsed as a whole.
    """
    for name, marker in MARKERS:
        # The member is mostly near the beginning, and a search through all the base64 is slow.
        start = member_start(data, marker, _BULK_BYTES // 2)
        if not start and len(data) > AROUND_BYTES:
            start = member_start(data, marker, AROUND_BYTES)
        end = data.find(b'"', start) if start else 0
        if end - start < _BULK_BYTES:
            continue
        try:
            text = memoryview(data)[start:end]
            bulk = LongBase64.of(text) if len(text) > _LONG_BYTES else Blob(decode_base64(text))
        except Base64Error:
            return None
        return _parse_around(data[:start] + data[end:], name, bulk, limits)
    return None


def _parse_around(
    rest: bytes, name: str, bulk: Blob | LongBase64, limits: Limits
) -> dict[str, Any] | None:
    """The message whose text is *rest* after the text of the member *name* was cut out of it.

    Returns None if it could also be another message.
    """
    # With one key of this name and no escapes, in which a second could hide, it is this key.
    if BACKSLASH in rest or rest.count(QUOTED[name]) != 1:
        return None
    if len(rest) > AROUND_BYTES or len(rest) > 2 * limits.json_values:
        return None
    try:
        tree = _parse(rest, limits)
    except MalformedMessage:
        return None
    inner = tree.get("params", tree.get("result")) if type(tree) is dict else None
    if type(inner) is not dict or inner.get(name) != "":
        return None
    inner[name] = bulk
    found: dict[str, Any] = tree
    return found


def _classify(tree: dict[str, Any]) -> Message:
    if "method" in tree:
        method = tree["method"]
        if type(method) is not str:
            raise MalformedMessage("method must be a string")
        if "id" not in tree:
            return Notification(method, tree.get("params"))
        trace = tree.get("trace")
        if trace is not None:
            _check_trace(trace)
        return Request(_checked_id(tree), method, tree.get("params"), trace)
    if "result" in tree:
        return Response(_checked_id(tree), tree["result"])
    return _error_response(tree)


def _checked_id(tree: dict[str, Any]) -> Any:
    value = tree.get("id")
    if type(value) is str or (type(value) is int and _I64_MIN <= value <= _I64_MAX):
        return value
    raise MalformedMessage("id must be a string or a 64-bit integer")


def _check_trace(trace: Any) -> None:
    if type(trace) is not dict:
        raise MalformedMessage("trace must be an object")
    for name in ("traceparent", "tracestate"):
        if trace.get(name) is not None and type(trace[name]) is not str:
            raise MalformedMessage(f"trace.{name} must be a string")


def _error_response(tree: dict[str, Any]) -> ErrorResponse:
    error = tree.get("error")
    if type(error) is not dict:
        raise MalformedMessage("neither a request, a notification, a response nor an error")
    code, message = error.get("code"), error.get("message")
    if type(code) is not int or not _I64_MIN <= code <= _I64_MAX or type(message) is not str:
        raise MalformedMessage("error needs a code and a message")
    data = error.get("data")
    return ErrorResponse(
        _checked_id(tree), code, message, data if type(data) is dict and data else None
    )


class ResultMessage(msgspec.Struct, gc=False):
    """An answer; *result* is a shape."""

    id: Any
    result: Any


def encode_result(request_id: Any, result: Any) -> bytes:
    """The answer to *request_id*; *result* is a shape, and both are encoded in one pass."""
    return encode_shape(ResultMessage(request_id, result))


def around_result(request_id: Any) -> tuple[bytes, bytes]:
    """The text before and after a result that is sent in pieces."""
    return b'{"id":%b,"result":' % _encode(request_id), b"}"


def encode_error(
    request_id: Any, code: int, message: str, data: dict[str, Any] | None = None
) -> bytes:
    error: dict[str, Any] = {"code": code, "message": message}
    if data:
        error["data"] = data
    return _encode({"error": error, "id": request_id})


def encode_request(
    request_id: int, method: str, params: bytes, trace: bytes | None = None
) -> bytes:
    tail = b',"trace":%b}' % trace if trace else b"}"
    return b'{"id":%d,"method":%b,"params":%b%b' % (request_id, _encode(method), params, tail)


def encode_notification(method: str, params: bytes) -> bytes:
    return b'{"method":%b,"params":%b}' % (_encode(method), params)
