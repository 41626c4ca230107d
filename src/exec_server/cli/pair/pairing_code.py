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
from exec_server.protocol.registry import (
    PAIRING_ALPHABET,
    PAIRING_CODE_LETTERS,
    PAIRING_SECRET_LETTERS,
    code_letters,
)

_BLOCKS, _BLOCK_SIZE = 1 << 16, 8
_MEMORY = 2 * 128 * _BLOCKS * _BLOCK_SIZE


def new_secret() -> str:
    return "".join(secrets.choice(PAIRING_ALPHABET) for _ in range(PAIRING_SECRET_LETTERS))


def split(typed: str) -> tuple[str, str]:
    """The part for the registry, and the secret. Raises ConfigurationError for a wrong length."""
    letters = code_letters(typed)
    length = PAIRING_CODE_LETTERS + PAIRING_SECRET_LETTERS
    if len(letters) != length:
        raise ConfigurationError(f"a code has {length} letters and digits, as in K7QF-2MXT-9PWRSA")
    return letters[:PAIRING_CODE_LETTERS], letters[PAIRING_CODE_LETTERS:]


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
