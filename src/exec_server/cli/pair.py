"""`exec-server pair`: a code on one machine, typed on another, and the second may use the first."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import msgspec

from exec_server.cli import connecting, exit_codes, pair_code
from exec_server.cli.arguments import Parser
from exec_server.cli.registry_options import add_registry, ask, token_of
from exec_server.client.environments import paired
from exec_server.client.environments.config import check_id
from exec_server.errors import ConfigurationError, RegistryError, UntrustedExecutor

_DESCRIPTION = """\
Introduce two machines that both reach a registry. On the machine that runs commands, give the name
of its environment: a code is printed, good once and for five minutes. On the other machine, give
the code: from then on the environment has a name there, which every command takes for a server,
and only the holder of the first machine's key is believed to be it.
"""

_EPILOG = """\
The key is in the --identity file, which is made when it is missing; serve the environment with it.
The last part of the code is not told to the registry, so that it cannot put in another key.

exit status:
  0    a code was printed, or the environment has its name
  1    the registry refuses, or the key is not the one that the code stands for
  2    the command line is wrong

examples:
  On the big machine, which may enrol environments:
      exec-server pair --registry https://registry.example.net --token-file enrol.token big-1
      exec-server --remote https://registry.example.net --environment-id big-1 \\
          --registry-token-file enrol.token --identity ~/.local/state/exec-server/identity

  On the laptop:
      exec-server pair --registry https://registry.example.net --code K7QF-2MXT-9PWRSA
      exec-server shell big-1
"""

_NAME_CHARACTERS = 64


def pair_command(words: list[str]) -> int:
    """Offer a code, use one, or forget what was paired."""
    parser = Parser(
        "exec-server pair",
        usage="[OPTIONS] --registry URL (NAME | --code CODE)",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add_registry(parser, required=False)
    add = parser.add_argument
    add("name", metavar="NAME", nargs="?", help="the environment to be used")
    add(
        "--identity",
        metavar="<FILE>",
        help="the key that NAME is served with [default: identity in $XDG_STATE_HOME/exec-server]",
    )
    add("--code", metavar="<CODE>", help="what the other machine shows")
    add("--as", metavar="<NAME>", dest="alias", help="what to call it here [default: its name]")
    add("--forget", metavar="<NAME>", help="forget what was paired under this name")
    values = parser.parse_intermixed_args(words)
    _check(parser, values)

    async def work() -> int:
        if values.forget is not None:
            paired.forget(paired.folder(os.environ), values.forget)
            return exit_codes.OK
        if values.code is not None:
            return await _claim(values.registry, values.code, values.alias)
        return await _offer(
            values.registry, values.name, values.identity, values.token_file, token_of(values)
        )

    return connecting.run_command(work, log_level="warning")


def _check(parser: Parser, values: argparse.Namespace) -> None:
    given = [each for each in (values.name, values.code, values.forget) if each is not None]
    if len(given) != 1:
        parser.error("give the name of an environment, or the code of another machine")
    if values.registry is None and values.forget is None:
        parser.error("the following arguments are required: --registry")
    if values.alias is not None and values.code is None:
        parser.error("--as is for who has a code")
    if values.identity is not None and values.name is None:
        parser.error("--identity is for the machine that is to be used")


# The machine that runs commands.


async def _offer(
    registry: str, name: str, identity: str | None, token_file: str | None, token: str
) -> int:
    path, fingerprint = _identity(identity)
    secret = pair_code.new_secret()
    pledge = {"fingerprint": fingerprint, "proof": pair_code.prove(secret, name, fingerprint)}
    offered = await ask(registry, "POST", f"/api/pairings/{name}", token=token, body=pledge)
    code = f"{offered['code']}-{secret}"
    print(code, flush=True)
    minutes = offered["expires_in"] / 60
    print(
        f"within {minutes:.0f} minutes, on the other machine:\n"
        f"  exec-server pair --registry {shlex.quote(registry)} --code {code}",
        file=sys.stderr,
    )
    if offered["registered_fingerprint"] != fingerprint:
        print(
            f"and here, where {name} has to be served with the key that the code stands for:\n"
            f"  {_serving(registry, name, path, token_file)}",
            file=sys.stderr,
        )
    return exit_codes.OK


def _identity(given: str | None) -> tuple[Path, str]:
    from exec_server.remote.identity import create_identity, load_identity
    from exec_server.remote.places import state_home

    path = state_home() / "identity" if given is None else Path(given)
    keys = load_identity(path) if path.exists() else create_identity(path)
    return path, keys.public.fingerprint


def _serving(registry: str, name: str, identity: Path, token_file: str | None) -> str:
    words = ["exec-server", "--remote", registry, "--environment-id", name]
    words += ["--identity", str(identity)]
    if token_file is not None:
        words += ["--registry-token-file", token_file]
    return shlex.join(words)


# The machine that uses it.


async def _claim(registry: str, typed: str, alias: str | None) -> int:
    told, secret = pair_code.split(typed)
    registry = registry.rstrip("/")
    if alias is not None:
        check_id(alias, taken=_configured())
    granted = await ask(registry, "POST", "/api/pair", body={"code": told})
    kept, fingerprint = _accept(granted, registry, secret)
    name = alias or _free_name(kept)
    _pin(kept, fingerprint)
    paired.save(paired.folder(os.environ), name, kept)
    print(name, flush=True)
    print(
        f"paired with {kept.environment}; for example\n  exec-server shell {name}", file=sys.stderr
    )
    return exit_codes.OK


class _Granted(msgspec.Struct, frozen=True):
    """The registry's answer: texts that can be shown, sent and kept without harm."""

    environment_id: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._-]{1,128}\Z")]
    token: Annotated[str, msgspec.Meta(pattern=r"\A[!-~]{1,1000}\Z")]
    fingerprint: Annotated[str, msgspec.Meta(pattern=r"\A[!-~]{1,200}\Z")]
    proof: Annotated[str, msgspec.Meta(pattern=r"\A[!-~]{1,200}\Z")]


def _accept(answer: Any, registry: str, secret: str) -> tuple[paired.Paired, str]:
    """What to keep, and the key's fingerprint, if the answer can be believed."""
    try:
        granted = msgspec.convert(answer, _Granted)
    except msgspec.ValidationError:
        raise RegistryError("the registry answered with something else than a pairing") from None
    name, fingerprint = granted.environment_id, granted.fingerprint
    if not pair_code.is_proven(granted.proof, secret, name, fingerprint):
        raise UntrustedExecutor(
            "the last part of the code does not fit to the key that the registry names. It was "
            "mistyped, or somebody pretends to be the other machine. Nothing was kept; ask for a "
            "new code"
        )
    return paired.Paired(registry=registry, environment=name, token=granted.token), fingerprint


def _pin(kept: paired.Paired, fingerprint: str) -> None:
    """From now on this key alone is good. Raises UntrustedExecutor when another one is known."""
    from exec_server.remote.trust import FIRST_USE, Trust

    trust = Trust(kept.registry, kept.environment, pin=FIRST_USE)
    trust.check(fingerprint)
    trust.remember(fingerprint)


def _free_name(kept: paired.Paired) -> str:
    """Its name as ours are spelled, or with a number when something else is called so."""
    taken = _configured()
    directory = paired.folder(os.environ)
    others = {
        each.id
        for each in paired.environments(directory)
        if (each.registry_url, each.environment_id) != (kept.registry, kept.environment)
    }
    for name in _candidates(kept.environment):
        try:
            check_id(name, taken=(*taken, *others))
        except ConfigurationError:
            continue
        return name
    raise AssertionError("there are always more numbers")


def _candidates(environment_id: str) -> Iterator[str]:
    base = re.sub("[^A-Za-z0-9_-]", "-", environment_id)
    yield base[:_NAME_CHARACTERS]
    for number in count(2):
        suffix = f"-{number}"
        yield base[: _NAME_CHARACTERS - len(suffix)] + suffix


def _configured() -> list[str]:
    """Names that come before those that were paired."""
    from exec_server.client.environments import config

    found = config.load(config.home_directory(os.environ), os.environ)
    return [each.id for each in found.environments]
