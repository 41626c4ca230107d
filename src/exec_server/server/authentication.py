"""Authentication of WebSocket clients: the ``--ws-auth`` modes.

Secrets are read when the server starts and at SIGHUP, and never appear in a ``repr`` or a log. The
module is long because each refusal of the reference has its own text and its place in their order.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, Literal, Protocol, TypeVar

import msgspec

from exec_server.access.principal import Scope, known_scopes
from exec_server.defaults import DEFAULT_CLOCK_SKEW
from exec_server.errors import ConfigurationError
from exec_server.server.principals.admission import NotAdmitted, SignedSubject
from exec_server.server.secret_files import absolute, read_secret, trim

AuthMode = Literal["capability-token", "signed-bearer-token"]

# The reference's default of --ws-max-clock-skew-seconds.
# A key for HMAC-SHA-256 should be as long as its digest.
MIN_SECRET_BYTES = 32

_I64_MIN, _I64_MAX = -(2**63), 2**63 - 1


class Authenticator(Protocol):
    """Checks the ``Authorization`` header of each upgrade."""

    def check(self, authorization: str | None) -> str | None:
        """Return None to accept the client, or the body of the 401 answer."""
        ...


class AuthOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The ``--ws-*`` options as they were given. None means absent; blank text does not."""

    mode: AuthMode | None = None
    token_file: str | None = None
    token_sha256: str | None = None
    shared_secret_file: str | None = None
    issuer: str | None = None
    audience: str | None = None
    max_clock_skew_seconds: int | None = None


class _BearerAuthenticator(ABC):
    """Extracts the bearer token, which a subclass verifies."""

    __slots__ = ()

    def check(self, authorization: str | None) -> str | None:
        try:
            self._verify(bearer_token(authorization))
        except NotAdmitted as refused:
            return str(refused)
        return None

    @abstractmethod
    def _verify(self, token: str) -> None:
        """Raises NotAdmitted, whose text is the body of the 401 answer."""

    @abstractmethod
    def _settings(self) -> tuple[object, ...]:
        """The values that decide which tokens are accepted."""

    def __eq__(self, other: object) -> bool:
        """True if both accept the same tokens."""
        return type(other) is type(self) and other._settings() == self._settings()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class CapabilityToken(_BearerAuthenticator):
    """Accepts the token with this SHA-256 digest."""

    __slots__ = ("_sha256",)

    def __init__(self, sha256: bytes) -> None:
        if len(sha256) != 32:
            raise ValueError("a SHA-256 digest has 32 bytes")
        self._sha256 = sha256

    @property
    def digest(self) -> bytes:
        return self._sha256

    def _verify(self, token: str) -> None:
        from hashlib import sha256
        from hmac import compare_digest

        if not compare_digest(sha256(token.encode()).digest(), self._sha256):
            raise NotAdmitted("invalid websocket bearer token")

    def _settings(self) -> tuple[object, ...]:
        return (self._sha256,)


class SignedBearerToken(_BearerAuthenticator):
    """Accepts a valid HS256 JWT that is signed with the shared secret.

    If *issuer* is given, it must equal ``iss``. If *audience* is given, ``aud`` must contain it.
    *max_clock_skew* is in seconds and extends a token's validity at both ends. A token can be used
    many times.
    """

    __slots__ = ("_audience", "_clock", "_issuer", "_secret", "_skew")

    def __init__(
        self,
        secret: bytes,
        issuer: str | None = None,
        audience: str | None = None,
        max_clock_skew: int = DEFAULT_CLOCK_SKEW,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._secret = secret
        self._issuer = issuer
        self._audience = audience
        self._skew = max_clock_skew
        self._clock = clock

    def _verify(self, token: str) -> None:
        try:
            claims = _signed_claims(token, self._secret)
        # msgspec and binascii raise ValueErrors, and deep nesting raises RecursionError.
        except (ValueError, RecursionError):
            raise NotAdmitted("invalid websocket jwt") from None
        self._check_times(claims, int(self._clock()))
        self._check_parties(claims)

    def subject(self, authorization: str | None) -> SignedSubject:
        """Whom an accepted token is about, and the scopes that it leaves."""
        claims = _signed_claims(bearer_token(authorization), self._secret)
        subject = None if claims.sub is None else str(claims.sub)
        return SignedSubject(subject, claims.scopes, claims.kind == "agent")

    def _settings(self) -> tuple[object, ...]:
        return self._secret, self._issuer, self._audience, self._skew

    def _check_times(self, claims: _BearerClaims, now: int) -> None:
        if now > claims.exp + self._skew:
            raise NotAdmitted("expired websocket jwt")
        if claims.nbf is not None and now < claims.nbf - self._skew:
            raise NotAdmitted("websocket jwt is not valid yet")

    def _check_parties(self, claims: _BearerClaims) -> None:
        if self._issuer is not None and claims.iss != self._issuer:
            raise NotAdmitted("websocket jwt issuer mismatch")
        if self._audience is not None and self._audience not in claims.audiences:
            raise NotAdmitted("websocket jwt audience mismatch")


def bearer_token(authorization: str | None) -> str:
    """The token in a header. Raises NotAdmitted."""
    if authorization is None:
        raise NotAdmitted("missing websocket bearer token")
    scheme, _, token = authorization.partition(" ")
    token = token.strip(" \t")
    if scheme.lower() != "bearer" or not token or not _is_visible_ascii(token):
        raise NotAdmitted("invalid authorization header")
    return token


def _is_visible_ascii(text: str) -> bool:
    return all(" " <= char <= "~" or char == "\t" for char in text)


_I64 = Annotated[int, msgspec.Meta(ge=_I64_MIN, le=_I64_MAX)]


# Some members are declared although nothing reads them: the reference refuses a token in which one
# of them has another type or occurs twice. It ignores all other members.
class _JwtHeader(msgspec.Struct):
    alg: Literal["HS256"]
    typ: str | None = None
    cty: str | None = None
    kid: str | None = None
    jku: str | None = None
    jwk: dict[str, msgspec.Raw] | None = None
    x5u: str | None = None
    x5c: list[str] | None = None
    x5t: str | None = None
    x5t_s256: str | None = msgspec.field(name="x5t#S256", default=None)
    # RFC 7515, 4.1.11: a token with extensions that are not understood is invalid, and none is
    # understood here. The reference ignores this member.
    crit: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _BearerClaims(msgspec.Struct):
    exp: _I64
    nbf: _I64 | None = None
    iss: str | None = None
    aud: str | list[str] | None = None
    sub: str | int | float | bool | None = None
    # Ours: the only scopes that the bearer may use, in a list or separated by spaces.
    may: str | list[str] | None = None
    # The same in OAuth 2.0. Others use it for scopes of their own, so it counts if it has ours.
    scope: Any = None
    # Ours: "agent" if the bearer must not call itself a person.
    kind: Any = None

    @property
    def audiences(self) -> list[str]:
        if self.aud is None:
            return []
        return [self.aud] if isinstance(self.aud, str) else self.aud

    @property
    def scopes(self) -> frozenset[Scope] | None:
        """The scopes that the claims leave; None if they say nothing about ours."""
        if self.may is not None:
            return known_scopes(_words(self.may))
        is_text = isinstance(self.scope, str | list)
        return (known_scopes(_words(self.scope)) or None) if is_text else None


def _words(claim: str | list[Any]) -> list[str]:
    words = claim.split() if isinstance(claim, str) else claim
    return [word for word in words if isinstance(word, str)]


def _signed_claims(token: str, secret: bytes) -> _BearerClaims:
    """The claims of a JWT with a valid signature. Raises ValueError for anything else."""
    import hmac

    signed, _, signature = token.rpartition(".")
    header, dot, payload = signed.partition(".")
    if not dot:
        raise ValueError("a JWT has three segments")
    if _decode_object(_base64url(header), _JwtHeader).crit is not msgspec.UNSET:
        raise ValueError("critical extensions are not understood")
    digest = hmac.digest(secret, signed.encode("ascii"), "sha256")
    if not hmac.compare_digest(digest, _base64url(signature)):
        raise ValueError("signature mismatch")
    return _decode_object(_base64url(payload), _BearerClaims)


def _base64url(text: str) -> bytes:
    """Decode unpadded base64url. Raises ValueError for a spelling that is not canonical."""
    from binascii import a2b_base64, b2a_base64

    padding = "=" * (-len(text) % 4)
    data = a2b_base64(text.translate({0x2D: "+", 0x5F: "/"}) + padding)
    spelled = b2a_base64(data, newline=False).rstrip(b"=").translate(_TO_URL_ALPHABET)
    if spelled != text.encode("ascii"):
        raise ValueError("not canonical base64url")
    return data


_TO_URL_ALPHABET = bytes.maketrans(b"+/", b"-_")


class _MemberName(str):
    """A key of an object. msgspec calls a hook for each key, also for repeated ones."""


_T = TypeVar("_T", bound=msgspec.Struct)


def _decode_object(data: bytes, kind: type[_T]) -> _T:
    """Decode a JSON object in which no member that *kind* names occurs twice."""
    names: list[str] = []

    def note(_: type, name: str) -> _MemberName:
        names.append(name)
        return _MemberName(name)

    msgspec.json.decode(data, type=dict[_MemberName, msgspec.Raw], dec_hook=note)
    if any(names.count(field) > 1 for field in kind.__struct_encode_fields__):
        raise ValueError("duplicate member")
    return msgspec.json.decode(data, type=kind)


def token_digests(authenticator: Authenticator | None) -> tuple[bytes, ...]:
    """The digests of the tokens that are known as such; logs must not have these tokens."""
    return (authenticator.digest,) if isinstance(authenticator, CapabilityToken) else ()


def check_options(options: AuthOptions) -> None:
    """Raise ConfigurationError for options that contradict each other. Reads no file."""
    if options.mode == "capability-token":
        _check_capability_options(options)
    elif options.mode == "signed-bearer-token":
        _check_signed_options(options)
    elif _has_capability_details(options) or _has_signed_details(options):
        raise ConfigurationError(
            "websocket auth flags require `--ws-auth capability-token` "
            "or `--ws-auth signed-bearer-token`"
        )


def from_options(options: AuthOptions) -> Authenticator | None:
    """The authenticator that the options describe, or None when they ask for none.

    Reads the token or secret file. Raises ConfigurationError for options that contradict each
    other and for files that cannot be used; its text follows ``Error: ``.
    """
    check_options(options)
    if options.mode is None:
        return None
    if options.mode == "signed-bearer-token":
        return _signed_bearer_token(options)
    return CapabilityToken(_token_digest(options))


def _has_capability_details(options: AuthOptions) -> bool:
    return options.token_file is not None or options.token_sha256 is not None


def _has_signed_details(options: AuthOptions) -> bool:
    details = (
        options.shared_secret_file,
        options.issuer,
        options.audience,
        options.max_clock_skew_seconds,
    )
    return any(detail is not None for detail in details)


def _check_capability_options(options: AuthOptions) -> None:
    if _has_signed_details(options):
        raise ConfigurationError(
            "`--ws-shared-secret-file`, `--ws-issuer`, `--ws-audience`, and "
            "`--ws-max-clock-skew-seconds` require `--ws-auth signed-bearer-token`"
        )
    if options.token_file is not None and options.token_sha256 is not None:
        raise ConfigurationError("`--ws-token-file` and `--ws-token-sha256` are mutually exclusive")
    if not _has_capability_details(options):
        raise ConfigurationError(
            "`--ws-token-file` or `--ws-token-sha256` is required "
            "when `--ws-auth capability-token` is set"
        )
    if options.token_sha256 is not None:
        _parse_digest(options.token_sha256)


def _check_signed_options(options: AuthOptions) -> None:
    if _has_capability_details(options):
        raise ConfigurationError(
            "`--ws-token-file` and `--ws-token-sha256` require "
            "`--ws-auth capability-token`, not `signed-bearer-token`"
        )
    if options.shared_secret_file is None:
        raise ConfigurationError(
            "`--ws-shared-secret-file` is required when `--ws-auth signed-bearer-token` is set"
        )


def _token_digest(options: AuthOptions) -> bytes:
    from hashlib import sha256

    if options.token_sha256 is not None:
        return _parse_digest(options.token_sha256)
    assert options.token_file is not None
    return sha256(read_secret(absolute(options.token_file)).encode()).digest()


def _parse_digest(text: str) -> bytes:
    digits = trim(text)
    # `fromhex` alone would skip white space between bytes.
    if len(digits) == 64 and set(digits) <= set("0123456789abcdefABCDEF"):
        return bytes.fromhex(digits)
    raise ConfigurationError("--ws-token-sha256 must be a 64-character hex SHA-256 digest")


def _signed_bearer_token(options: AuthOptions) -> SignedBearerToken:
    assert options.shared_secret_file is not None
    path = absolute(options.shared_secret_file)
    secret = read_secret(path).encode()
    if len(secret) < MIN_SECRET_BYTES:
        raise ConfigurationError(
            f"signed websocket bearer secret {path} must be at least {MIN_SECRET_BYTES} bytes"
        )
    return SignedBearerToken(
        secret, _given(options.issuer), _given(options.audience), _clock_skew(options)
    )


def _clock_skew(options: AuthOptions) -> int:
    if options.max_clock_skew_seconds is None:
        return DEFAULT_CLOCK_SKEW
    if options.max_clock_skew_seconds > _I64_MAX:
        raise ConfigurationError("websocket auth clock skew must fit in a signed 64-bit integer")
    return options.max_clock_skew_seconds


def _given(text: str | None) -> str | None:
    """The trimmed text; None if it is blank."""
    return trim(text or "") or None
