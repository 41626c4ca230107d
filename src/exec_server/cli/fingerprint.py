"""`exec-server fingerprint`: what to compare before an executor is trusted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from exec_server.cli import exit_codes, server_access
from exec_server.cli.parser import Parser
from exec_server.cli.process.saved_session_options import token_of
from exec_server.errors import ConfigurationError
from exec_server.remote.identity import load_identity

if TYPE_CHECKING:
    from exec_server.remote.harness.dialler import NoiseDialler

_DESCRIPTION = """\
Print the fingerprint of an executor's key: of a file that `exec-server keygen` made, on the machine
that it is on; or of what a registry says about an environment, which is worth as much as the
registry is until it was compared with the former.
"""

_EPILOG = f"""\
{server_access.TOKEN_HELP}
exit status:
  0    printed
  1    no fingerprint could be found, or it is not the pinned or known one
  2    the command line is wrong

examples:
  Where the executor runs:
      exec-server fingerprint ~/.config/exec-server.identity

  What the registry says:
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
        help="an identity file (./FILE where it has the name of an environment), the name of an "
        "environment, or noise+https://REGISTRY/ENVIRONMENT",
    )
    server_access.add_connection_options(parser)
    values = parser.parse_intermixed_args(words)

    token = token_of(parser, values)

    async def fingerprint() -> int:
        dialler = _dialler(values.of, token, values.pin)
        if dialler is None:
            print(load_identity(Path(values.of)).public.fingerprint)
            return exit_codes.OK
        found = (await dialler.executor_key()).fingerprint
        print(found, flush=True)
        # Whoever has to be frightened is, after the fact was told.
        dialler.trust.check(found)
        return exit_codes.OK

    return server_access.run_command(fingerprint, log_level=values.log_level)


def _dialler(text: str, token: str | None, pin: str | None) -> NoiseDialler | None:
    """The way to an environment; None when *text* is to be a file."""
    from exec_server.client.connect_options import ConnectOptions, UrlOptions
    from exec_server.client.environments.kinds import RendezvousEnvironment
    from exec_server.client_urls import noise_dialler, rendezvous

    if server_access.is_url(text):
        token = token or os.environ.get(server_access.TOKEN_VARIABLE) or None
        return noise_dialler(text, UrlOptions(token=token, pin=pin))
    manager = server_access.environments()
    if text not in manager.names:
        return None
    environment = manager.resolve(text)
    if not isinstance(environment, RendezvousEnvironment):
        raise ConfigurationError(f"`{text}` is not behind a registry and has no such key")
    return rendezvous(environment, ConnectOptions(token=token, pin=pin))
