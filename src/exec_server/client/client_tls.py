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
        why = exc.strerror or str(exc)
        raise ConfigurationError(f"cannot use the CA file {options.ca_file}: {why}") from exc
    if options.client_cert is not None:
        try:
            context.load_cert_chain(options.client_cert, options.client_key, _no_password)
        except (OSError, ValueError) as exc:
            from exec_server.transport.certificate import why_unusable

            why = why_unusable(exc, options.client_cert, options.client_key)
            text = f"cannot use the client certificate {options.client_cert}: {why}"
            raise ConfigurationError(text) from exc
    return context


def _no_password() -> str:
    # Without this function OpenSSL would ask for the password on the terminal.
    raise ValueError("its key is encrypted; remove the password with `openssl pkey`")
