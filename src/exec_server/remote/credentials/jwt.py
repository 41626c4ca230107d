"""JSON Web Tokens: what they claim, and whether an RSA key has signed it."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from exec_server.errors import ConfigurationError


def claims(token: str) -> dict[str, Any]:
    """What the token says of itself, not verified. Raises ConfigurationError."""
    return _part(token, 1)


def expiry(token: str) -> float | None:
    """When a JWT expires; None for a token that is none or does not say."""
    try:
        found = claims(token).get("exp")
    except ConfigurationError:
        return None
    return float(found) if isinstance(found, int | float) else None


def verified(token: str, keys: Any) -> dict[str, Any]:
    """The claims of an RS256 token that one of the JSON Web *keys* has signed.

    Raises ConfigurationError when none has.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    head = _part(token, 0)
    if head.get("alg") != "RS256":
        raise ConfigurationError("the token is not signed with RS256")
    signed, _, signature = token.rpartition(".")
    key = _public_key(keys, head.get("kid"))
    try:
        key.verify(decode(signature), signed.encode(), PKCS1v15(), SHA256())
    except InvalidSignature:
        raise ConfigurationError("the signature of the token is wrong") from None
    return claims(token)


def decode(text: str) -> bytes:
    """Base64 for URLs, without padding. Raises ConfigurationError."""
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise ConfigurationError("the token is malformed") from None


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _part(token: str, index: int) -> dict[str, Any]:
    parts = token.split(".")
    if len(parts) != 3:
        raise ConfigurationError("the token is no JWT")
    try:
        found = msgspec.json.decode(decode(parts[index]))
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ConfigurationError("the token is malformed") from None
    if not isinstance(found, dict):
        raise ConfigurationError("the token is malformed")
    return found


def _public_key(keys: Any, kid: Any) -> Any:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

    found = keys.get("keys") if isinstance(keys, dict) else None
    for key in found if isinstance(found, list) else ():
        if isinstance(key, dict) and key.get("kty") == "RSA" and key.get("kid") == kid:
            try:
                exponent, modulus = (
                    int.from_bytes(decode(str(key.get(name, "")))) for name in ("e", "n")
                )
                return RSAPublicNumbers(exponent, modulus).public_key()
            except ValueError:
                break
    raise ConfigurationError("the token is signed with an unknown key")
