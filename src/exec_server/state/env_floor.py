"""Which variables a principal's commands may inherit from the server, and which it may set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from exec_server.state.child_env import any_of


class EnvFloor:
    """Patterns are those of `EnvPolicy`: whole names in any case, with ``*`` and ``?``.

    With *keep*, the other variables of the server are not inherited. A variable that *hide* matches
    is neither inherited nor set by a request.
    """

    def __init__(self, keep: Iterable[str], hide: Iterable[str]) -> None:
        keep = tuple(keep)
        self._kept = any_of(keep) if keep else None
        self._hidden = any_of(hide)

    def inherited(self, server_env: Mapping[str, str]) -> dict[str, str]:
        """The variables of the server that may be inherited."""
        return {name: value for name, value in server_env.items() if self._is_inherited(name)}

    def first_hidden(self, names: Iterable[str]) -> str | None:
        """The first of *names* that must not be set. Programs read a name up to its first `=`."""
        plain = (name.partition("=")[0] for name in names)
        return next((name for name in plain if self._hidden.fullmatch(name.lower())), None)

    def _is_inherited(self, name: str) -> bool:
        lower = name.lower()
        if self._hidden.fullmatch(lower):
            return False
        return self._kept is None or self._kept.fullmatch(lower) is not None
