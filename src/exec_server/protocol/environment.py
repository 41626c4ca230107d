"""`environment/*`: shapes and names."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from exec_server.protocol.method import Method, Nothing


class Shell(msgspec.Struct, rename="camel", frozen=True):
    """A shell's kind (``zsh``, ``bash``, ``sh``, ``powershell`` or ``cmd``) and where it is."""

    name: str
    path: str


class EnvironmentInfo(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What a client may want to know of the machine; directories are file: URIs.

    Older servers send only some of it, down to `shell`: None and empty then mean unknown, and
    a capability that is not named is not there.
    """

    shell: Shell
    executor_version: str | None = None
    # Opaque, and the same whenever the server runs on this machine.
    provider_id: str | None = None
    cwd: str | None = None
    # Left out rather than null when unknown.
    user_home_dir: str | UnsetType | None = UNSET
    platform_os: str | None = None
    # What a client should put in front of PATH.
    prepend_path_dirs: list[str] = msgspec.field(default_factory=list)
    # Those that the server's environment names, where tempDir falls back to a default.
    temporary_directories: list[str] = msgspec.field(default_factory=list)
    temp_dir: str | None = None
    capabilities: dict[str, bool] = msgspec.field(default_factory=dict)


class StatusResult(msgspec.Struct, rename="camel", frozen=True):
    status: str = "ready"


INFO = Method(
    "environment/info", Nothing, EnvironmentInfo, family="environment info", is_control=True
)
STATUS = Method(
    "environment/status", Nothing, StatusResult, family="environment status", is_control=True
)
