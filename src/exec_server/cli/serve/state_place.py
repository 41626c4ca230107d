"""The directory in which a server keeps durable jobs: the one that is named, or a default."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from exec_server.cli.serve.state_options import NO_STATE
from exec_server.errors import ConfigurationError
from exec_server.remote.state_dir import state_home
from exec_server.transport.address import (
    StdioAddress,
    TcpAddress,
    UnixAddress,
    parse_listen_url,
)

if TYPE_CHECKING:
    from exec_server.cli.serve.serve_options import ServeOptions

logger = logging.getLogger(__name__)

# Set by systemd for a unit with `StateDirectory=`; several directories are separated by colons.
_SERVICE_VARIABLE = "STATE_DIRECTORY"
_MACHINE_ID = Path("/etc/machine-id")


def state_directory(options: ServeOptions, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The directory of durable jobs of a server with these *options*; None for a server without.

    Raises ConfigurationError if one is named that this server cannot use.
    """
    if options.state == NO_STATE:
        return None
    if options.state is not None:
        _check_server(options)
        return Path(options.state).absolute()
    name = _default_name(options)
    if name is None:
        return None
    service = environ.get(_SERVICE_VARIABLE, "").partition(":")[0]
    try:
        # A unit's directory may be the working directory of its commands, which must see it.
        found = Path(service) / "durable" if service.startswith("/") else _of_user(name, environ)
    except RuntimeError:
        # This user has no home directory.
        return None
    if not can_be_made(found):
        logger.warning(
            "no durable jobs: the directory %s cannot be made; see --state",
            found,
            extra={"notice": "no state"},
        )
        return None
    return found


def usable_state_directory(options: ServeOptions) -> Path | None:
    """`state_directory`; raises ConfigurationError also if it is named and cannot be made."""
    found = state_directory(options)
    if options.state is not None and found is not None and not can_be_made(found):
        raise ConfigurationError(
            f"the state directory {found} cannot be made or written to; give --state another "
            "directory, or `none` for a server without durable jobs"
        )
    return found


def _check_server(options: ServeOptions) -> None:
    if options.remote.connect is not None:
        raise ConfigurationError("--state is an option of the server itself, not of `forward`")
    if not options.remote.is_requested:
        if isinstance(parse_listen_url(options.listen), StdioAddress):
            raise ConfigurationError(
                "a server on stdio ends with its client: --state needs another --listen"
            )


def _default_name(options: ServeOptions) -> str | None:
    """What distinguishes this server from others of the same user; None if nothing lasts."""
    remote = options.remote
    if remote.is_requested:
        if remote.connect is not None:
            return None
        from urllib.parse import urlsplit

        return f"{urlsplit(remote.url or '').netloc}/{(remote.environment_id or '').strip()}"
    address = parse_listen_url(options.listen)
    if isinstance(address, UnixAddress):
        return f"unix:{os.path.abspath(address.path)}"
    if isinstance(address, TcpAddress) and address.port != 0:
        return address.url
    return None


def _of_user(name: str, environ: Mapping[str, str]) -> Path:
    """The directory for the server called *name*.

    The machine is a part of it, because a home directory may be shared by several.
    """
    from exec_server.small_digests import sha256

    readable = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.")[:64]
    digest = sha256(f"{name}\0{_machine()}".encode(errors="surrogateescape")).hexdigest()
    return state_home(environ) / "servers" / f"{readable}-{digest[:8]}"


def _machine() -> str:
    try:
        return _MACHINE_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def can_be_made(directory: Path) -> bool:
    """True if *directory* exists, or can be made below the nearest directory that exists."""
    for place in (directory, *directory.parents):
        if os.path.lexists(place):
            return place.is_dir() and os.access(place, os.W_OK | os.X_OK)
    return False
