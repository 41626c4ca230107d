"""Trusted certificates: the system's, and those of a file that the environment names."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from exec_server.errors import InternalError
from exec_server.outbound.shortages import shortage

# The first variable that is set and not empty counts.
_VARIABLES = ("CODEX_CA_CERTIFICATE", "SSL_CERT_FILE")


def extra_certificates(environ: Mapping[str, str]) -> str | None:
    """Return the certificates of that file, in PEM; None if none is named. Raises InternalError."""
    variable = next((name for name in _VARIABLES if environ.get(name)), None)
    if variable is None:
        return None
    path = environ[variable]
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError as exc:
        raise InternalError(
            f"http/request failed: Failed to read CA certificate file {path} "
            f"selected by {variable}: {exc.strerror}"
        ) from exc
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as exc:
        raise InternalError(
            f"http/request failed: Failed to load CA certificates from {path} "
            f"selected by {variable}: no certificates found in PEM file"
        ) from exc
    return text


def tls_context(extra: str | None) -> ssl.SSLContext:
    """Return a context that verifies targets with the system's roots and *extra* ones."""
    context = ssl.create_default_context()
    # SSL_CERT_FILE makes OpenSSL skip the system's own file, which is trusted as well.
    system_file = ssl.get_default_verify_paths().openssl_cafile
    try:
        context.load_verify_locations(cafile=system_file)
    except OSError as exc:
        # Not every system has the file; its certificates may be in a directory. But a context that
        # lacks the roots only because of a shortage must not stay.
        if shortage(exc) is not None:
            raise
    if extra is not None:
        context.load_verify_locations(cadata=extra)
    return context
