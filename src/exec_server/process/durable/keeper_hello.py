"""The first message of a durable keeper: whether this server understands it, and its jobs."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from exec_server.errors import InternalError
from exec_server.process.durable import durable_keeper

# What to do about a keeper that this server does not understand.
_OTHER_JOBS = "its jobs run on: start the release that has started them, or use another --state"
_NEW_FILES = "the files of this server were replaced: restart the server"


class HeldJob(NamedTuple):
    """A job as the keeper knows it."""

    name: str
    pid: int
    mark: int
    # None while it runs.
    status: int | None
    # "none", "open" or "closing".
    input: str


class UnknownKeeper(InternalError):
    """The keeper is of a release that this server cannot talk to."""


class Hello(NamedTuple):
    """What a keeper says first."""

    pid: int
    jobs: list[HeldJob]
    # True if it can let the server write the input of jobs; older keepers cannot.
    shares_input: bool


def understood(hello: object, folder: Path, *, is_new: bool) -> Hello:
    """What the keeper of *folder* says, from its first message.

    Raises UnknownKeeper if this server does not understand the keeper, or the keeper this server;
    *is_new* says that the server has just started it.
    """
    try:
        return _understood(hello)
    except UnknownKeeper as exc:
        advice = _NEW_FILES if is_new else _OTHER_JOBS
        raise UnknownKeeper(f"the durable keeper of {folder} {exc}; {advice}") from exc


def silent(folder: Path) -> str:
    """What to say about a keeper that does not answer."""
    return (
        f"the durable keeper of {folder} does not answer; its jobs run on: try again, or end the "
        f"keeper, whose pid is in {folder / durable_keeper.LOCK}, and lose them"
    )


def _understood(hello: object) -> Hello:
    match hello:
        case ("hello", int(version), dict(facts), *_):
            oldest = facts.get("oldest", version)
        case _:
            raise UnknownKeeper("does not speak as a keeper does")
    mine, pid = durable_keeper.VERSION, facts.get("pid", "unknown")
    if version < durable_keeper.OLDEST or not isinstance(oldest, int) or oldest > mine:
        raise UnknownKeeper(
            f"(pid {pid}) is of another release: it speaks version {version} of its messages, "
            f"and this server version {mine}"
        )
    try:
        names = HeldJob._fields
        jobs = [HeldJob(*(job[name] for name in names)) for job in facts["jobs"]]
        return Hello(facts["pid"], jobs, facts.get("shares_input") is True)
    except (LookupError, TypeError) as exc:
        raise UnknownKeeper(f"(pid {pid}) says hello without what is needed: {exc!r}") from exc
