"""Blocking work on files that a thread of the server or a confined helper does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, TypeVarTuple

from exec_server.files.operations.content import IsCancelled, never
from exec_server.limits import Limits
from exec_server.protocol.method import NOTHING, Encoded, Method

P = TypeVar("P")
R = TypeVar("R")
Args = TypeVarTuple("Args")


class FileTask(Generic[R]):
    """Work with a name, under which a helper finds it.

    *follow* does the work; *nofollow* does the same without following symbolic links. Both take
    plain values, return a result, JSON or None, and raise RpcError and OSError.
    """

    def __init__(
        self,
        name: str,
        follow: Callable[[*Args], R | Encoded | None],
        nofollow: Callable[[*Args], R | Encoded | None] | None = None,
        *,
        is_short: bool = False,
        has_content: bool = False,
    ) -> None:
        self.name = name
        self._follow: Callable[..., R | Encoded | None] = follow
        self._nofollow: Callable[..., R | Encoded | None] | None = nofollow
        # True if the work touches only one file. A helper does short tasks at once and in order,
        # and the others in threads.
        self.is_short = is_short
        # True if the last argument is the content of a file.
        self.has_content = has_content

    def follows(self, params: Any) -> bool:
        """False if *params* ask to follow no symbolic links and the task knows how."""
        return self._nofollow is None or params.follow_symlinks is not False

    def perform(
        self, args: tuple[Any, ...], follows: bool, is_cancelled: IsCancelled = never
    ) -> R | Encoded:
        """Do the work in the calling thread. Raises RpcError and OSError.

        Only a bulk operation asks *is_cancelled*.
        """
        function = self._follow if follows else self._nofollow
        assert function is not None, f"{self.name} always follows symbolic links"
        result = function(*args)
        # Only functions of methods without a result return None.
        return NOTHING if result is None else result  # type: ignore[return-value]


class Operation(FileTask[R], Generic[P, R]):
    """The task of one `fs/*` method. *arguments* makes the task's arguments from the parameters.

    The type checker compares the method, the arguments and both functions.
    """

    def __init__(
        self,
        method: Method[P, R],
        arguments: Callable[[P, Limits], tuple[*Args]],
        follow: Callable[[*Args], R | Encoded | None],
        nofollow: Callable[[*Args], R | Encoded | None] | None = None,
        *,
        is_short: bool = False,
        has_content: bool = False,
    ) -> None:
        super().__init__(method.name, follow, nofollow, is_short=is_short, has_content=has_content)
        self.method = method
        # Raises RpcError if the parameters make no sense.
        self.arguments: Callable[[P, Limits], tuple[Any, ...]] = arguments


class BulkOperation(Operation[P, R]):
    """An operation whose answer may be large.

    It waits until the client has read the answers before it, and its functions also take
    `is_cancelled`, which they ask between their steps.
    """

    def __init__(
        self,
        method: Method[P, R],
        arguments: Callable[[P, Limits], tuple[*Args]],
        follow: Callable[[*Args, IsCancelled], Encoded],
        nofollow: Callable[[*Args, IsCancelled], Encoded] | None = None,
        *,
        is_short: bool = False,
    ) -> None:
        functions: list[Any] = [follow, nofollow]
        super().__init__(method, arguments, *functions, is_short=is_short)

    def perform(
        self, args: tuple[Any, ...], follows: bool, is_cancelled: IsCancelled = never
    ) -> R | Encoded:
        return super().perform((*args, is_cancelled), follows)
