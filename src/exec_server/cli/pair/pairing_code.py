"""The code that a person carries from one machine to the other.

The registry finds the offer by the first part of the code. The last part is a secret of the two
machines and is never sent. With it the second machine checks that the fingerprint comes from the
first one. A registry that wanted to substitute a key of its own would have to guess the secret:
some 10^9 guesses of a tenth of a second and 64 MiB each, while the two people wait.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

from exec_server.errors import ConfigurationError

# No letter looks like another letter or a digit; the registry uses the same alphabet.
_ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
_FOR_REGISTRY = 8
_SECRET = 6
_BLOCKS, _BLOCK_SIZE = 1 << 16, 8
_MEMORY = 2 * 128 * _BLOCKS * _BLOCK_SIZE


def new_secret() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(_SECRET))


def split(typed: str) -> tuple[str, str]:
    """The part for the registry, and the secret. Raises ConfigurationError for a wrong length."""
    letters = "".join(typed.upper().replace("-", " ").split())
    if len(letters) != _FOR_REGISTRY + _SECRET:
        raise ConfigurationError(
            f"a code has {_FOR_REGISTRY + _SECRET} letters and digits, as in K7QF-2MXT-9PWRSA"
        )
    return letters[:_FOR_REGISTRY], letters[_FOR_REGISTRY:]


def prove(secret: str, environment_id: str, fingerprint: str) -> str:
    """A proof that the sender of a fingerprint knows *secret*."""
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
