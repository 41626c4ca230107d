"""The options that confine a command, and the sandbox that they mean on a given server."""

from __future__ import annotations

import argparse
import posixpath
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from exec_server.cli.parser import Arguments, Flag, Parser
from exec_server.errors import ConfigurationError, NotFound, RpcError, ScopeRefused

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient
    from exec_server.client.process.remote_process import RemoteProcess
    from exec_server.protocol.sandbox import SandboxContext

Kind = Literal["read-only", "workspace-write"]

SANDBOX_HELP = """\
sandboxes:
  read-only                   the command reads everything and writes nothing
  workspace-write             it may also write to its directory, /tmp and TMPDIR
  workspace-write=DIR[:DIR]   it may write to these directories instead of its own
Neither has network access without `--net on`. In every writable directory .git, .agents, .codex and
.aws stay read-only.
"""


class CannotConfine(ConfigurationError):
    """A command cannot be confined as requested, and therefore must not run."""


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """The sandbox that the command line asks for."""

    kind: Kind
    # Writable directories; without any, the directory that the command runs in is writable.
    folders: tuple[str, ...] = ()
    network: bool = False
    protects_metadata: bool = True


READ_ONLY = Confinement(kind="read-only")


def add_sandbox_options(
    parser: Parser, *, default: Confinement | None = None, has_person: bool = True
) -> None:
    """Declare the options; *default* is the sandbox if none is named.

    *has_person* is false for programs that have no person to ask.
    """
    add = parser.add_argument
    add(
        "--sandbox",
        metavar="<SANDBOX>",
        type=_sandbox,
        help="confine the command: read-only, or workspace-write[=DIR[:DIR...]]"
        + (f" [default: {default.kind}]" if default else ""),
    )
    parser.suggestions["sandbox"] = get_args(Kind)
    add(
        "--net",
        metavar="<on|off>",
        choices=("on", "off"),
        help="network access of a sandboxed command [default: off]",
    )
    add(
        "--unprotected-metadata",
        action=Flag,
        help="allow writes to .git, .agents, .codex and .aws, too. Where only Landlock enforces "
        "sandboxes, a command needs this option to write anything, and /tmp stays read-only",
    )
    if has_person:
        _add_ask(parser)


def _add_ask(parser: Parser) -> None:
    parser.add_argument(
        "--ask",
        action=Flag,
        help="ask on the terminal when the sandbox refuses something, and let it go on if you "
        "allow it; the command gets no input from the terminal. Without a terminal, the options "
        "that would have allowed it are printed at the end",
    )


def confinement(
    parser: Parser, arguments: Arguments, *, default: Confinement | None = None
) -> Confinement | None:
    """The sandbox that was chosen, if any; a wrong combination ends the program with status 2."""
    values = arguments.values
    if default is None:
        needed = ("net", "unprotected_metadata", "ask")
        parser.require(arguments, {dest: ("sandbox",) for dest in needed})
    chosen: Confinement | None = values.sandbox or default
    if chosen is None:
        return None
    if values.unprotected_metadata and chosen.kind == "read-only":
        parser.error("the argument '--unprotected-metadata' needs '--sandbox workspace-write'")
    return msgspec.structs.replace(
        chosen, network=values.net == "on", protects_metadata=not values.unprotected_metadata
    )


def _sandbox(text: str) -> Confinement:
    if text == "read-only":
        return READ_ONLY
    name, equals, rest = text.partition("=")
    folders = tuple(rest.split(":")) if equals else ()
    if name == "workspace-write" and all(folders):
        return Confinement(kind="workspace-write", folders=folders)
    raise argparse.ArgumentTypeError("expected read-only or workspace-write[=DIR[:DIR...]]")


async def context_for(
    client: ExecServerClient, wanted: Confinement, *, cwd: str | None
) -> SandboxContext:
    """The sandbox *wanted* for a command that runs in *cwd* on the server.

    Raises CannotConfine when the server says that it cannot enforce it.
    """
    from exec_server.protocol.sandbox import read_only, workspace_write

    only_landlock = await _has_only_landlock(client)
    if wanted.kind == "read-only":
        return read_only(network=wanted.network)
    if only_landlock and wanted.protects_metadata:
        raise CannotConfine(_unprotectable())
    await _check_folders(client, wanted, cwd=cwd)
    own = cwd or "."
    folders = [posixpath.join(own, folder) for folder in wanted.folders] or [own]
    return workspace_write(
        [await _native(client, folder) for folder in folders],
        network=wanted.network,
        # Landlock cannot protect names in /tmp, nor the files that this server keeps there.
        exclude_tmp=only_landlock,
        protect_metadata=wanted.protects_metadata,
    )


def check_confined(process: RemoteProcess, wanted: Confinement | None) -> None:
    """End *process*, and raise CannotConfine, if the server does not say that it is confined."""
    if wanted is not None and process.sandbox_type in (None, "none"):
        process.abandon()
        raise CannotConfine("the server does not say that it confines commands; it was killed")


async def _has_only_landlock(client: ExecServerClient) -> bool:
    try:
        found = await client.sandbox_info()
    except RpcError:
        found = None
    if found is None:
        # Another implementation; it refuses a sandbox that it cannot enforce when it starts one.
        return False
    if found.rung in ("bubblewrap", "landlock"):
        return found.rung == "landlock"
    reasons = "; ".join(f"{each.rung}: {each.obstacle}" for each in found.rungs if each.obstacle)
    raise CannotConfine(f"the server has no sandbox that confines files ({reasons})")


def _unprotectable() -> str:
    from exec_server.protocol.permissions import PROTECTED_NAMES

    names = ", ".join(PROTECTED_NAMES)
    return (
        "only Landlock enforces sandboxes on this server, and it cannot protect "
        f"{names} in a writable directory; with --unprotected-metadata they are writable, too"
    )


async def _check_folders(client: ExecServerClient, wanted: Confinement, *, cwd: str | None) -> None:
    """Raise CannotConfine if a directory that should be writable does not exist."""
    for folder in wanted.folders:
        try:
            await client.fs.get_metadata(posixpath.join(cwd or ".", folder))
        except NotFound:
            raise CannotConfine(f"the directory `{folder}` of --sandbox does not exist") from None
        except ScopeRefused:
            # This principal may run commands and see no files; the start fails if it is missing.
            return


async def _native(client: ExecServerClient, path: str) -> bytes:
    """An absolute path on the server; a relative one begins where its commands run."""
    return posixpath.normpath((await client.fs.uri(path)).native)
