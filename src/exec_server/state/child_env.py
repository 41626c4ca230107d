"""Make a child's environment from the request's variables and its environment policy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from exec_server.protocol.env_policy import EnvPolicy

# The variables that the policy "core" inherits; names are compared without case.
_CORE = frozenset(
    {
        "home",
        "lang",
        "lc_all",
        "lc_ctype",
        "logname",
        "path",
        "shell",
        "temp",
        "tmp",
        "tmpdir",
        "user",
    }
)
_CREDENTIAL = re.compile("key|secret|token")

_TOOL_CALL_ID = "CODEX_TOOL_CALL_ID"
_THREAD_ID = "CODEX_THREAD_ID"

# These variables belong to the server alone or to one launch, and reach no child from any source.
# Names of the first set are compared without case, those of the second as they are.
_WITHHELD = frozenset(
    {
        "codex_exec_server_noise_auth_token",
        "node_repl_auth_token",
        "openai_federation_rule_id",
        "openai_identity_token_file",
        "openai_workload_identity_context",
    }
)
_WITHHELD_AS_SPELLED = frozenset({"CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE", _TOOL_CALL_ID})


def child_env(
    env: Mapping[str, str],
    *,
    policy: EnvPolicy | None,
    server_env: Mapping[str, str],
    tool_call_id: str | None,
    thread_id: str | None = None,
    has_metadata: bool = False,
    tty_shell: str | None = None,
) -> dict[str, str]:
    """A child's whole environment.

    Without a *policy* it is *env* alone; otherwise it is *env* over the variables that the policy
    takes from *server_env*. The server's own credentials are never in it. The ids of the call are
    in it only as given here: a call with metadata, even empty (*has_metadata*), hides any other
    thread id. *tty_shell* is for children on a terminal and yields to a SHELL that is already
    there.
    """
    child = _inherited(policy, server_env) if policy is not None else {}
    child.update(env)
    child = {name: value for name, value in child.items() if not _is_withheld(name)}
    if has_metadata or thread_id is not None or tool_call_id is not None:
        child.pop(_THREAD_ID, None)
    if thread_id is not None:
        child[_THREAD_ID] = thread_id
    if tool_call_id is not None:
        child[_TOOL_CALL_ID] = tool_call_id
    if tty_shell is not None:
        child.setdefault("SHELL", tty_shell)
    return _each_once(child) if any("=" in name for name in child) else child


def _each_once(child: dict[str, str]) -> dict[str, str]:
    """Return *child* with each name once, as programs read names: up to the first `=`."""
    last = {name.partition("=")[0]: name for name in sorted(child)}
    return {name: child[name] for name in last.values()}


def _inherited(policy: EnvPolicy, server_env: Mapping[str, str]) -> dict[str, str]:
    names: Iterable[str] = server_env if policy.inherit != "none" else ()
    if policy.inherit == "core":
        names = (name for name in names if name.lower() in _CORE)
    if not policy.ignore_default_excludes:
        names = (name for name in names if not _CREDENTIAL.search(name.lower()))
    excluded = any_of(policy.exclude)
    kept = {name: server_env[name] for name in names if not excluded.fullmatch(name.lower())}
    kept.update(policy.set)
    if not policy.include_only:
        return kept
    included = any_of(policy.include_only)
    return {name: value for name, value in kept.items() if included.fullmatch(name.lower())}


def any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """An expression that matches in full every lower-case name that one of *patterns* matches."""
    # The first alternative never matches; an empty expression would match the empty name.
    return re.compile("|".join(["(?!)", *map(_translated, patterns)]), re.DOTALL)


def _translated(pattern: str) -> str:
    first, *others = (re.escape(part).replace(r"\?", ".") for part in pattern.lower().split("*"))
    if not others:
        return first
    *middle, last = others
    # The earliest match of a part is as good as any later one, so no other is tried: a pattern of
    # many stars stays cheap on a long name.
    runs = "".join(f"(?>.*?{part})" for part in middle if part)
    return f"{first}{runs}.*{last}"


def _is_withheld(name: str) -> bool:
    return name.lower() in _WITHHELD or name in _WITHHELD_AS_SPELLED
