"""What the operator decides about a start, whatever the request says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from exec_server.sandbox.floor import PolicyFloor


class UserAccount(msgspec.Struct, frozen=True):
    """A Unix user that programs run as."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    @property
    def variables(self) -> dict[str, str]:
        """The variables that a login sets."""
        return {
            "HOME": self.home,
            "USER": self.name,
            "LOGNAME": self.name,
            "SHELL": self.shell,
        }

    def around(self, fence: tuple[Any, ...] | None) -> tuple[Any, ...]:
        """*fence*, for the keeper, with this user in front of it."""
        count = 0 if fence is None else fence[1]
        return ("as", count, (self.uid, self.gid, list(self.groups)), fence)


class StartTerms(msgspec.Struct, frozen=True):
    """The terms of one start."""

    # What its sandbox must stay within; None leaves the sandbox to the request.
    floor: PolicyFloor | None = None
    # The variables of the server that it may inherit; None for all.
    server_env: Mapping[str, str] | None = None
    # The user that it runs as; None for the server's own.
    account: UserAccount | None = None
    # Says whether its managed network may reach a host; None leaves that to the request's rules.
    allows_host: Callable[[str], bool] | None = None
    # Called once, when the program has ended or could not be started.
    release: Callable[[], None] | None = None


NO_TERMS = StartTerms()
