"""How msgspec reads and writes the types of ours that shapes use."""

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

# Clients ask about the same few paths again and again; what is longer is not worth the memory.
_REMEMBERED_CHARS = 512
_recent_path = lru_cache(maxsize=1024)(PathUri)


def decode_hook(kind: type, value: Any) -> Any:
    """*value*, as JSON has it, as a *kind* of ours. Long texts in base64 come as what they hold."""
    if kind is PathUri and type(value) is str:
        return _recent_path(value) if len(value) < _REMEMBERED_CHARS else PathUri(value)
    if kind is Blob or kind is LazyBlob:
        if type(value) is Blob:
            return value if kind is Blob else LazyBlob(value.data)
        if type(value) is LongBase64:
            return Blob(value.decode()) if kind is Blob else LazyBlob(value)
        if type(value) is str:
            return _blob(value) if kind is Blob else LazyBlob(value)
    if kind is SandboxContext:
        return decoded(value)
    if kind is OldSandbox:
        return decoded_policy(value)
    if kind not in (PathUri, Blob, LazyBlob):
        raise NotImplementedError(f"no such shape: {kind}")
    raise msgspec.ValidationError(f"Expected `str`, got `{type(value).__name__}`")


def _blob(text: str) -> Blob:
    try:
        return Blob(decode_base64(text))
    except Base64Error as exc:
        raise msgspec.ValidationError(str(exc)) from exc


def encode_hook(value: Any) -> Any:
    """A value of ours as something that msgspec can write."""
    if type(value) is PathUri:
        return value.text
    if isinstance(value, SandboxContext):
        return value.wire
    # Raw, because base64 needs no look for characters to escape.
    if type(value) is Blob:
        return msgspec.Raw(b'"%b"' % encode_base64(value.data))
    if type(value) is LazyBlob:
        return msgspec.Raw(b'"%b"' % encode_base64(value.decode()))
    raise NotImplementedError(f"no such shape: {type(value)}")
