"""`exec-server cert`: make an authority, and certificates for servers and clients of a lab."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from exec_server.cli import exit_codes
from exec_server.cli.log_setup import print_error
from exec_server.cli.options import add_output
from exec_server.cli.parser import Flag, Parser, positive_count
from exec_server.cli.tables import print_json, print_json_failure
from exec_server.errors import ConfigurationError

if TYPE_CHECKING:
    from exec_server.cli.cert.lab_authority import IssuedCertificate

_DESCRIPTION = """\
Make an authority of your own, and certificates for servers and clients of a lab. All files are
written into DIR with mode 0600. Keep ca-key.pem secret: its owner can issue certificates that your
clients and servers trust.
"""

_EPILOG = """\
exit status:
  0    the files were made
  1    they exist already, cannot be written, or the authority is missing
  2    the command line is wrong

examples:
  Make an authority, a certificate for a server, and one for a client:
      exec-server cert ca lab
      exec-server cert server lab build-1.lab 192.0.2.11
      exec-server cert client lab alice

  Serve only clients that have a certificate of this authority:
      exec-server --listen ws://192.0.2.11:8765 --tls-cert lab/server-build-1.lab.pem \\
          --tls-key lab/server-build-1.lab-key.pem --tls-client-ca lab/ca.pem

  Connect as such a client; it needs ca.pem and its own two files:
      exec-server run --ca-file ca.pem --client-cert client-alice.pem \\
          --client-key client-alice-key.pem wss://build-1.lab:8765 -- uname -a
"""

_ACTIONS = ("ca", "server", "client")
_DAYS = {"ca": 3650, "server": 365, "client": 365}


def cert_command(words: list[str]) -> int:
    """Make the certificate that *words* describe."""
    parser = cert_parser()
    values = parser.parse_words(words)
    names: list[str] = values.names
    if values.action == "ca" and len(names) > 1:
        parser.error("an authority has one name")
    if values.action == "server" and not names:
        parser.error("give the host names and addresses by which clients reach the server")
    if values.action == "client" and len(names) != 1:
        parser.error("give one name for the client")
    try:
        made = _make(values)
    except ConfigurationError as exc:
        print_error(str(exc))
        if values.output == "json":
            print_json_failure(exit_codes.FAILED)
        return exit_codes.FAILED
    if values.output == "json":
        print_json(made)
    else:
        _show(values.action, made)
    return exit_codes.OK


def cert_parser() -> Parser:
    parser = Parser(
        "exec-server cert",
        usage="[OPTIONS] <ca | server | client> <DIR> [NAME]...",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument(
        "action",
        metavar="ACTION",
        choices=_ACTIONS,
        help="ca: the authority itself; server: a certificate for host names and addresses; "
        "client: a certificate for a client",
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="the directory of the authority")
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="*",
        help="the hosts of a server, or the name of a client or authority",
    )
    parser.add_argument(
        "--days",
        metavar="<N>",
        type=positive_count,
        help="how long the certificate is valid [default: 3650 for ca, else 365]",
    )
    parser.add_argument("--force", action=Flag, help="replace files that exist already")
    add_output(parser)
    return parser


def _make(values: argparse.Namespace) -> IssuedCertificate:
    # The library for certificates takes long to load.
    from exec_server.cli.cert.lab_authority import LabAuthority

    authority = LabAuthority(values.folder, may_replace=values.force)
    days = values.days or _DAYS[values.action]
    if values.action == "server":
        return authority.issue_server(values.names, days=days)
    if values.action == "client":
        return authority.issue_client(values.names[0], days=days)
    return authority.create((values.names or ["exec-server lab"])[0], days=days)


def _show(action: str, made: IssuedCertificate) -> None:
    print(made.certificate)
    print(made.key)
    hints = {
        "ca": f"an authority until {made.not_after}; clients trust it with --ca-file "
        f"{made.certificate}, servers with --tls-client-ca {made.certificate}",
        "server": f"for {', '.join(made.names)} until {made.not_after}; use it with --tls-cert "
        f"{made.certificate} --tls-key {made.key}",
        "client": f"for {made.names[0]} until {made.not_after}; use it with --ca-file {made.ca} "
        f"--client-cert {made.certificate} --client-key {made.key}",
    }
    print(hints[action], file=sys.stderr)
