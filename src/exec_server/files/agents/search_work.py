"""What an agent does for a search: it runs ripgrep, or walks itself if there is none."""

from __future__ import annotations

import os
import re
from typing import Any

from exec_server.files.agents.match_batches import Enough, MatchBatches
from exec_server.files.agents.ripgrep import find_ripgrep, search_with_ripgrep
from exec_server.files.agents.walker import TreeSearch, searcher
from exec_server.protocol.file_search import SearchEnd


def search(request: dict[str, Any]) -> None:
    """Do the search of *request*, and print matches and the end."""
    found = MatchBatches(request["maxMatches"])
    root = os.fsencode(request["path"])
    program = find_ripgrep(request["ripgrep"]) if request["mode"] == "content" else None
    end = SearchEnd("complete", engine="ripgrep" if program else "walker")
    try:
        os.stat(root)
        if program:
            done = search_with_ripgrep(program, request, root, found)
            end.reason, end.message = done.reason, done.message
        else:
            end.message = TreeSearch(request, root, found).run(searcher(request))
    except Enough:
        end.reason = "matches"
    except re.error as exc:
        end.reason, end.message = "failed", f"the regular expression is wrong: {exc}"
    except OSError as exc:
        end.reason, end.message = "failed", exc.strerror or str(exc)
    found.flush(end)
