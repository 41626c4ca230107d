"""`exec-server protocol`: print the protocol as data."""

from __future__ import annotations

import sys

from exec_server.cli import exit_codes
from exec_server.cli.parser import Flag, Parser

_DESCRIPTION = """\
Print the protocol as data: all methods, notifications and errors, with their parameters, results,
examples and the dialect that each belongs to. A server answers the same to `rpc.discover`.
"""

_EPILOG = """\
exit status:
  0    the document was printed
  2    the command line is wrong

examples:
      exec-server protocol > openrpc.json
      exec-server protocol --json-schema | jq '."$defs".StartParams'
"""


def protocol_command(words: list[str]) -> int:
    """Print what *words* ask for."""
    parser = Parser(
        "exec-server protocol", usage="[OPTIONS]", description=_DESCRIPTION, epilog=_EPILOG
    )
    parser.add_argument("--openrpc", action=Flag, help="print an OpenRPC document [default]")
    parser.add_argument("--json-schema", action=Flag, help="print JSON Schemas of all messages")
    values = parser.parse_words(words)
    if values.openrpc and values.json_schema:
        parser.error("the argument '--openrpc' cannot be used with '--json-schema'")
    from exec_server.schema.openrpc import encoded_json_schemas, encoded_openrpc

    document = encoded_json_schemas() if values.json_schema else encoded_openrpc()
    sys.stdout.write(document.decode())
    return exit_codes.OK
