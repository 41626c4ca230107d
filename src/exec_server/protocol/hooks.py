"""How msgspec decodes and encodes our own types in the shapes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from exec_server.protocol.base64 import (
    Base64Error,
    Blob,
    LazyBlob,
    LongBase64,
    decode_base64,
    encode_base64,
)
from exec_server.protocol.paths import PathUri
from exec_server.protocol.sandbox import OldSandbox, SandboxContext, decoded, decoded_policy

# Clients ask for the same few paths again and again. Longer texts are not remembered.
_REMEMBERED_CHARS = 512
_recent_path = lru_cache(maxsize=1024)(PathUri)


def decode_hook(kind: type, value: Any) -> Any:
    """*value* from JSON as our type *kind*. A long base64 text comes as its decoded bytes."""
    if kind is Blob and type(value) is str:
        # The usual input of a process.
        try:
            return Blob(decode_base64(value))
        except Base64Error as exc:
            raise msgspec.ValidationError(str(exc)) from exc
    if kind is PathUri and type(value) is str:
        return _recent_path(value) if len(value) < _REMEMBERED_CHARS else PathUri(value)
    if kind is Blob or kind is LazyBlob:
        if type(value) is Blob:
            return value if kind is Blob else LazyBlob(value.data)
        if type(value) is LongBase64:
            return Blob(value.decode()) if kind is Blob else LazyBlob(value)
        if type(value) is str:
            return LazyBlob(value)
    if kind is SandboxContext:
        return decoded(value)
    if kind is OldSandbox:
        return decoded_policy(value)
    if kind not in (PathUri, Blob, LazyBlob):
        raise NotImplementedError(f"no such shape: {kind}")
    raise msgspec.ValidationError(f"Expected `str`, got `{type(value).__name__}`")


def encode_hook(value: Any) -> Any:
    """A value of our types as one that msgspec can encode."""
    if type(value) is PathUri:
        return value.text
    if isinstance(value, SandboxContext):
        return value.wire
    # As Raw, base64 is not searched for characters to escape.
    if type(value) is Blob:
        return msgspec.Raw(b'"%b"' % encode_base64(value.data))
    if type(value) is LazyBlob:
        return msgspec.Raw(b'"%b"' % encode_base64(value.decode()))
    # A kind of text or number, such as a tagged string, counts as what it contains.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"a {type(value).__name__} cannot be sent")
