"""How a client has proved who it is, and which principal that makes it.

A credential is kept with its connection. It is judged again when the principals change, so that a
connection ends as soon as its credential would no longer be accepted, or means another principal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from exec_server.access.principal import (
    TOKEN_BEARER,
    Principal,
    Scope,
    unrestricted,
)
from exec_server.access.principal_record import PrincipalRecord
from exec_server.server.principals.known_principals import KnownPrincipals

if TYPE_CHECKING:
    import asyncio

_ROOT = 0


class NotAdmitted(PermissionError):
    """The client is refused; the text is what it is told."""


class Credential(Protocol):
    """What a client has proved to have, or to be."""

    def principal(self, known: KnownPrincipals | None, now: float) -> Principal:
        """The principal of it, if there are these *known* ones in a file. Raises NotAdmitted."""
        ...


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """A client that was let in."""

    principal: Principal
    credential: Any
    # The certificate of the client (DER), if the handshake has asked for one.
    certificate: bytes | None = None

    @property
    def name(self) -> str:
        return self.principal.name

    def is_still_good(self, known: KnownPrincipals | None, now: float) -> bool:
        """True if the credential is accepted and means the same principal, with the same rights."""
        credential: Credential = self.credential
        try:
            return credential.principal(known, now) == self.principal
        except NotAdmitted:
            return False


class ServerToken(msgspec.Struct, frozen=True):
    """The one token of `--ws-auth capability-token`."""

    def principal(self, known: KnownPrincipals | None, now: float) -> Principal:
        return unrestricted(TOKEN_BEARER)


class OwnToken(msgspec.Struct, frozen=True):
    """The token of a principal."""

    digest: bytes

    def principal(self, known: KnownPrincipals | None, now: float) -> Principal:
        found = None if known is None else known.of_digest(self.digest)
        if found is None:
            raise NotAdmitted("invalid websocket bearer token")
        return _good(found, now)


class SignedSubject(msgspec.Struct, frozen=True):
    """The subject of a JWT, and the scopes that its claims leave; None if they say nothing."""

    subject: str | None
    may: frozenset[Scope] | None = None
    # True if its claims say that the bearer is an agent.
    is_agent: bool = False

    def principal(self, known: KnownPrincipals | None, now: float) -> Principal:
        name = TOKEN_BEARER if self.subject is None else f"sub:{self.subject}"
        found = None
        if known is not None and self.subject is not None:
            found = known.of_subject(self.subject)
        if found is not None:
            whole = _good(found, now)
        elif known is not None and self.may is None:
            raise NotAdmitted("the jwt names no principal of this server, and no scopes")
        else:
            whole = unrestricted(name)
        if self.is_agent:
            whole = msgspec.structs.replace(whole, kind="agent")
        return whole if self.may is None else whole.narrowed(self.may)


class AnyCertificate(msgspec.Struct, frozen=True):
    """A certificate that the handshake has accepted, on a server without principals and tokens."""

    def principal(self, known: KnownPrincipals | None, now: float) -> Principal:
        return unrestricted(own_principal())


class CertificateNames(msgspec.Struct, frozen=True):
    """The names in a client's certificate, which the handshake has verified."""

    names: tuple[str, ...]

    def principal(self, known: KnownPrincipals | None, now: float) -> Principal:
        found = None if known is None else known.of_certificate(self.names)
        if found is None:
            raise NotAdmitted("no principal has this certificate, and there is no bearer token")
        return _good(found, now)


class UnixUser(msgspec.Struct, frozen=True):
    """The user at the other end of a Unix socket."""

    uid: int

    def principal(self, known: KnownPrincipals | None, now: float) -> Principal:
        found = None if known is None else known.of_user(self.uid)
        if found is not None:
            return _good(found, now)
        # The server's own user could change the file, and so could root.
        if known is not None and self.uid not in (os.geteuid(), _ROOT):
            raise NotAdmitted(f"no principal of this server is the user with the uid {self.uid}")
        return unrestricted(user_name(self.uid))


def user_name(uid: int) -> str:
    """The name of the principal that a user is without a file of principals."""
    return f"uid:{uid}"


def own_principal() -> str:
    """The user that has started the server."""
    return user_name(os.geteuid())


def _good(record: PrincipalRecord, now: float) -> Principal:
    if not record.is_good(now):
        what = "was revoked" if record.revoked_at is not None else "has expired"
        raise NotAdmitted(f"the access of the principal `{record.name}` {what}")
    return record.principal


def certificate_names(transport: asyncio.BaseTransport) -> tuple[str, ...]:
    """The names in the certificate of the peer, the common name first; none without TLS."""
    certificate = transport.get_extra_info("peercert") or {}
    return (*_common_names(certificate), *_alternative_names(certificate))


def client_certificate(transport: asyncio.BaseTransport) -> bytes | None:
    """The certificate of the peer (DER), if it was asked for one."""
    tls = transport.get_extra_info("ssl_object")
    return None if tls is None else tls.getpeercert(binary_form=True)


def _common_names(certificate: dict[str, Any]) -> Iterator[str]:
    parts: Sequence[Sequence[tuple[str, str]]] = certificate.get("subject", ())
    for part in parts:
        yield from (value for kind, value in part if kind == "commonName")


def _alternative_names(certificate: dict[str, Any]) -> Iterator[str]:
    names: Sequence[tuple[str, Any]] = certificate.get("subjectAltName", ())
    yield from (value for _, value in names if isinstance(value, str))
