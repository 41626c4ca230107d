"""What a certificate says: until when it is valid, and who has issued it."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Sequence

logger = logging.getLogger(__name__)

# An authority such as Let's Encrypt has renewed a certificate by then.
_SOON = datetime.timedelta(days=14)


def warn_of_end(path: str, *, now: datetime.datetime | None = None) -> None:
    """Warn if the first certificate in a file has expired, is not valid yet, or expires soon."""
    # The library takes long to load.
    from cryptography import x509

    try:
        with open(path, "rb") as file:
            certificate = x509.load_pem_x509_certificates(file.read())[0]
    except (OSError, ValueError):
        # OpenSSL has read it, and decides.
        return
    now = now or datetime.datetime.now(datetime.UTC)
    ends, begins = certificate.not_valid_after_utc, certificate.not_valid_before_utc
    if ends <= now:
        problem = "has expired"
    elif begins > now:
        problem = f"is not valid before {begins:%Y-%m-%d %H:%M} UTC"
    elif ends - now < _SOON:
        problem = f"expires soon, at {ends:%Y-%m-%d %H:%M} UTC"
    else:
        return
    logger.warning("the certificate %s %s", path, problem, extra={"notice": "certificate"})


def is_issued_by(certificate: bytes, authorities: Sequence[bytes]) -> bool:
    """True if one of *authorities* is this *certificate*, or has issued it itself. All are DER."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    if certificate in authorities:
        return True
    found = x509.load_der_x509_certificate(certificate)
    for authority in authorities:
        try:
            found.verify_directly_issued_by(x509.load_der_x509_certificate(authority))
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False
