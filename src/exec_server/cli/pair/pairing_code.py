"""The code that people carry from one machine to the other.

Its first part is for the registry, which finds the offer by it. The last part is never sent: both
machines alone know it, and by it the second one sees that the fingerprint it was given is the one
that the first has sent. A registry that wanted to put in a key of its own would have to guess it,
at a price of a tenth of a second and 64 MiB for each of some 10^9 guesses, while people wait.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

from exec_server.errors import ConfigurationError

# No letter looks like another one, or like a digit; the registry's codes have the same.
_ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
_FOR_REGISTRY = 8
_SECRET = 6
_BLOCKS, _BLOCK_SIZE = 1 << 16, 8
_MEMORY = 2 * 128 * _BLOCKS * _BLOCK_SIZE


def new_secret() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(_SECRET))


def split(typed: str) -> tuple[str, str]:
    """What the registry is told, and what it is not. ConfigurationError for a wrong length."""
    letters = "".join(typed.upper().replace("-", " ").split())
    if len(letters) != _FOR_REGISTRY + _SECRET:
        raise ConfigurationError(
            f"a code has {_FOR_REGISTRY + _SECRET} letters and digits, as in K7QF-2MXT-9PWRSA"
        )
    return letters[:_FOR_REGISTRY], letters[_FOR_REGISTRY:]


def prove(secret: str, environment_id: str, fingerprint: str) -> str:
    """What only who knows *secret* can say of a fingerprint."""
    digest = hashlib.scrypt(
        secret.encode(),
        salt=f"exec-server pair\0{environment_id}\0{fingerprint}".encode(),
        n=_BLOCKS,
        r=_BLOCK_SIZE,
        p=1,
        maxmem=_MEMORY,
        dklen=32,
    )
    return base64.b64encode(digest).decode()


def is_proven(proof: str, secret: str, environment_id: str, fingerprint: str) -> bool:
    expected = prove(secret, environment_id, fingerprint)
    return hmac.compare_digest(expected.encode(), proof.encode())
