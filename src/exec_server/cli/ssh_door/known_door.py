"""The door for the words of `ssh-proxy`, if it is open already. This imports little."""

from __future__ import annotations

import os

from exec_server.remote.state_dir import state_home_name
from exec_server.ssh_door import open_doors


def door_of(words: list[str]) -> str:
    """The socket of the door that serves *words*, with these variables."""
    directory = os.path.join(state_home_name(os.environ), "ssh")
    return open_doors.door_path(directory, words, os.environ)


def use_open_door(words: list[str]) -> bool:
    """True if OpenSSH has got a connection to a door that is open already.

    The words need not be read for that: only the same words find a door, and none that does not
    linger.
    """
    return open_doors.use_open_door(door_of(words))
