"""The TLS of a client: whom it trusts, and its own certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from exec_server.client.connect_options import ConnectOptions
from exec_server.errors import ConfigurationError

if TYPE_CHECKING:
    from ssl import SSLContext


def tls_context(options: ConnectOptions) -> SSLContext | None:
    """The context that *options* describe; None is the usual one, with the system's authorities.

    The files are read once: a client that runs for long keeps its certificate. Raises
    ConfigurationError.
    """
    names = ("ca_file", "client_cert", "client_key")
    given = [name for name in names if getattr(options, name) is not None]
    if not given:
        return options.ssl_context
    if options.ssl_context is not None:
        raise ConfigurationError(f"give an ssl_context or {given[0]}, not both")
    if options.client_key is not None and options.client_cert is None:
        raise ConfigurationError("a client key needs a client certificate")
    import ssl

    try:
        context = ssl.create_default_context(cafile=options.ca_file)
    except OSError as exc:
        raise ConfigurationError(_unusable("CA file", options.ca_file, exc)) from exc
    if options.client_cert is not None:
        try:
            context.load_cert_chain(options.client_cert, options.client_key, _no_password)
        except (OSError, ValueError) as exc:
            text = _unusable("client certificate", options.client_cert, exc)
            raise ConfigurationError(text) from exc
    return context


def _unusable(kind: str, path: str | None, exc: Exception) -> str:
    why = (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
    return f"cannot use the {kind} {path}: {why}"


def _no_password() -> str:
    # Without this function OpenSSL would ask for the password on the terminal.
    raise ValueError("its key is encrypted; remove the password with `openssl pkey`")
