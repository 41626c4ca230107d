"""Pairing: a short code that one machine shows and that is typed on another one.

The first machine (the executor) makes an offer and shows its code. The second one (the client)
claims the offer with the code and gets a token for the environment.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from exec_server.access.token_secrets import digest_of, new_id, new_secret
from exec_server.hub.access.pairing_reply import REFUSED, PairingReply, told
from exec_server.hub.access.refusals import RegistryRefusal
from exec_server.hub.access.throttle import SharedThrottle, Throttle
from exec_server.hub.access.tokens import new_token
from exec_server.hub.observe.audit import Audit
from exec_server.hub.store import Store
from exec_server.hub.store.entities import AccessToken, Pairing, Pledge, Right
from exec_server.limits import Limits
from exec_server.protocol.registry import (
    PAIRING_ALPHABET,
    PAIRING_CODE_LETTERS,
    PAIRING_PREFIX,
    PAIRING_VERSION,
    code_letters,
)
from exec_server.relay.keys import PublicKeys

_PLEDGE_CHARACTERS = 200
_TYPED_CHARACTERS = 64
_DEVICE_CHARACTERS = 64
_ENROL: tuple[Right, ...] = ("enrol",)
# A token with this pattern may use all environments. A narrower pattern reserves its names, so that
# machines without a token cannot take them.
_ANY_NAME = "*"


class Pairings:
    """The pairing codes of a registry. A code works once and for a few minutes.

    Guesses are limited for each address and for all addresses together. With 8 letters of 30 and at
    most 1000 codes, the 30 guesses a minute that all have together find a code in 40 years.
    """

    def __init__(
        self,
        store: Store,
        audit: Audit,
        *,
        limits: Limits,
        clock: Callable[[], float],
        is_open: bool = False,
    ) -> None:
        """If it *is_open*, machines without a token get codes for names that are not in use."""
        self._store = store
        self._audit = audit
        self._limits = limits
        self._clock = clock
        self._is_open = is_open
        remembered = limits.hub_failing_addresses
        self._guesses = SharedThrottle(
            each=(limits.hub_failures, limits.hub_failure_seconds),
            together=(limits.hub_pairing_failures, 60 / limits.hub_pairing_failures),
            remembered=remembered,
        )
        # The offers of machines that came without a token, and of those with one.
        self._strangers = SharedThrottle(
            each=(limits.hub_open_offers, limits.hub_open_offer_seconds),
            together=(limits.hub_all_open_offers, limits.hub_all_open_offer_seconds),
            remembered=remembered,
        )
        self._holders = Throttle(
            at_once=limits.hub_address_offers,
            seconds_each=limits.hub_address_offer_seconds,
            remembered=remembered,
        )

    # For the machine that shows a code. Every method raises RegistryRefusal.

    async def offer(
        self, token: AccessToken, environment_id: str, pledge: Pledge, *, address: str
    ) -> dict[str, Any]:
        """Make a code for *environment_id*, which *token* may enrol."""
        self._take_turn(self._strangers if _is_strangers(token) else self._holders, address)
        return await self._offer(token, environment_id, pledge, address=address, is_open=False)

    async def offer_openly(
        self, environment_id: str, pledge: Pledge, *, address: str
    ) -> dict[str, Any]:
        """Make a code for a machine without a token. The claim turns its ticket into a token."""
        if not self._is_open:
            raise RegistryRefusal(
                401,
                "invalid_token",
                "a token that may enrol is needed (`exec-server registry token create enrol`), "
                "because this registry was not started with --open-pairing",
                headers={"WWW-Authenticate": "Bearer"},
            )
        self._take_turn(self._strangers, address)
        token = _enrolment(environment_id, new_id(), now=self._clock())
        return await self._offer(token, environment_id, pledge, address=address, is_open=True)

    def _take_turn(self, offers: Throttle | SharedThrottle, address: str) -> None:
        """Limit the offers of an address, so that it cannot use up all codes."""
        now = self._clock()
        _slow_down(offers, address, "too_many_offers", "too many codes", now=now)
        offers.failed(address, now=now)

    async def _offer(
        self,
        token: AccessToken,
        environment_id: str,
        pledge: Pledge,
        *,
        address: str,
        is_open: bool,
    ) -> dict[str, Any]:
        now = self._clock()
        code = "".join(secrets.choice(PAIRING_ALPHABET) for _ in range(PAIRING_CODE_LETTERS))
        ticket = new_secret()
        pairing = Pairing(
            digest=digest_of(code),
            environment_id=environment_id,
            token_id=token.id,
            principal=token.principal,
            expires_at=now + self._limits.hub_pairing_seconds,
            fingerprint=pledge.fingerprint,
            proof=pledge.proof,
            ticket=digest_of(ticket),
            is_open=is_open,
            serves=pledge.serves,
        )
        is_kept = await self._store.add_pairing(
            pairing,
            most=self._limits.hub_pairings,
            of_token=self._limits.hub_token_pairings,
            now=now,
        )
        if not is_kept:
            raise RegistryRefusal(503, "too_many_pairings", "too many codes wait to be typed")
        # The name is checked after our own offer is visible. So of two offers at the same moment
        # at least one is refused.
        if await self._is_taken(pairing, now=now):
            await self._store.drop_pairing(pairing.digest)
            raise RegistryRefusal(
                409, "environment_taken", "this name is another's; choose another one"
            )
        await self._audit.note(
            "pairing offered", token=token, environment_id=environment_id, address=address
        )
        return {
            "code": f"{code[:4]}-{code[4:]}",
            "expires_in": self._limits.hub_pairing_seconds,
            "ticket": ticket,
            "registered_fingerprint": await self._registered_fingerprint(environment_id),
        }

    async def _is_taken(self, pairing: Pairing, *, now: float) -> bool:
        """True if another principal has this name.

        For a machine without a token also true if any token is for this name. Otherwise clients
        that were paired with an earlier machine of the name could connect to the new one.
        """
        name = pairing.environment_id
        environment = await self._store.environment(name)
        if environment is not None and environment.principal != pairing.principal:
            if not await self._store.ended_tokens({environment.token_id}, now=now):
                return True
        others = [
            each
            for each in await self._store.pairings_of(name, now=now)
            if each.digest != pairing.digest and not await self._is_given_up(each, now=now)
        ]
        if not pairing.is_open:
            return any(each.is_open and each.token_id != pairing.token_id for each in others)
        tokens = await self._store.tokens_for(name, now=now)
        return bool(others) or any(_keeps(token, name) for token in tokens)

    async def _is_given_up(self, pairing: Pairing, *, now: float) -> bool:
        """True if the code was typed and its token has ended since."""
        if pairing.claimed_at is None:
            return False
        token = await self._store.token(pairing.token_id)
        # A token that does not exist yet is about to be made.
        return token is not None and not token.is_good(now)

    async def _registered_fingerprint(self, environment_id: str) -> str | None:
        """The fingerprint of the key with which the environment was registered last."""
        environment = await self._store.environment(environment_id)
        if environment is None or environment.executor_key is None:
            return None
        return PublicKeys.from_object(msgspec.json.decode(environment.executor_key)).fingerprint

    async def state(self, environment_id: str, ticket: str) -> dict[str, Any]:
        """Tell the holder of the ticket whether the code was typed."""
        now = self._clock()
        pairing = await self._of_ticket(environment_id, ticket, now=now)
        if pairing.reply == REFUSED:
            return {"state": REFUSED, "reply": None, "expires_in": 0.0}
        is_claimed = pairing.claimed_at is not None
        if is_claimed and pairing.is_open:
            # The ticket becomes a token a moment after the code was used.
            is_claimed = await self._store.find_token(pairing.ticket) is not None
        return {
            "state": "claimed" if is_claimed else "waiting",
            "reply": told(pairing.reply),
            "expires_in": pairing.expires_at - now,
        }

    async def withdraw(self, environment_id: str, ticket: str, *, address: str) -> dict[str, Any]:
        """Withdraw a code that was not typed yet."""
        pairing = await self._of_ticket(environment_id, ticket, now=self._clock())
        is_withdrawn = await self._store.drop_pairing(pairing.digest)
        if is_withdrawn:
            await self._audit.note(
                "pairing withdrawn",
                token_id=pairing.token_id,
                environment_id=environment_id,
                address=address,
            )
        return {"state": "withdrawn" if is_withdrawn else "claimed"}

    async def _of_ticket(self, environment_id: str, ticket: str, *, now: float) -> Pairing:
        digest = digest_of(ticket)
        for pairing in await self._store.pairings_of(environment_id, now=now):
            if hmac.compare_digest(pairing.ticket, digest):
                return pairing
        raise RegistryRefusal(404, "unknown_pairing", "this offer is not known, or no longer good")

    # For the machine on which the code is typed.

    async def claim(self, claim: PairingClaim, *, address: str) -> dict[str, Any]:
        """Use a code, and return a token for its environment. Raises RegistryRefusal."""
        now = self._clock()
        _slow_down(self._guesses, address, "too_many_failures", "too many wrong codes", now=now)
        # It counts as wrong until the store says otherwise. If it counted afterwards, many codes at
        # the same moment would all be looked up.
        self._guesses.failed(address, now=now)
        code = code_letters(claim.code)
        pairing = await self._store.take_pairing(digest_of(code), now=now)
        if pairing is None or await self._has_ended(pairing, now=now):
            raise RegistryRefusal(404, "unknown_code", "this code is not known, or no longer good")
        self._guesses.take_back(address)
        if claim.version < PAIRING_VERSION and pairing.proof.startswith(PAIRING_PREFIX):
            await self._store.reply_to_pairing(pairing.digest, REFUSED, now=now)
            raise RegistryRefusal(
                409, "old_client", "this code is for a newer exec-server: install it here as well"
            )
        if pairing.is_open:
            enrolment = _enrolment(pairing.environment_id, pairing.token_id, now=now)
            await self._store.add_token(enrolment, pairing.ticket)
        name = pairing.environment_id
        token, secret = new_token(
            _user(name),
            ("connect", "list"),
            (name,),
            now=now,
            label=_label(claim.device) or address,
        )
        await self._store.add_token(token, digest_of(secret))
        await self._audit.note("paired", token=token, environment_id=name, address=address)
        return {
            "environment_id": name,
            "token": secret,
            "fingerprint": pairing.fingerprint,
            "proof": pairing.proof,
            "serves": pairing.serves,
        }

    async def reply(self, reply: PairingReply, *, address: str) -> dict[str, Any]:
        """Keep the reply of the machine that has used a code. Raises RegistryRefusal."""
        now = self._clock()
        _slow_down(self._guesses, address, "too_many_failures", "too many wrong codes", now=now)
        # As in `claim`.
        self._guesses.failed(address, now=now)
        digest = digest_of(code_letters(reply.code))
        pairing = await self._store.reply_to_pairing(digest, reply.stored, now=now)
        if pairing is None:
            raise RegistryRefusal(404, "unknown_code", "this code is not known, or has its reply")
        self._guesses.take_back(address)
        await self._audit.note(
            "pairing refused" if reply.is_refused else "pairing confirmed",
            token_id=pairing.token_id,
            environment_id=pairing.environment_id,
            address=address,
        )
        return {}

    async def _has_ended(self, pairing: Pairing, *, now: float) -> bool:
        """True if the token of the offer has ended. An open offer has none yet."""
        if pairing.is_open:
            return False
        return bool(await self._store.ended_tokens({pairing.token_id}, now=now))

    # For both machines.

    async def give_up(self, token: AccessToken, *, address: str) -> dict[str, Any]:
        """Revoke a token at the request of its holder.

        If it belongs to a machine that came without a token, the tokens of its paired clients end
        too, and its name is free.
        """
        now = self._clock()
        ended = [token]
        if _is_strangers(token):
            (name,) = token.patterns
            tokens = await self._store.tokens_for(name, now=now)
            ended += [each for each in tokens if each.principal == _user(name)]
        for each in ended:
            await self._store.revoke_token(each.id, now=now)
        await self._audit.note("token given up", token=token, address=address)
        return {"revoked": [each.id for each in ended]}


def _slow_down(
    throttle: Throttle | SharedThrottle, address: str, code: str, message: str, *, now: float
) -> None:
    wait = throttle.retry_after(address, now=now)
    if wait > 0:
        raise RegistryRefusal(429, code, message, headers={"Retry-After": str(int(wait) + 1)})


def read_pledge(body: bytes) -> Pledge:
    """The body of an offer, which may be empty. Raises RegistryRefusal if it is malformed."""
    try:
        pledge = msgspec.json.decode(body, type=Pledge) if body.strip() else Pledge()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pledge = None
    if pledge is None or max(len(pledge.fingerprint), len(pledge.proof)) > _PLEDGE_CHARACTERS:
        raise RegistryRefusal(400, "invalid_request", "`fingerprint` and `proof` are short texts")
    return pledge


class PairingClaim(msgspec.Struct, frozen=True):
    """The body of a request that uses a code."""

    code: str
    # The name of the machine on which the code was typed. Lists of tokens show it.
    device: str = ""
    # The version of the pairing that the client knows; the first version did not name it.
    version: int = 1

    def __repr__(self) -> str:
        return "PairingClaim()"


def read_claim(body: bytes) -> PairingClaim:
    """The body of a request with a code. Raises RegistryRefusal if it is malformed."""
    try:
        claim = msgspec.json.decode(body, type=PairingClaim)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        claim = None
    if claim is None or len(claim.code) > _TYPED_CHARACTERS:
        raise RegistryRefusal(400, "invalid_request", "a code is needed")
    return claim


def _label(device: str) -> str:
    """The name of a device as lists show it; without characters that could change a terminal."""
    return "".join(each for each in device if each.isprintable())[:_DEVICE_CHARACTERS].strip()


def _enrolment(environment_id: str, token_id: str, *, now: float) -> AccessToken:
    """The token that the ticket of an open offer becomes when its code is typed."""
    return AccessToken(
        id=token_id,
        principal=_machine(environment_id),
        rights=_ENROL,
        patterns=(environment_id,),
        created_at=now,
    )


def _machine(environment_id: str) -> str:
    """The principal of a machine that came without a token."""
    return f"machine {environment_id}"


def _is_strangers(token: AccessToken) -> bool:
    """True if the token was made for a machine that came without one."""
    return token.rights == _ENROL and [_machine(name) for name in token.patterns] == [
        token.principal
    ]


def _user(environment_id: str) -> str:
    """The principal of a client that was paired with an environment."""
    return f"paired with {environment_id}"


def _keeps(token: AccessToken, environment_id: str) -> bool:
    """True if the token reserves the name, which a token for all names does not."""
    narrow = [pattern for pattern in token.patterns if pattern != _ANY_NAME]
    return any(fnmatchcase(environment_id, pattern) for pattern in narrow)
