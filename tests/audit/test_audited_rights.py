"""What the audit log says about the rights of a request, and who can change what it says."""

from __future__ import annotations

import pytest

from exec_server.access.principal import Principal, SandboxFloor, unrestricted
from exec_server.audit.masking import PLAIN
from exec_server.printable import short_digest
from exec_server.protocol import denials, file_search, file_watch, process, sharing
from exec_server.protocol.paths import PathUri, to_uri
from exec_server.protocol.sandbox import workspace_write
from exec_server.rpc import boundary
from exec_server.server.audited_requests import request_facts
from tests.audit.test_server_audit import audited, named
from tests.requirements import requirement
from tests.support.backends import needs_bubblewrap
from tests.support.servers import start_server
from tests.support.tenants import Tenants, principal
from tests.support.wire import Finished, Wire, start_params


def start(**members: object) -> process.StartParams:
    return boundary.decode_params(process.StartParams, start_params("p", ["true"], **members))


@requirement("audit/lines:rights")
def test_watches_and_searches_say_what_they_are_about():
    admin = unrestricted("boss")
    watch = sharing.WatchParams("job-1", "watch-1", kind="person", name="ann")
    facts = request_facts(watch, PLAIN, admin)
    assert (facts["process"], facts["detail"]) == ("job-1", "by person ann, as watch-1")
    place = to_uri("/srv")
    search = file_search.SearchParams("s", PathUri(place), "pass.*" * 1000)
    facts = request_facts(search, PLAIN, admin)
    assert facts["paths"] == ["/srv"] and facts["detail"].startswith("content: pass.*")
    files = request_facts(file_watch.WatchParams("w", PathUri(place)), PLAIN, admin)
    assert files["paths"] == ["/srv"] and files["process"] is None


@requirement("audit/lines:rights")
def test_a_start_names_the_user_and_the_sandbox_that_hold_for_it():
    sandbox = SandboxFloor(kind="workspace-write", folders=("/srv/app",))
    held = principal(run_as="www-data", sandbox=sandbox)
    facts = request_facts(start(), PLAIN, held)
    assert (facts["detail"], facts["sandbox"]) == (
        "as www-data",
        "workspace-write=/srv/app, no network",
    )
    asked = start(sandbox=workspace_write(["/srv/app/x"]).wire)
    assert request_facts(asked, PLAIN, held)["sandbox"] == "workspace-write=/srv/app/x, no network"
    admin = unrestricted("boss")
    assert request_facts(start(user="daemon"), PLAIN, admin)["detail"] == "as daemon"
    assert "learning" in request_facts(start(learn=True, denials=True), PLAIN, admin)["detail"]
    grant = denials.GrantParams("p", "write=/srv", "session", restart=True)
    facts = request_facts(grant, PLAIN, admin)
    assert (facts["process"], facts["grant"]) == ("p", "write=/srv")
    assert facts["detail"] == "session, and the process is started again"


@requirement("audit/lines:rights")
async def test_the_id_of_a_session_that_another_principal_asks_for_is_not_written(
    tmp_path, no_leaks
):
    path, tenants = tmp_path / "audit.log", Tenants()
    tenants.who = principal("ann")
    async with audited(path, find_principal=tenants.find) as server, Wire(server.url) as wire:
        session = (await wire.initialize())["sessionId"]
        tenants.who = Principal(name="bob", may=frozenset({"exec"}))
        async with Wire(server.url) as other:
            params = {"clientName": "x", "resumeSessionId": session}
            await other.error("initialize", params)
    assert session not in path.read_text()
    refused = named(path, "initialize")[1]
    assert refused["session"] == short_digest(session) and refused["code"] == -32600


@pytest.mark.one_loop
@needs_bubblewrap
@requirement("audit/lines:unchanged")
async def test_a_sandboxed_command_cannot_change_a_log_in_its_workspace(tmp_path):
    work = tmp_path / "work"
    # Other users may enter it, so it is not hidden as a directory of the log's own.
    work.mkdir(mode=0o755)
    path, older = work / "audit.log", work / "audit.log.1"
    older.write_text("")
    with start_server("--audit", str(path)) as server:
        async with Wire(server.url) as wire:
            await wire.initialize()
            script = (
                "for each in audit.log audit.log.1; do"
                " (echo x >> $each); mv $each away; rm -f $each; ln $each linked; done; touch made"
            )
            confined = {"sandbox": workspace_write([str(work)]).wire, "cwd": work.as_uri()}
            await wire.start("p", ["sh", "-c", script], **confined)
            ended = Finished(await wire.events_until_closed("p"))
    assert ended.exit_code == 0, ended.stderr
    assert {each.name for each in work.iterdir()} == {"audit.log", "audit.log.1", "made"}
    assert older.read_text() == "" and named(path, "process ended")
