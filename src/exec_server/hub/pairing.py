"""Pairing: a short code, shown on one machine and typed on another, that introduces the two."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from exec_server.hub.audit import Audit
from exec_server.hub.records import Pairing, Pledge, Token
from exec_server.hub.refusals import Refusal
from exec_server.hub.store import Store
from exec_server.hub.throttle import Throttle
from exec_server.hub.tokens import digest_of, new_token
from exec_server.limits import Limits
from exec_server.relay.keys import PublicKeys

# No letter looks like another one, or like a digit.
_ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
_CODE_LETTERS = 8
_PLEDGE_CHARACTERS = 200
_EVERYBODY = "everybody"


class Pairings:
    """Codes are good once and for minutes; who guesses is slowed down, alone and with others.

    With 8 letters of 30 and at most 1000 codes, the 30 guesses a minute that everybody has
    together find one in 40 years of trying.
    """

    def __init__(
        self, store: Store, audit: Audit, *, limits: Limits, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._audit = audit
        self._limits = limits
        self._clock = clock
        self._guesses = Throttle(
            at_once=limits.hub_failures,
            seconds_each=limits.hub_failure_seconds,
            remembered=limits.hub_failing_addresses,
        )
        self._all_guesses = Throttle(
            at_once=limits.hub_pairing_failures,
            seconds_each=60 / limits.hub_pairing_failures,
            remembered=1,
        )

    async def offer(
        self, token: Token, environment_id: str, pledge: Pledge, *, address: str
    ) -> dict[str, Any]:
        """A code for whoever is to use *environment_id*, which *token* may enrol."""
        now = self._clock()
        code = "".join(secrets.choice(_ALPHABET) for _ in range(_CODE_LETTERS))
        pairing = Pairing(
            digest=digest_of(code),
            environment_id=environment_id,
            token_id=token.id,
            principal=token.principal,
            expires_at=now + self._limits.hub_pairing_seconds,
            fingerprint=pledge.fingerprint,
            proof=pledge.proof,
        )
        if not await self._store.add_pairing(pairing, most=self._limits.hub_pairings, now=now):
            raise Refusal(503, "too_many_pairings", "too many codes wait to be typed")
        await self._audit.note(
            "pairing offered", token=token, environment_id=environment_id, address=address
        )
        shown = f"{code[:4]}-{code[4:]}"
        return {
            "code": shown,
            "expires_in": self._limits.hub_pairing_seconds,
            "registered_fingerprint": await self._registered_fingerprint(environment_id),
        }

    async def _registered_fingerprint(self, environment_id: str) -> str | None:
        """Of the key that the environment was last registered with."""
        environment = await self._store.environment(environment_id)
        if environment is None or environment.executor_key is None:
            return None
        return PublicKeys.from_object(msgspec.json.decode(environment.executor_key)).fingerprint

    async def claim(self, typed: str, *, address: str) -> dict[str, Any]:
        """A token for the environment behind a code. Raises Refusal."""
        now = self._clock()
        wait = max(
            self._guesses.retry_after(address, now=now),
            self._all_guesses.retry_after(_EVERYBODY, now=now),
        )
        if wait > 0:
            headers = {"Retry-After": str(int(wait) + 1)}
            raise Refusal(429, "too_many_failures", "too many wrong codes", headers=headers)
        code = "".join(typed.upper().replace("-", " ").split())
        pairing = await self._store.take_pairing(digest_of(code), now=now)
        if pairing is None or await self._store.ended_tokens({pairing.token_id}, now=now):
            self._guesses.failed(address, now=now)
            self._all_guesses.failed(_EVERYBODY, now=now)
            raise Refusal(404, "unknown_code", "this code is not known, or no longer good")
        token, secret = new_token(
            f"paired with {pairing.environment_id}",
            ("connect", "list"),
            (pairing.environment_id,),
            now=now,
        )
        await self._store.add_token(token, digest_of(secret))
        await self._audit.note(
            "paired", token=token, environment_id=pairing.environment_id, address=address
        )
        return {
            "environment_id": pairing.environment_id,
            "token": secret,
            "fingerprint": pairing.fingerprint,
            "proof": pairing.proof,
        }


def read_pledge(body: bytes) -> Pledge:
    """What comes with an offer; nothing is fine, nonsense is a Refusal."""
    try:
        pledge = msgspec.json.decode(body, type=Pledge) if body.strip() else Pledge()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pledge = None
    if pledge is None or max(len(pledge.fingerprint), len(pledge.proof)) > _PLEDGE_CHARACTERS:
        raise Refusal(400, "invalid_request", "`fingerprint` and `proof` are short texts")
    return pledge
