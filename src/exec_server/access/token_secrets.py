"""Secrets of tokens: how they are made, the digest that is kept of them, how long they are good."""

from __future__ import annotations

# A server without secrets need not load the modules for them, which takes milliseconds.

# The prefix lets programs that search for leaked secrets recognise a token.
PREFIX = "exs_"
_SECRET_BYTES = 32
_ID_BYTES = 6


def new_secret() -> str:
    """A secret that is too long to be guessed."""
    import secrets

    return PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def digest_of(secret: str) -> bytes:
    """The digest that is stored of a secret. The secret is too long to be guessed."""
    from hashlib import sha256

    return sha256(secret.encode()).digest()


def new_id() -> str:
    """An identifier for something that is no secret."""
    import secrets

    return secrets.token_hex(_ID_BYTES)


def expiry(now: float, lifetime: float | None) -> float | None:
    """When something that is made *now* expires; None if it has no *lifetime*."""
    return None if lifetime is None else now + lifetime


def is_good(now: float, *, expires_at: float | None, revoked_at: float | None) -> bool:
    """True of something that is neither revoked nor expired."""
    return revoked_at is None and (expires_at is None or now < expires_at)
