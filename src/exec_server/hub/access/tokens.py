"""Access tokens: how they are made, what they allow, and the gate that checks them."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Sequence

from exec_server.access.token_secrets import digest_of, expiry, new_id, new_secret
from exec_server.hub.access.refusals import RegistryRefusal
from exec_server.hub.access.throttle import Throttle
from exec_server.hub.store import Store, StoreUnavailable
from exec_server.hub.store.entities import AccessToken, Right
from exec_server.hub.store.names import fits, is_pattern
from exec_server.limits import Limits

# The most patterns of one token. A list of environments searches for each of them.
_PATTERNS = 100
# The most that an error message names.
_NAMED_PATTERNS = 5


def new_token(
    principal: str,
    rights: Sequence[Right],
    patterns: Sequence[str],
    *,
    now: float,
    lifetime: float | None = None,
    is_once: bool = False,
    label: str = "",
) -> tuple[AccessToken, str]:
    """A token and its secret, which is shown once. Raises ValueError for invalid names."""
    if not principal.strip() or not principal.isprintable():
        raise ValueError("a principal needs a name")
    if len(patterns) > _PATTERNS:
        raise ValueError(f"a token is for {_PATTERNS} names or patterns at the most")
    for pattern in patterns:
        if not is_pattern(pattern):
            raise ValueError(f"`{pattern}` matches no environment")
    token = AccessToken(
        id=new_id(),
        principal=principal,
        rights=tuple(rights),
        patterns=tuple(patterns),
        created_at=now,
        expires_at=expiry(now, lifetime),
        is_once=is_once,
        label=label,
    )
    return token, new_secret()


def allows(token: AccessToken, right: Right, environment_id: str | None = None) -> bool:
    """True if *token* has the right, for the environment if one is given."""
    if right not in token.rights:
        return False
    if environment_id is None:
        return True
    if token.is_once and token.bound_to not in (None, environment_id):
        return False
    return fits(environment_id, token.patterns)


# What a token may do with each right, and the kind of token that has it.
_NEEDS: dict[Right, tuple[str, str]] = {
    "enrol": ("register environments", "enrol"),
    "connect": ("connect to environments", "harness"),
    "list": ("list environments", "harness"),
    "observe": ("see the status of the registry", "observer"),
}


def _why_not(token: AccessToken, right: Right, environment_id: str | None) -> str:
    """Why a token is refused: it is of another kind, or for other environments."""
    if right not in token.rights:
        what, kind = _NEEDS[right]
        rights = ", ".join(token.rights)
        return (
            f"this token may not {what}, because it is of another kind (its rights: {rights}); "
            f"that needs a token of the kind `{kind}`"
        )
    if token.is_once and token.bound_to not in (None, environment_id):
        return f"this token is for one environment and was used for `{token.bound_to}`"
    patterns = ", ".join(f"`{pattern}`" for pattern in token.patterns[:_NAMED_PATTERNS])
    more = ", ..." if len(token.patterns) > _NAMED_PATTERNS else ""
    return f"the name `{environment_id}` is not among those of this token: {patterns}{more}"


class TokenGate:
    """Checks the token of a request, and slows down addresses that guess tokens."""

    def __init__(self, store: Store, *, limits: Limits, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._failures = Throttle(
            at_once=limits.hub_failures,
            seconds_each=limits.hub_failure_seconds,
            remembered=limits.hub_failing_addresses,
        )
        self.failed = 0

    async def admit(
        self,
        authorization: str | None,
        right: Right | None,
        *,
        address: str,
        environment_id: str | None = None,
    ) -> AccessToken:
        """The token of a request.

        Raises RegistryRefusal: 401 for a wrong token, 403 for a missing right, and 429 for another
        wrong token after too many. Without a *right* any good token is accepted. A good token is
        never slowed down, so other users of the same address cannot lock its holder out.
        """
        secret = secret_in(authorization)
        token = None if secret is None else await self._store.find_token(digest_of(secret))
        now = self._clock()
        if token is None or not token.is_good(now):
            raise self._failure(address, now, is_missing=secret is None)
        if right is not None and not allows(token, right, environment_id):
            raise RegistryRefusal(403, "forbidden", _why_not(token, right, environment_id))
        if environment_id is None:
            # A use for an environment is noted by `bind`.
            with contextlib.suppress(StoreUnavailable):
                await self._store.note_use(token, now=now, address=address)
        return token

    async def bind(self, token: AccessToken, environment_id: str, *, address: str) -> None:
        """Use *token* for an environment.

        Raises RegistryRefusal if it is for one environment only and another request has used it for
        another one. Requests at the same moment may all have passed `admit`, so this decides.
        """
        is_bound = await self._store.bind_token(
            token, environment_id, now=self._clock(), address=address
        )
        if not is_bound:
            raise RegistryRefusal(
                403, "forbidden", "this token is for one environment and was used for another one"
            )

    def _failure(self, address: str, now: float, *, is_missing: bool) -> RegistryRefusal:
        self.failed += 1
        wait = self._failures.retry_after(address, now=now)
        self._failures.failed(address, now=now)
        if wait > 0:
            return RegistryRefusal(
                429,
                "too_many_failures",
                "too many wrong tokens from this address",
                headers={"Retry-After": str(int(wait) + 1)},
            )
        what = "a token is required" if is_missing else "the token is not known, or no longer good"
        challenge = {"WWW-Authenticate": 'Basic realm="registry", charset="UTF-8"'}
        return RegistryRefusal(401, "invalid_token", what, headers=challenge)


def secret_in(authorization: str | None) -> str | None:
    """The bearer token, or the password that a browser sends."""
    scheme, _, value = (authorization or "").partition(" ")
    value = value.strip(" \t")
    if scheme.lower() == "bearer":
        return value or None
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
    except ValueError:
        return None
    return (password or user) if colon else None
