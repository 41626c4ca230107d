"""`exec-server fingerprint`: print the fingerprint of an executor's key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from exec_server.cli import exit_codes, server_access
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.options import (
    TOKEN_HELP,
    TOKEN_VARIABLE,
    Token,
    add_connection_options,
    server_token,
    tls_files,
)
from exec_server.cli.parser import Parser
from exec_server.errors import ConfigurationError
from exec_server.remote.identity import load_identity

if TYPE_CHECKING:
    from exec_server.remote.harness.dialler import NoiseDialler

_DESCRIPTION = """\
Print the fingerprint of an executor's key. On the machine of the executor, give the file that
`exec-server keygen` made. On another machine, give the environment: the registry is asked for its
key. Compare the two fingerprints before you trust the key that the registry names.
"""

_EPILOG = f"""\
{TOKEN_HELP}
exit status:
  0    printed
  1    there is no such key, or it is not the pinned or known one
  2    the command line is wrong

examples:
  On the machine of the executor:
      exec-server fingerprint ~/.config/exec-server.identity

  On another machine, from the registry:
      exec-server fingerprint noise+https://registry.example.net/big-1
"""


def fingerprint_command(words: list[str]) -> int:
    """Print the fingerprint that *words* ask for."""
    parser = Parser(
        "exec-server fingerprint",
        usage="[OPTIONS] <FILE | NAME | URL>",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument(
        "of",
        metavar="FILE | NAME | URL",
        help="an identity file (write ./FILE if an environment has the same name), the name of an "
        "environment, or noise+https://REGISTRY/ENVIRONMENT",
    )
    add_connection_options(parser)
    values = parser.parse_words(words)

    async def fingerprint() -> int:
        token = server_token(parser, values)
        dialler = _dialler(values.of, token, values.pin)
        if dialler is None:
            print(load_identity(Path(values.of)).public.fingerprint)
            return exit_codes.OK
        found = (await dialler.executor_key()).fingerprint
        print(found, flush=True)
        # The fingerprint is printed first: the check may end the command with an error.
        dialler.trust.check(found)
        return exit_codes.OK

    return run_to_exit_status(fingerprint, log_level=values.log_level)


def _dialler(text: str, token: Token | None, pin: str | None) -> NoiseDialler | None:
    """The dialler of an environment; None if *text* is the name of a file."""
    from exec_server.client.connect_options import ConnectOptions, UrlOptions
    from exec_server.client.environments.kinds import RendezvousEnvironment
    from exec_server.connecting import noise_dialler, rendezvous

    if server_access.is_url(text):
        token = token or os.environ.get(TOKEN_VARIABLE) or None
        return noise_dialler(text, UrlOptions(token=token, pin=pin, **tls_files()))
    manager = server_access.environments()
    if text not in manager.names:
        if "/" not in text and not Path(text).exists():
            raise ConfigurationError(
                f"`{text}` is neither a file nor a name that `exec-server env` lists"
            )
        return None
    environment = manager.resolve(text)
    if not isinstance(environment, RendezvousEnvironment):
        raise ConfigurationError(f"`{text}` is not behind a registry and has no such key")
    return rendezvous(environment, ConnectOptions(token=token, pin=pin, **tls_files()))
