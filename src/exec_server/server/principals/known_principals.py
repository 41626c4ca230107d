"""The principals of a file, found by what they prove: a token, a certificate, a user, a name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from exec_server.access.principal_record import PrincipalRecord


class KnownPrincipals:
    """The records of a file of principals at one moment, good ones and others."""

    def __init__(self, records: Iterable[PrincipalRecord]) -> None:
        self._records = {record.name: record for record in records}
        self._by_digest: dict[bytes, PrincipalRecord] = {}
        self._by_certificate: dict[str, PrincipalRecord] = {}
        self._by_uid: dict[int, PrincipalRecord] = {}
        self._by_subject: dict[str, PrincipalRecord] = {}
        for record in self._records.values():
            if record.digest is not None:
                self._by_digest[record.digest] = record
            self._by_subject |= dict.fromkeys(record.all_subjects, record)
            self._by_certificate |= dict.fromkeys(record.certificates, record)
            for user in record.unix_users:
                uid = _uid(user)
                if uid is None:
                    _tell_unknown_user(record.name, user)
                else:
                    self._by_uid[uid] = record

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KnownPrincipals) and other._records == self._records

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, name: str) -> bool:
        return name in self._records

    def of_digest(self, digest: bytes) -> PrincipalRecord | None:
        return self._by_digest.get(digest)

    def of_certificate(self, names: Sequence[str]) -> PrincipalRecord | None:
        """The principal of a certificate with these *names*; the first known one counts."""
        found = (self._by_certificate.get(name) for name in names)
        return next((record for record in found if record is not None), None)

    def of_user(self, uid: int) -> PrincipalRecord | None:
        return self._by_uid.get(uid)

    def of_subject(self, subject: str) -> PrincipalRecord | None:
        return self._by_subject.get(subject)

    def next_expiry(self, now: float) -> float | None:
        """When the next of them expires."""
        ends = [record.expires_at for record in self._records.values() if record.is_good(now)]
        return min((end for end in ends if end is not None), default=None)


def _tell_unknown_user(name: str, user: str) -> None:
    # Logging takes milliseconds to load, which reading options can save.
    import logging

    logger = logging.getLogger(__name__)
    logger.error("principal `%s`: there is no user `%s` on this machine", name, user)


def _uid(user: str) -> int | None:
    """The number of a user of this machine, which may be given as such."""
    if user.isascii() and user.isdigit():
        return int(user)
    import pwd

    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None
