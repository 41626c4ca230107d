"""Who may use the tools over HTTP without a token: this user, outside of every sandbox."""

from __future__ import annotations

from exec_server.server.local_peers import LocalPeers

_ADVICE = "with --http-token-file FILE a client is let in by the token in the file"


class _AnySandboxes:
    """A command in a sandbox of any server of this machine would leave it through the tools."""

    has_confined = True
    has_lost_keeper = True


def http_peers() -> LocalPeers:
    """Judges the connections of clients that need no token."""
    return LocalPeers(_AnySandboxes(), allows_other_users=False, advice=_ADVICE)
