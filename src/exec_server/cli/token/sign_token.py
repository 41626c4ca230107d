"""`exec-server token sign`: make a signed token (JWT) for a principal."""

from __future__ import annotations

import argparse
import time
from typing import Any

from exec_server.access.principal import in_order
from exec_server.access.signed_token import signed_token
from exec_server.cli import exit_codes
from exec_server.cli.options import Options
from exec_server.cli.parser import Parser, path
from exec_server.cli.tables import print_json
from exec_server.errors import ConfigurationError

_LIFETIME = 3600.0


def add_sign_options(options: Options) -> None:
    add = options.add_argument
    add(
        "--shared-secret-file",
        metavar="<PATH>",
        type=path,
        help="the file that the server has as --ws-shared-secret-file",
    )
    add("--issuer", metavar="<ISSUER>", help="`iss`, for a server with --ws-issuer")
    add("--audience", metavar="<AUDIENCE>", help="`aud`, for a server with --ws-audience")


def sign(parser: Parser, values: argparse.Namespace) -> int:
    """Print a token for the subject that is named. Raises ConfigurationError."""
    if len(values.names) != 1:
        parser.error("`sign` needs one name")
    if values.shared_secret_file is None:
        parser.error("`sign` needs --shared-secret-file <PATH>")
    (subject,) = values.names
    if not subject.strip() or not subject.isprintable():
        parser.error("the name has to be printable")
    secret = _secret(values.shared_secret_file)
    claims = _claims(subject, values, now=int(time.time()))
    token = signed_token(claims, secret)
    if values.output == "json":
        print_json({"name": subject, "token": token, "expiresAt": claims["exp"]})
    else:
        print(token)
    return exit_codes.OK


def _secret(file: str) -> bytes:
    from exec_server.server.authentication import MIN_SECRET_BYTES
    from exec_server.server.secret_files import absolute, read_secret

    secret = read_secret(absolute(file)).encode()
    if len(secret) < MIN_SECRET_BYTES:
        raise ConfigurationError(f"the secret in {file} has fewer than {MIN_SECRET_BYTES} bytes")
    return secret


def _claims(subject: str, values: argparse.Namespace, *, now: int) -> dict[str, Any]:
    lifetime = _LIFETIME if values.expires is None else values.expires
    claims = {
        "sub": subject,
        "iat": now,
        "exp": now + int(lifetime),
        "iss": values.issuer,
        "aud": values.audience,
        "kind": values.kind,
        "may": None if values.may is None else in_order(values.may),
    }
    return {name: value for name, value in claims.items() if value is not None}
