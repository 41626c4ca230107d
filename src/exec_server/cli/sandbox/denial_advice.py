"""The options that would have allowed what a sandbox refused. Nothing here does I/O."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterable

import msgspec

from exec_server.cli.sandbox.sandbox_options import Confinement
from exec_server.printable import printable
from exec_server.protocol.denials import Denial
from exec_server.protocol.permissions import PROTECTED_NAMES
from exec_server.sandbox.supervisor.judge import OWN_PLACE, PROTECTED_NAME

# Writable in every sandbox that can write at all.
_ALWAYS = ("/tmp",)
# More lines would hide the output of the command.
_SHOWN = 10


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """A wider sandbox, and what no sandbox allows."""

    sandbox: Confinement
    # What was refused and stays refused, in words.
    impossible: tuple[str, ...] = ()

    @property
    def options(self) -> list[str]:
        """The words of the command line that ask for the sandbox."""
        folders = ":".join(self.sandbox.folders)
        words = ["--sandbox", f"{self.sandbox.kind}={folders}" if folders else self.sandbox.kind]
        if self.sandbox.network:
            words += ["--net", "on"]
        if not self.sandbox.protects_metadata:
            words.append("--unprotected-metadata")
        return words

    @property
    def command_line(self) -> str:
        return shlex.join(self.options)


def advice(denials: Iterable[Denial], given: Confinement, *, own: str | None = None) -> Advice:
    """The sandbox that is as wide as *given* and also allows all of *denials*.

    *own* is the directory of the command if it may be left out, because a sandbox that can write
    includes it.
    """
    folders: list[str] = []
    holders: set[str] = set()
    network, protects, impossible = given.network, given.protects_metadata, []
    for denial in denials:
        if denial.kind == "socket":
            network = True
        elif denial.kind != "write" or denial.rule == OWN_PLACE or not _can_name(denial.target):
            impossible.append(described(denial))
        elif denial.rule == PROTECTED_NAME:
            # The directory that holds the name is writable already.
            protects = False
        else:
            folders.append(_writable_folder(denial.target))
            holders |= {folders[-1]} if _names_protected(denial.target) else set()
    kept = _narrowed(given, folders, own)
    # A name is protected right below a writable directory, and not deeper.
    protects = protects and holders.isdisjoint(kept or (own,))
    sandbox = msgspec.structs.replace(given, network=network, protects_metadata=protects)
    if folders:
        sandbox = msgspec.structs.replace(sandbox, kind="workspace-write", folders=kept)
    return Advice(sandbox=sandbox, impossible=tuple(impossible))


def described(denial: Denial) -> str:
    """One denial in words."""
    verb = denial.kind if denial.kind in ("write", "read") else denial.operation
    if denial.kind == "host":
        verb = "connect to"
    return f"{verb} {printable(denial.target)} ({denial.rule})"


def lines(denials: list[Denial], advised: Advice) -> Iterable[str]:
    """What a person is told after a command that was refused something."""
    yield from refusals(denials)
    if len(advised.impossible) < len(denials):
        yield f"to allow it: {printable(advised.command_line, limit=4096)}"


def refusals(denials: list[Denial]) -> Iterable[str]:
    """What was refused, a line for each of the first ones."""
    for denial in denials[:_SHOWN]:
        times = f", {denial.count} times" if denial.count > 1 else ""
        yield f"the sandbox refused: {described(denial)}{times}"
    if len(denials) > _SHOWN:
        yield f"the sandbox refused {len(denials) - _SHOWN} other things"


def one_line(denials: list[Denial], advised: Advice) -> str:
    """The same in one line: the first refusal, how many others there were, and the options."""
    text = f"the sandbox refused: {described(denials[0])}"
    if len(denials) > 1:
        others = len(denials) - 1
        text += f" and {others} other {'thing' if others == 1 else 'things'}"
    if len(advised.impossible) == len(denials):
        return f"{text}; no option allows this"
    return f"{text}; to allow it: {printable(advised.command_line, limit=4096)}"


def _writable_folder(target: str) -> str:
    """The directory that has to be writable for a change at *target*."""
    parts = target.split("/")
    for index, part in enumerate(parts):
        if part in PROTECTED_NAMES:
            # It is protected in the directory that holds it.
            return "/".join(parts[:index]) or "/"
    return posixpath.dirname(target)


def _can_name(target: str) -> bool:
    """True if an option can make the directory of *target* writable, and nothing else.

    The command chooses its names: behind a colon the option would name another directory, and a
    file right below the root would open the whole machine.
    """
    folder = _writable_folder(target)
    return folder.strip("/") != "" and ":" not in folder


def _names_protected(target: str) -> bool:
    return not set(PROTECTED_NAMES).isdisjoint(target.split("/"))


def _narrowed(given: Confinement, folders: list[str], own: str | None) -> tuple[str, ...]:
    """The directories without those below others; none if the command's own is enough."""
    kept = [*given.folders] if given.folders else []
    if given.kind == "workspace-write" and not kept:
        # It names no directory, so its own is writable.
        kept = ["."]
    needed = [folder for folder in folders if not _is_in(folder, _ALWAYS)]
    for folder in sorted(set(needed), key=len):
        if not _is_in(folder, kept):
            kept.append(folder)
    return () if kept in (["."], [own]) else tuple(kept)


def _is_in(folder: str, others: Iterable[str]) -> bool:
    return any(folder == other or folder.startswith(other.rstrip("/") + "/") for other in others)
