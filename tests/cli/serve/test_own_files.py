"""The server's own files, as its options name them, are kept from sandboxes."""

from __future__ import annotations

import os

from exec_server.access.principals_file import journal_of
from exec_server.cli.serve.own_files import hide_from_sandboxes
from exec_server.cli.serve.serve_options import parse_serve
from exec_server.sandbox import own_places
from tests.requirements import requirement


@requirement("principals:file", "audit/lines:unchanged")
def test_files_of_principals_and_audit_logs_are_kept_from_sandboxes(tmp_path, monkeypatch):
    monkeypatch.setattr(own_places, "_hidden", {})
    monkeypatch.setattr(own_places, "_kept", [])
    own, shared = tmp_path / "own", tmp_path / "shared"
    for folder, mode in ((own, 0o700), (shared, 0o755)):
        folder.mkdir(mode=mode)
        for name in ("p.sqlite3", "audit.log", "audit.log.1"):
            (folder / name).touch()
    (own / "audit.log").unlink()
    (own / "audit.log.1").unlink()
    for folder in (own, shared):
        words = ["--principals", str(folder / "p.sqlite3"), "--audit", str(shared / "audit.log")]
        hide_from_sandboxes(parse_serve(words))
    hidden = set(own_places.hidden())
    files = [str(shared / "p.sqlite3"), journal_of(str(shared / "p.sqlite3"))]
    # What lies beside a file of principals can change it, so a directory of its own is hidden.
    assert {os.fsencode(path) for path in (own, *files)} <= hidden
    assert os.fsencode(shared) not in hidden
    kept = {os.fsencode(shared / name) for name in ("audit.log", "audit.log.1")}
    assert kept <= set(own_places.protected())
