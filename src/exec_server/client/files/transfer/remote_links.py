"""Make symbolic links on the server, with a shell command: the protocol has no method for it."""

from __future__ import annotations

import re

from exec_server.client.files.transfer.remote_tree import RemoteTree, batches
from exec_server.client.files.transfer.tree import TreeEntry

# Arguments come in pairs of a target and a name. An existing link is replaced, and a link to a
# directory is not entered. The words are escaped, because arguments are text; the dot keeps the
# shell from dropping line breaks at the end.
_LINK = b"""
while [ $# -gt 0 ]; do
    target=$(printf '%b.' "$1") name=$(printf '%b.' "$2")
    ln -sfn -- "${target%.}" "${name%.}"
    shift 2
done
"""
_UNUSUAL = re.compile(rb"[^A-Za-z0-9/._-]")


async def make_links(there: RemoteTree, entries: list[TreeEntry]) -> bool:
    """Make the links; False if the server cannot run a command. Look at the result afterwards."""
    words = ((_escaped(entry.target), _escaped(b"./" + entry.path)) for entry in entries)
    for batch in batches(words):
        process = await there.start(b"sh", b"-c", _LINK, b"sh", *batch)
        if process is None:
            return False
        try:
            await process.wait()
        finally:
            process.abandon()
    return True


def _escaped(word: bytes) -> bytes:
    """*word* for `printf %b`, in characters that every shell and protocol lets through."""
    return _UNUSUAL.sub(lambda match: b"\\0%03o" % match[0][0], word)
