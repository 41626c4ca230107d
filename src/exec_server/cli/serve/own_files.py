"""The server's own secret files, which no sandboxed command may read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

from exec_server.cli.serve.audit_options import own_folder
from exec_server.cli.serve.serve_options import ServeOptions
from exec_server.hidden_state import hide_state
from exec_server.transport.address import UnixAddress, parse_listen_url


def hide_from_sandboxes(options: ServeOptions) -> None:
    """Hide the files that *options* name, our state directory and the server's Unix socket."""
    from exec_server.sandbox.own_places import hide, keep

    hide_state()
    for path in _paths(options):
        if path is not None:
            hide(path)
    log = options.audit.file
    if log is not None:
        from exec_server.audit.audit_reader import files_of

        # It cannot be hidden in a directory with other files, but stays as it is there, too.
        keep(partial(files_of, os.path.abspath(log)))


def _paths(options: ServeOptions) -> Iterator[str | None]:
    yield from (options.auth.token_file, options.auth.shared_secret_file)
    yield from options.operator.secret_files
    principals = options.operator.principals_file
    # What SQLite finds beside the file can change it.
    yield None if principals is None else own_folder(principals)
    remote = options.remote
    yield from (remote.registry_token_file, remote.identity, remote.authorized_harness)
    yield remote.audit_log
    yield None if options.audit.file is None else own_folder(options.audit.file)
    yield from (options.record.directory, options.record.secrets_file)
    if not remote.is_requested and options.listen.startswith("unix:"):
        address = parse_listen_url(options.listen)
        yield address.path if isinstance(address, UnixAddress) else None
