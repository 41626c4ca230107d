"""The door for the words of `ssh-proxy`, if it is open already. This imports little."""

from __future__ import annotations

import os

from exec_server.remote.state_dir import state_home_name
from exec_server.ssh_door import open_doors

# The option that `ssh-config` writes first: the directory of the key that its stanza pins. OpenSSH
# may be started with other variables than `ssh-config` was.
KEY_DIR = "--key-dir"


def usual_key_dir() -> str:
    """Where the key and the sockets of doors are, unless the option says otherwise."""
    return os.path.join(state_home_name(os.environ), "ssh")


def door_of(words: list[str], key_dir: str | None = None) -> str:
    """The socket of the door that serves *words*, with these variables."""
    if key_dir is None and len(words) > 2 and words[0] == KEY_DIR:
        key_dir = words[1]
    return open_doors.door_path(key_dir or usual_key_dir(), words, os.environ)


def use_open_door(words: list[str]) -> bool:
    """True if OpenSSH has got a connection to a door that is open already.

    The words need not be read for that: only the same words find a door, and none that does not
    linger.
    """
    return open_doors.use_open_door(door_of(words))
