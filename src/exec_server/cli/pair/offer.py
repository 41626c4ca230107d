"""The machine that will run commands: show a code and wait until it is typed."""

from __future__ import annotations

import re
import shlex
import socket
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec

from exec_server.cli import exit_codes
from exec_server.cli.log_setup import print_note
from exec_server.cli.options import read_token_file
from exec_server.cli.pair import pairing_code
from exec_server.cli.pair.code_at_registry import shortest
from exec_server.cli.pair.forget import give_up_token
from exec_server.cli.pair.waiting import HarnessReply, PendingOffer, StopSignals
from exec_server.cli.registry.registry_options import ask, token_in_variable
from exec_server.errors import ConfigurationError, ExecServerError, RegistryError
from exec_server.protocol.registry import pairing_path
from exec_server.remote.authorized_harnesses import AuthorizedHarnesses
from exec_server.remote.enrolments import Enrolled, Enrolments
from exec_server.remote.state_dir import state_home

_HOST_NAME_CHARACTERS = 64


class OfferPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The offer that the command line asks for."""

    registry: str
    name: str
    identity: Path
    token_file: str | None = None
    # Further words for the command line of the server.
    serving: tuple[str, ...] = ()
    serves: bool = True
    # True if this command waits until the code is typed, which serving needs.
    waits: bool = False
    # True if only machines with known keys are served; pairing makes the key known.
    is_restricted: bool = False
    is_json: bool = False


class TokenHolder(msgspec.Struct, frozen=True, kw_only=True):
    """The token of a machine: from a file, from the variable, or none yet."""

    token: str | None
    token_file: str | None
    is_own: bool

    def __repr__(self) -> str:
        return f"TokenHolder({self.token_file!r})"


class _Offered(msgspec.Struct, frozen=True):
    """The registry's answer, whose texts are safe to print, send and store."""

    code: Annotated[str, msgspec.Meta(pattern=r"\A[0-9A-Za-z-]{1,32}\Z")]
    expires_in: Annotated[float, msgspec.Meta(gt=0, le=24 * 3600)]
    # A token for requests about the offer. For a machine without a token, it becomes the
    # machine's token when the code is typed.
    ticket: Annotated[str, msgspec.Meta(pattern=r"\A[!-~]{1,1000}\Z")]
    registered_fingerprint: str | None = None


def host_name() -> str:
    """The name of this machine, with the characters that names of environments may have."""
    name = re.sub("[^A-Za-z0-9_-]+", "-", socket.gethostname().partition(".")[0])
    return name.strip("-")[:_HOST_NAME_CHARACTERS] or "machine"


# Serving.


def serving_words(plan: OfferPlan, token_file: str | None) -> list[str]:
    """The command line that serves this environment, from any directory."""
    words = ["--remote", plan.registry, "--environment-id", plan.name]
    words += ["--identity", str(plan.identity)]
    if plan.is_restricted:
        words += ["--authorized-harness", str(Enrolments().harness_file(plan.name))]
    if token_file is not None:
        words += ["--registry-token-file", token_file]
    return [*words, *plan.serving]


def known_enrolment(name: str, registry: str | None) -> Enrolled | None:
    """This machine's enrolment under *name*, if any.

    Raises ConfigurationError if the enrolment is at another registry.
    """
    found = Enrolments().find(name)
    if found is not None and registry not in (None, found.registry):
        raise ConfigurationError(
            f"this machine is already `{name}` at {found.registry}: choose another name, or first "
            f"run `exec-server pair --forget {name}`"
        )
    return found


# The offer.


async def offer(plan: OfferPlan) -> int:
    """Show a code; if *plan.serves*, also wait until it is typed."""
    fingerprint = _fingerprint(plan.identity)
    secret = pairing_code.new_secret()
    pledge = {
        "fingerprint": fingerprint,
        "proof": pairing_code.prove(secret, "executor", plan.name, fingerprint),
        "serves": plan.serves,
    }
    holder, offered = await _ask_for_code(plan, pledge)
    enrolled = Enrolled(
        registry=plan.registry,
        environment=plan.name,
        identity=str(plan.identity),
        token_file=holder.token_file,
        is_own=holder.is_own,
    )
    # Signals are handled before the code is shown, so that a signal always withdraws it.
    with StopSignals() as stop:
        is_served = offered.registered_fingerprint == fingerprint
        _show(plan, enrolled, offered, secret, is_served=is_served)
        if plan.serves or plan.waits:
            waiting = PendingOffer(plan.registry, plan.name, offered.ticket)
            try:
                status = await waiting.until_typed(stop, seconds=offered.expires_in)
                if status != exit_codes.OK:
                    return status
                _accept(plan, waiting.reply, secret)
            except ExecServerError:
                if waiting.is_typed and holder.token is None:
                    # The ticket has become a token, which is not needed.
                    await give_up_token(plan.registry, offered.ticket)
                raise
        _remember(enrolled, offered.ticket if holder.token is None else None)
        if stop.status != exit_codes.OK:
            return stop.status
    if plan.serves:
        _tell_how_to_serve(plan, enrolled)
    elif plan.waits:
        _tell_paired(plan)
    return exit_codes.OK


def _accept(plan: OfferPlan, reply: HarnessReply | None, secret: str) -> None:
    """Make the key of the other machine known, if only known keys are served.

    Raises RegistryError if the key does not come from that machine.
    """
    if reply is None:
        if plan.is_restricted:
            raise RegistryError(
                "this registry is too old to pass on the key of the other machine, so that machine "
                "cannot be recognized: update the registry, or repeat with --any-harness"
            )
        return
    if not pairing_code.is_proven(reply.proof, secret, "harness", plan.name, reply.fingerprint):
        raise RegistryError(
            "the registry names a key for the other machine that the code does not prove. Another "
            "machine may be pretending to be it. Nothing was paired; start again for a new code"
        )
    if plan.is_restricted:
        known = AuthorizedHarnesses(Enrolments().harness_file(plan.name))
        known.add(reply.fingerprint, f"paired {time.strftime('%Y-%m-%d')}")


def _remember(enrolled: Enrolled, new_token: str | None) -> None:
    """Save the enrolment; this machine's own token is replaced only by a new one."""
    known = known_enrolment(enrolled.environment, enrolled.registry)
    if new_token is not None or known is None or not known.is_own:
        Enrolments().save(enrolled, new_token)


def holder_of(plan: OfferPlan) -> TokenHolder:
    """The token from the given file, else from the enrolment, else from the variable."""
    if plan.token_file is not None:
        path = str(Path(plan.token_file).absolute())
        return TokenHolder(token=_read(path), token_file=path, is_own=False)
    known = known_enrolment(plan.name, plan.registry)
    if known is not None and known.token_file is not None:
        token = _read(known.token_file)
        return TokenHolder(token=token, token_file=known.token_file, is_own=known.is_own)
    try:
        return TokenHolder(token=token_in_variable(), token_file=None, is_own=False)
    except ConfigurationError:
        return _without_token(plan.name)


def _without_token(name: str) -> TokenHolder:
    path = Enrolments().own_token_file(name)
    return TokenHolder(token=None, token_file=str(path), is_own=True)


async def _ask_for_code(plan: OfferPlan, pledge: dict[str, Any]) -> tuple[TokenHolder, _Offered]:
    holder = holder_of(plan)
    path = pairing_path(plan.name)
    try:
        answer = await ask(plan.registry, "POST", path, token=holder.token, body=pledge)
    except RegistryError as exc:
        if exc.status != 401 or not holder.is_own or holder.token is None:
            raise
        # Our own token is not valid: the last code was not typed, or the token was revoked.
        await PendingOffer(plan.registry, plan.name, holder.token).withdraw()
        holder = _without_token(plan.name)
        answer = await ask(plan.registry, "POST", path, body=pledge)
    try:
        return holder, msgspec.convert(answer, _Offered)
    except msgspec.ValidationError:
        raise RegistryError("the registry's answer is not a pairing code") from None


def _read(path: str) -> str:
    token = read_token_file(path)
    if not token:
        raise ConfigurationError(f"`{path}` holds no token")
    return token


def default_identity() -> Path:
    return state_home() / "identity"


def _fingerprint(path: Path) -> str:
    from exec_server.remote.identity import load_or_create_identity

    return load_or_create_identity(path).public.fingerprint


# Output.


def _show(
    plan: OfferPlan, enrolled: Enrolled, offered: _Offered, secret: str, *, is_served: bool
) -> None:
    code = f"{offered.code}-{secret}"
    typed = shlex.join(["exec-server", "pair", f"{code}@{shortest(plan.registry)}"])
    serving = shlex.join(["exec-server", *serving_words(plan, enrolled.token_file)])
    if plan.is_json:
        _print_line(
            {
                "name": plan.name,
                "code": code,
                "registry": plan.registry,
                "expiresIn": offered.expires_in,
                "pairCommand": typed,
                "serveCommand": serving,
            }
        )
        return
    print(code, flush=True)
    print_note(f"within {offered.expires_in / 60:.0f} minutes, on the other machine:\n  {typed}")
    if plan.serves:
        print_note(
            f"this machine serves as {plan.name} when the code is typed; Ctrl-C withdraws it"
        )
    elif plan.waits:
        print_note("waiting until the code is typed; Ctrl-C withdraws it")
    elif not is_served:
        print_note(
            f"and on this machine, to serve {plan.name} with the key of the code:\n  {serving}"
        )
    if plan.is_restricted and not (plan.serves or plan.waits):
        print_note(
            f"{plan.name} serves only machines whose keys it knows; with --wait the key of the "
            "machine on which the code is typed is added"
        )


def _tell_paired(plan: OfferPlan) -> None:
    if plan.is_json:
        _print_line({"name": plan.name, "state": "paired"})
    else:
        print_note("paired: the code was typed")


def _tell_how_to_serve(plan: OfferPlan, enrolled: Enrolled) -> None:
    if plan.is_json:
        _tell_paired(plan)
        return
    serving = shlex.join(["exec-server", *serving_words(plan, enrolled.token_file)])
    print_note(
        f"paired: the code was typed, and {plan.name} is served until Ctrl-C. The next time:\n"
        f"  exec-server pair --serve {plan.name}\n"
        f"or, for example in a systemd unit:\n"
        f"  {serving}"
    )


def _print_line(value: dict[str, Any]) -> None:
    print(msgspec.json.encode(value).decode(), flush=True)
