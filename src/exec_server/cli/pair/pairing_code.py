"""The code that a person carries from one machine to the other.

The registry finds the offer by the first part of the code. The last part is a secret of the two
machines and is never sent. With it each machine checks that the fingerprint of the other one's key
comes from that machine. A registry that wanted to substitute a key of its own would have to guess
the secret: some 10^9 guesses of a tenth of a second and 64 MiB each, while the two people wait.
Each proof has a random salt, so the guesses cannot be computed beforehand.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from typing import Literal

from exec_server.errors import ConfigurationError
from exec_server.protocol.registry import (
    PAIRING_ALPHABET,
    PAIRING_CODE_LETTERS,
    PAIRING_PREFIX,
    PAIRING_SECRET_LETTERS,
    code_letters,
)

# The machine whose key is proven: the one that runs commands, or the one that uses it.
Role = Literal["executor", "harness"]
_SALT_BYTES = 16
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


def is_of_this_version(proof: str) -> bool:
    """True unless *proof* comes from another version of exec-server."""
    return proof.startswith(PAIRING_PREFIX)


def prove(secret: str, role: Role, environment_id: str, fingerprint: str) -> str:
    """A proof that the sender of a fingerprint knows *secret*."""
    return _proof(os.urandom(_SALT_BYTES), secret, role, environment_id, fingerprint)


def is_proven(proof: str, secret: str, role: Role, environment_id: str, fingerprint: str) -> bool:
    try:
        salt = base64.b64decode(proof.removeprefix(PAIRING_PREFIX).partition(".")[0], validate=True)
    except ValueError:
        return False
    if not is_of_this_version(proof) or len(salt) != _SALT_BYTES:
        return False
    expected = _proof(salt, secret, role, environment_id, fingerprint)
    return hmac.compare_digest(expected.encode(), proof.encode())


def _proof(salt: bytes, secret: str, role: Role, environment_id: str, fingerprint: str) -> str:
    """`VERSION.SALT.DIGEST`. The role keeps a proof from being sent back as the other one."""
    label = f"exec-server pair {PAIRING_PREFIX}\0{role}\0{environment_id}\0{fingerprint}\0"
    digest = hashlib.scrypt(
        secret.encode(),
        salt=label.encode() + salt,
        n=_BLOCKS,
        r=_BLOCK_SIZE,
        p=1,
        maxmem=_MEMORY,
        dklen=32,
    )
    return f"{PAIRING_PREFIX}{base64.b64encode(salt).decode()}.{base64.b64encode(digest).decode()}"
