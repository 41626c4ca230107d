"""The process that the words of `attach`, `logs` and `kill` name: by an id, or by server and id."""

from __future__ import annotations

import msgspec

from exec_server.cli import server_access
from exec_server.cli.parser import Parser
from exec_server.cli.process.detached.detach import ServerAccess, access_to
from exec_server.cli.process.detached.saved_sessions import SavedSession, SessionStore
from exec_server.cli.process.detached.server_jobs import as_session, ask_for_job
from exec_server.errors import ConfigurationError, MethodNotFound
from exec_server.protocol.jobs import JobInfo

ID_HELP = """\
ID is what `run --detach` and `ps` print, a unique beginning of it, or the name that --name gave.
Without SERVER it is a process that was detached on this machine. With SERVER it is a durable job of
that server, wherever it was started.
"""


class NamedProcess(msgspec.Struct, frozen=True):
    """A detached process."""

    session: SavedSession
    # False if no record of it is on this machine.
    is_saved: bool = True
    # The job as its server lists it, if no record of it is on this machine.
    job: JobInfo | None = None


def add_words(parser: Parser, *, is_several: bool = False) -> None:
    """The words that name a process, or *is_several* processes of one server."""
    parser.add_argument(
        "words",
        metavar="[SERVER] <ID>..." if is_several else "[SERVER] <ID>",
        nargs="+",
        help="the ids, or unique beginnings of them" if is_several else "the id",
    )


def split_words(
    parser: Parser, words: list[str], store: SessionStore, *, is_several: bool = False
) -> tuple[str | None, list[str]]:
    """The server, if one is named, and the ids; wrong words are a usage error."""
    first, *rest = words
    if server_access.is_url(first):
        if not rest:
            parser.error(
                "the following required arguments were not provided:\n  <ID>\n\n"
                f"  tip: `exec-server ps {first}` lists the jobs of this server"
            )
        is_named = True
    elif is_several:
        is_named = bool(rest) and _is_environment(first) and not store.begins(first)
    else:
        is_named = bool(rest)
    server, ids = (first, rest) if is_named else (None, words)
    if server is not None and not server_access.is_server(server):
        expected = server_access.expected_server()
        parser.error(f"invalid value '{server}' for '[SERVER]': expected {expected}")
    if len(ids) > 1 and not is_several:
        parser.error(f"unexpected argument '{ids[1]}' found")
    return server, ids


def _is_environment(word: str) -> bool:
    try:
        return word in server_access.environments().names
    except ConfigurationError:
        # Ids on this machine need no environments.toml.
        return False


async def find_process(
    store: SessionStore, server: str | None, text: str, access: ServerAccess
) -> NamedProcess:
    """The process with the id *text*, on *server* if that is given.

    Raises ConfigurationError if there is none, and the errors of a connection.
    """
    if server is None:
        named = store.named(text)
        if len(named) == 1 or len({each.server for each in named}) != 1:
            return NamedProcess(store.find(text))
        # A name was used again: the server knows which of them runs.
        server, access = named[-1].server, access_to(named[-1], access)
    here = [each for each in store.all() if each.server == server]
    try:
        job = await ask_for_job(server, text, access)
    except MethodNotFound:
        job = None
    if job is not None:
        for record in here:
            if record.process_id == job.process_id and record.is_in(job.session_id):
                return NamedProcess(record)
        session = as_session(job, store, server=server, access=access)
        return NamedProcess(session, is_saved=False, job=job)
    matching = [each for each in here if text and each.id.startswith(text)]
    matching = matching or [each for each in here if each.name == text][-1:]
    if len(matching) == 1:
        return NamedProcess(matching[0])
    place = server_access.shown(server)
    raise ConfigurationError(f"there is no job `{text}` on {place}; see `exec-server ps {place}`")
