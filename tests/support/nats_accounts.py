"""A NATS server that knows its users by signed tokens, and a credentials file for one of them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from typing import Any

import nkeys  # type: ignore[import-untyped]

_NO_LIMITS = {
    **dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1),
    "wildcards": True,
}
_STORAGE = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)


class Accounts:
    """An operator, an account that may use JetStream, and its users."""

    def __init__(self) -> None:
        self._operator, _ = _key(nkeys.PREFIX_BYTE_OPERATOR)
        self._account, _ = _key(nkeys.PREFIX_BYTE_ACCOUNT)
        self._system, _ = _key(nkeys.PREFIX_BYTE_ACCOUNT)

    def configuration(self) -> str:
        """The configuration of a server that accepts only these users."""
        operator, account, system = map(_name, (self._operator, self._account, self._system))
        sign = self._operator
        about = {"type": "operator", "system_account": system}
        limits = {"type": "account", "limits": {**_NO_LIMITS, **_STORAGE}}
        no_storage = {"type": "account", "limits": _NO_LIMITS}
        return "\n".join(
            [
                f"operator: {_token(sign, operator, about)}",
                f"system_account: {system}",
                "resolver: MEMORY",
                "resolver_preload: {",
                f"  {account}: {_token(sign, account, limits)}",
                f"  {system}: {_token(sign, system, no_storage)}",
                "}",
            ]
        )

    def credentials(self, *subjects: str) -> str:
        """The credentials file of a user for *subjects*, or for all if none are given."""
        user, seed = _key(nkeys.PREFIX_BYTE_USER)
        allowed = {"allow": list(subjects)} if subjects else {}
        about = {"type": "user", "pub": allowed, "sub": allowed, "subs": -1, "data": -1}
        token = _token(self._account, _name(user), {**about, "payload": -1})
        return (
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )


def _key(prefix: int) -> tuple[Any, str]:
    seed = nkeys.encode_seed(os.urandom(32), prefix)
    return nkeys.from_seed(bytearray(seed)), seed.decode()


def _name(key: Any) -> str:
    return str(key.public_key.decode())


def _token(signer: Any, subject: str, about: dict[str, Any]) -> str:
    claims = {
        "iat": int(time.time()),
        "iss": _name(signer),
        "name": "test",
        "sub": subject,
        "nats": {**about, "version": 2},
    }
    digest = hashlib.sha256(json.dumps(claims).encode()).digest()
    claims["jti"] = base64.b32encode(digest).rstrip(b"=").decode()
    head = _base64(json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode())
    signed = f"{head}.{_base64(json.dumps(claims).encode())}"
    return f"{signed}.{_base64(signer.sign(signed.encode()))}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
