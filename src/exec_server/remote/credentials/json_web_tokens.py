"""JSON Web Tokens: reads their claims, and verifies the RS256 signature of one.

PyJWT does the work. It is imported by the functions that need it: it costs 20 ms, and most
executors show a credential that is not a JSON Web Token.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from exec_server.errors import ConfigurationError

if TYPE_CHECKING:
    from jwt import PyJWK

_ALGORITHM = "RS256"


def claims(token: str) -> dict[str, Any]:
    """Return the claims of *token* without verifying them. Raises ConfigurationError."""
    import jwt

    try:
        payload = jwt.PyJWS().decode(token, options={"verify_signature": False})
    except (jwt.PyJWTError, UnicodeEncodeError):
        # The words of the error could repeat parts of the token.
        raise ConfigurationError("the token is not a JWT") from None
    return _decoded(payload)


def expiry(token: str) -> float | None:
    """Return the time at which *token* expires; None if it is not a JWT or does not say."""
    try:
        found = claims(token).get("exp")
        return float(found) if isinstance(found, int | float) else None
    except (ConfigurationError, OverflowError):
        return None


def verified_claims(token: str, keys: Any) -> dict[str, Any]:
    """Return the claims of an RS256 token that one of the JSON Web *keys* has signed.

    Only the signature is verified: the caller compares the claims with its own clock and names.
    Raises ConfigurationError if no key has signed the token, or the key is shorter than 2048 bits.
    """
    import jwt

    claims(token)  # It refuses a token that is malformed.
    header = jwt.get_unverified_header(token)
    if header.get("alg") != _ALGORITHM:
        raise ConfigurationError(f"the token is not signed with {_ALGORITHM}")
    key = next(_public_keys(keys, header.get("kid")), None)
    if key is None:
        raise ConfigurationError("the token is signed with an unknown key")
    verifier = jwt.PyJWS(options={"verify_signature": True, "enforce_minimum_key_length": True})
    try:
        payload = verifier.decode(token, key, algorithms=[_ALGORITHM])
    except jwt.InvalidKeyError:
        raise ConfigurationError("the token is signed with a key that is too short") from None
    except jwt.PyJWTError:
        raise ConfigurationError("the signature of the token is wrong") from None
    return _decoded(payload)


def _decoded(payload: bytes) -> dict[str, Any]:
    # PyJWT's own decoder accepts NaN, and a token that expires at NaN would never expire.
    try:
        found = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ConfigurationError("the token is malformed") from None
    if not isinstance(found, dict):
        raise ConfigurationError("the token is malformed")
    return found


def _public_keys(keys: Any, kid: Any) -> Iterator[PyJWK]:
    """Yield the RSA keys that are called *kid*."""
    from jwt import PyJWK, PyJWTError

    found = keys.get("keys") if isinstance(keys, dict) else None
    for key in found if isinstance(found, list) else ():
        if isinstance(key, dict) and key.get("kty") == "RSA" and key.get("kid") == kid:
            # The private half and an algorithm, if the issuer names them, are of no use here.
            public = {"kty": "RSA", "n": key.get("n"), "e": key.get("e")}
            try:
                yield PyJWK(public, _ALGORITHM)
            except PyJWTError:
                continue
