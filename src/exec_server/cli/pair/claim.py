"""The machine that will use another one: send the code, check the key, and save both."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import re
import sys
from collections.abc import Iterator
from itertools import count, repeat
from pathlib import Path
from typing import Annotated, Any

import msgspec

from exec_server.cli import exit_codes
from exec_server.cli.log_setup import print_note
from exec_server.cli.pair import pairing_code
from exec_server.cli.pair.forget import give_up_token
from exec_server.cli.registry.registry_options import ask
from exec_server.client.environments import paired
from exec_server.client.environments.environments_toml import check_id
from exec_server.errors import ConfigurationError, ExecServerError, RegistryError, UntrustedExecutor
from exec_server.protocol.registry import (
    ENVIRONMENTS_PATH,
    PAIR_PATH,
    PAIR_REPLY_PATH,
    PAIRING_VERSION,
)
from exec_server.remote.state_dir import state_home

_NAME_CHARACTERS = 64
_COMING_SECONDS = 10.0
_LOOKING_SECONDS = 0.2
# The pauses before further attempts to reply; the other machine waits for half a minute.
_REPLY_PAUSES = (0.5, 2.0, 5.0)


class _Granted(msgspec.Struct, frozen=True):
    """The registry's answer, whose texts are safe to print, send and store."""

    environment_id: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._-]{1,128}\Z")]
    token: Annotated[str, msgspec.Meta(pattern=r"\A[!-~]{1,1000}\Z")]
    fingerprint: Annotated[str, msgspec.Meta(pattern=r"\A[!-~]{1,200}\Z")]
    proof: Annotated[str, msgspec.Meta(pattern=r"\A[!-~]{1,200}\Z")]
    # True if the other machine will be online in a moment.
    serves: bool = False

    def __repr__(self) -> str:
        return f"_Granted({self.environment_id!r})"


async def claim(registry: str, typed: str, alias: str | None, *, is_json: bool = False) -> int:
    """Use a code: its environment gets a name on this machine, and its key is pinned."""
    told, secret = pairing_code.split(typed)
    if alias is not None:
        check_id(alias, taken=_configured())
    body = {"code": told, "version": PAIRING_VERSION, "device": platform.node()}
    granted = read_granted(await ask(registry, "POST", PAIR_PATH, body=body))
    kept = paired.Paired(
        registry=registry,
        environment=granted.environment_id,
        token=granted.token,
        identity=str(_identity_file()),
    )
    try:
        check_proof(granted, secret)
        name = alias or _free_name(kept)
        fingerprint = _own_fingerprint()
        _pin(kept, granted.fingerprint)
        former = _keep(name, kept)
    except ExecServerError:
        # The other machine must not wait for us.
        await _reply(registry, {"code": told, "refused": True})
        # The token was not saved, so it must not stay valid.
        await give_up_token(registry, granted.token)
        raise
    proof = pairing_code.prove(secret, "harness", granted.environment_id, fingerprint)
    problem = await _reply(registry, {"code": told, "fingerprint": fingerprint, "proof": proof})
    if problem is not None:
        print_note(f"the other machine was not told our key: {problem}")
    if former is not None:
        await give_up_token(former.registry, former.token)
    is_missing = granted.serves and not await _is_online(kept)
    _tell(name, kept, is_json=is_json)
    if is_missing:
        print("the other machine is not online yet", file=sys.stderr)
    return exit_codes.OK


def read_granted(answer: Any) -> _Granted:
    """Check the registry's answer. Raises RegistryError if it is not safe to use."""
    try:
        return msgspec.convert(answer, _Granted)
    except msgspec.ValidationError:
        raise RegistryError("the registry's answer is not a pairing") from None


def check_proof(granted: _Granted, secret: str) -> None:
    """Raises UntrustedExecutor unless the fingerprint comes from the other machine."""
    name, fingerprint = granted.environment_id, granted.fingerprint
    if not pairing_code.is_of_this_version(granted.proof):
        raise UntrustedExecutor(
            "the code comes from another version of exec-server, whose proof is not accepted. "
            "Nothing was saved; install the same version on both machines, and ask for a new code"
        )
    if not pairing_code.is_proven(granted.proof, secret, "executor", name, fingerprint):
        raise UntrustedExecutor(
            "the last part of the code does not fit to the key that the registry names. It was "
            "mistyped, or another machine pretends to be the right one. Nothing was saved, and the "
            "code is used up; ask for a new code"
        )


def _identity_file() -> Path:
    """The file with the key of this machine, by which paired machines recognize it."""
    return state_home() / "harness_identity"


def _own_fingerprint() -> str:
    from exec_server.remote.identity import load_or_create_identity

    return load_or_create_identity(_identity_file()).public.fingerprint


async def _reply(registry: str, body: dict[str, Any]) -> str | None:
    """Tell the other machine about the code; the reason is returned if that is not possible."""
    for pause in (*_REPLY_PAUSES, None):
        try:
            await ask(registry, "POST", PAIR_REPLY_PATH, body=body)
        except RegistryError as exc:
            is_final = exc.status is not None and exc.status < 500 and exc.status != 429
            if is_final or pause is None:
                return str(exc)
            await asyncio.sleep(pause)
        else:
            break
    return None


def _pin(kept: paired.Paired, fingerprint: str) -> None:
    """Accept only this key from now on. Raises UntrustedExecutor if another one is known."""
    from exec_server.remote.executor_trust import FIRST_USE, Trust

    trust = Trust(kept.registry, kept.environment, pin=FIRST_USE)
    trust.check(fingerprint)
    trust.remember(fingerprint)


def _keep(name: str, kept: paired.Paired) -> paired.Paired | None:
    """Save the pairing; the one that had this name before is returned, if any."""
    directory = paired.folder(os.environ)
    try:
        former = paired.load(paired.file_of(directory, name))
    except ConfigurationError:
        former = None
    paired.save(directory, name, kept)
    return former


async def _is_online(kept: paired.Paired) -> bool:
    """Wait some seconds for the environment; True if it is online."""
    with contextlib.suppress(TimeoutError, RegistryError):
        async with asyncio.timeout(_COMING_SECONDS):
            for pause in repeat(_LOOKING_SECONDS):
                if await _is_listed(kept):
                    return True
                await asyncio.sleep(pause)
    return False


async def _is_listed(kept: paired.Paired) -> bool:
    found = await ask(kept.registry, "GET", ENVIRONMENTS_PATH, token=kept.token)
    try:
        return any(each["name"] == kept.environment and each["isOnline"] for each in found)
    except (LookupError, TypeError):
        raise RegistryError("the registry's answer is not a list of environments") from None


def _tell(name: str, kept: paired.Paired, *, is_json: bool) -> None:
    if is_json:
        told = {"name": name, "environment": kept.environment, "registry": kept.registry}
        print(msgspec.json.encode(told).decode(), flush=True)
        return
    print(name, flush=True)
    print_note(f"paired with {kept.environment}; for example\n  exec-server shell {name}")


# Names.


def _free_name(kept: paired.Paired) -> str:
    """The environment's name in our characters, with a number if the name is taken."""
    taken = _configured()
    directory = paired.folder(os.environ)
    others = {
        each.id
        for each in paired.environments(directory)
        if (each.registry_url, each.environment_id) != (kept.registry, kept.environment)
    }
    for name in candidates(kept.environment):
        try:
            check_id(name, taken=(*taken, *others))
        except ConfigurationError:
            continue
        return name
    raise AssertionError("unreachable: there is always another number")


def candidates(environment_id: str) -> Iterator[str]:
    base = re.sub("[^A-Za-z0-9_-]", "-", environment_id)
    yield base[:_NAME_CHARACTERS]
    for number in count(2):
        suffix = f"-{number}"
        yield base[: _NAME_CHARACTERS - len(suffix)] + suffix


def _configured() -> list[str]:
    """The names in environments.toml, which are preferred to names of pairings."""
    from exec_server.client.environments import environments_toml

    found = environments_toml.load(environments_toml.home_directory(os.environ), os.environ)
    return [each.id for each in found.environments]
