"""`exec-server pair --forget`: remove a pairing, here and at the registry."""

from __future__ import annotations

import os

from exec_server.cli import exit_codes
from exec_server.cli.log_setup import print_note
from exec_server.cli.options import read_token_file
from exec_server.cli.registry.registry_options import ask
from exec_server.client.environments import paired
from exec_server.errors import ConfigurationError, RegistryError
from exec_server.protocol.registry import OWN_TOKEN_PATH
from exec_server.remote.enrolments import Enrolled, Enrolments
from exec_server.remote.known_executors import KnownExecutors
from exec_server.remote.state_dir import state_home


async def forget(name: str) -> int:
    """Remove the pairing *name*: an environment that is used here, or served from here."""
    enrolled = Enrolments().find(name)
    # A machine may use one environment and serve another one of the same name.
    is_paired = _is_paired(name)
    if not is_paired and enrolled is None:
        raise ConfigurationError(f"there is no pairing `{name}`")
    if is_paired:
        await _forget_use(name)
    if enrolled is not None:
        await _forget_enrolment(enrolled)
    return exit_codes.OK


def _is_paired(name: str) -> bool:
    try:
        return paired.file_of(paired.folder(os.environ), name).exists()
    except ConfigurationError:
        # Names of served environments may have characters that names of used ones may not.
        return False


async def give_up_token(registry: str, token: str) -> str | None:
    """Revoke a token at the registry; the reason is returned if it is still valid."""
    try:
        await ask(registry, "DELETE", OWN_TOKEN_PATH, token=token)
    except (RegistryError, ConfigurationError) as exc:
        is_over = isinstance(exc, RegistryError) and exc.status == 401
        return None if is_over else str(exc)
    return None


async def _forget_use(name: str) -> None:
    directory = paired.folder(os.environ)
    try:
        kept = paired.load(paired.file_of(directory, name))
    except ConfigurationError as exc:
        paired.forget(directory, name)
        print_note(f"forgotten here, but not at its registry: {exc}")
        return
    # It is removed here first: this must not depend on the answer of the registry.
    paired.forget(directory, name)
    _unpin(kept)
    _tell_remaining(kept.registry, await give_up_token(kept.registry, kept.token))


def _unpin(kept: paired.Paired) -> None:
    """Forget the pinned key, unless the environment has another name here."""
    used = {
        (each.registry_url, each.environment_id)
        for each in paired.environments(paired.folder(os.environ))
    }
    if (kept.registry, kept.environment) not in used:
        known = KnownExecutors(state_home() / "known_executors")
        known.forget(kept.registry, kept.environment)


async def _forget_enrolment(enrolled: Enrolled) -> None:
    token = _own_token(enrolled)
    Enrolments().forget(enrolled.environment)
    if token is not None:
        _tell_remaining(enrolled.registry, await give_up_token(enrolled.registry, token))
    elif enrolled.token_file is not None:
        print_note(
            f"the token in {enrolled.token_file} was not made for this name, and is still valid"
        )


def _own_token(enrolled: Enrolled) -> str | None:
    if not enrolled.is_own or enrolled.token_file is None:
        return None
    try:
        return read_token_file(enrolled.token_file) or None
    except ConfigurationError:
        return None


def _tell_remaining(registry: str, why: str | None) -> None:
    if why is not None:
        print_note(
            f"forgotten here, but its token is still valid at {registry} ({why}); revoke it there "
            "with `exec-server registry token revoke`"
        )
