"""The name of the program, and what `--version` prints. This module loads nothing else."""

from exec_server.version import VERSION

PROG = "exec-server"


def version_line() -> str:
    """What `--version` prints."""
    return f"{PROG} {VERSION}"
