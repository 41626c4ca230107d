"""Who gets in, while tokens and principals change; who may no longer stay is put out.

::

    token, certificate or user ─▶ Credential ─▶ Principal ─▶ a connection with an Admission
                                                     ▲ judged again after every change
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from weakref import WeakSet

from msgspec.structs import replace

from exec_server.access.token_secrets import digest_of
from exec_server.server.authentication import Authenticator, SignedBearerToken, bearer_token
from exec_server.server.principals.admission import (
    Admission,
    AnyCertificate,
    CertificateNames,
    Credential,
    NotAdmitted,
    OwnToken,
    ServerToken,
    SignedSubject,
    UnixUser,
    certificate_names,
    client_certificate,
)
from exec_server.server.principals.known_principals import KnownPrincipals
from exec_server.transport.connection import Connection
from exec_server.transport.socket_owner import unix_owner

logger = logging.getLogger(__name__)

REVOKED = "the token of this connection is no longer accepted"


class LiveAccess:
    """Judges clients by the present tokens and principals, and keeps the connections they got."""

    def __init__(
        self,
        authenticator: Authenticator | None,
        serve: Callable[[Connection], None],
        *,
        known: KnownPrincipals | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """*known* are the principals of a file; None if there is no file."""
        self._authenticator = authenticator
        self._known = known
        self._serve = serve
        self._clock = clock
        self._connections: WeakSet[Connection] = WeakSet()
        # Called with the name and the address of a principal of the file that has connected.
        self.on_use: Callable[[str, str], None] | None = None

    @property
    def is_guarded(self) -> bool:
        """True if clients need a token, or something else that tells who they are."""
        return self._authenticator is not None or self._known is not None

    # Clients that come.

    def check(self, transport: asyncio.BaseTransport, authorization: str | None) -> str | None:
        """None if the client of a WebSocket gets in, else what it is told."""
        try:
            self._admit(transport, authorization)
        except NotAdmitted as refused:
            return str(refused)
        return None

    def identify(
        self, transport: asyncio.BaseTransport, authorization: str | None
    ) -> Admission | None:
        """Who the client of a WebSocket is, that `check` has let in; None is our own user."""
        certificate = client_certificate(transport)
        if self.is_guarded:
            found = self._admit(transport, authorization)
        elif certificate is not None:
            found = self._admission(AnyCertificate())
        else:
            return None
        return found if certificate is None else replace(found, certificate=certificate)

    def identify_user(
        self, transport: asyncio.BaseTransport, _authorization: str | None
    ) -> Admission:
        """Who the client at a Unix socket is. Raises NotAdmitted."""
        try:
            uid = unix_owner(transport.get_extra_info("socket").fileno()).uid
        except OSError as exc:
            raise NotAdmitted("the user behind this connection could not be found") from exc
        return self._admission(UnixUser(uid))

    def refusal_of_user(self, uid: int) -> str | None:
        """Why a user may not use a Unix socket, as far as the principals say it."""
        try:
            self._admission(UnixUser(uid))
        except NotAdmitted as refused:
            return str(refused)
        return None

    def _admit(self, transport: asyncio.BaseTransport, authorization: str | None) -> Admission:
        if authorization is None and self._known is not None:
            names = certificate_names(transport)
            if names:
                return self._admission(CertificateNames(names))
        if self._known is not None:
            digest = digest_of(bearer_token(authorization))
            if self._authenticator is None or self._known.of_digest(digest) is not None:
                return self._admission(OwnToken(digest))
        assert self._authenticator is not None
        refusal = self._authenticator.check(authorization)
        if refusal is not None:
            raise NotAdmitted(refusal)
        if isinstance(self._authenticator, SignedBearerToken):
            return self._admission(self._authenticator.subject(authorization))
        return self._admission(ServerToken())

    def _admission(self, credential: Credential) -> Admission:
        principal = credential.principal(self._known, self._clock())
        return Admission(principal=principal, credential=credential)

    def serve(self, connection: Connection) -> None:
        """Serve a connection that was let in just now."""
        admission = connection.identity
        if isinstance(admission, Admission):
            self._connections.add(connection)
            is_in_file = self._known is not None and admission.name in self._known
            if is_in_file and self.on_use is not None:
                self.on_use(admission.name, connection.peer_name)
        self._serve(connection)

    # Changes.

    def replace(self, authenticator: Authenticator) -> None:
        """Use *authenticator* from now on. If it accepts other tokens, its connections end."""
        if authenticator == self._authenticator:
            return
        self._authenticator = authenticator
        self._end("the tokens have changed", lambda found: not _needs_no_token(found))

    def replace_principals(self, known: KnownPrincipals) -> None:
        """Use these principals from now on; connections end whose principal is now another one."""
        if known == self._known:
            return
        self._known = known
        self.review("the principals have changed")

    def review(self, reason: str) -> None:
        """End the connections that would not be let in any more with the rights that they have."""
        now = self._clock()
        self._end(reason, lambda found: not found.is_still_good(self._known, now))

    def authority_removed(self, left: Sequence[bytes]) -> None:
        """End the connections whose certificates none of the authorities *left* has issued."""
        from exec_server.transport.certificate_facts import is_issued_by

        def is_meant(admission: Admission) -> bool:
            found = admission.certificate
            return found is not None and not is_issued_by(found, left)

        self._end("an authority was removed", is_meant)

    def next_expiry(self) -> float | None:
        """When the next principal of the file expires."""
        return None if self._known is None else self._known.next_expiry(self._clock())

    def _end(self, reason: str, is_meant: Callable[[Admission], bool]) -> None:
        ended = [each for each in self._connections if is_meant(_admission_of(each))]
        logger.info("%s; %d connections end", reason, len(ended))
        for connection in ended:
            self._connections.discard(connection)
            connection.close(REVOKED, is_violation=True)


def _admission_of(connection: Connection) -> Admission:
    admission = connection.identity
    assert isinstance(admission, Admission)
    return admission


def _needs_no_token(admission: Admission) -> bool:
    """True if it was let in by something else than a token of the server's own options."""
    return not isinstance(admission.credential, ServerToken | SignedSubject)
