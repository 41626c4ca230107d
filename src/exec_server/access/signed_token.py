"""Makes JSON Web Tokens (HS256) for a server with `--ws-auth signed-bearer-token`."""

from __future__ import annotations

import hmac
from binascii import b2a_base64
from typing import Any

import msgspec

_HEADER = {"alg": "HS256", "typ": "JWT"}
_TO_URL_ALPHABET = bytes.maketrans(b"+/", b"-_")


def signed_token(claims: dict[str, Any], secret: bytes) -> str:
    """A token with *claims*, signed with the *secret* that the server has, too."""
    signed = b".".join(_segment(msgspec.json.encode(part)) for part in (_HEADER, claims))
    signature = _segment(hmac.digest(secret, signed, "sha256"))
    return (signed + b"." + signature).decode()


def _segment(data: bytes) -> bytes:
    """*data* in base64url without padding."""
    return b2a_base64(data, newline=False).rstrip(b"=").translate(_TO_URL_ALPHABET)
