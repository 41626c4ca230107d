"""`enforceManagedNetwork`: a sandboxed process whose only way out is its proxy."""

from __future__ import annotations

import shutil

import pytest

from tests.requirements import requirement
from tests.support.proxied import origin, wanted
from tests.support.wire import ENV, Finished, start_params

pytestmark = pytest.mark.skipif(
    not (shutil.which("bwrap") and shutil.which("curl")), reason="no bubblewrap or no curl here"
)
READ_ALL = {
    "type": "managed",
    "file_system": {
        "type": "restricted",
        "entries": [{"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}],
    },
    "network": "enabled",
}


async def confined(wire, script, *, permissions=READ_ALL, env=None, **params):
    """Return what a shell in a sandbox prints, all streams in one, and its exit code."""
    sandbox = {"permissions": permissions, "cwd": "file:///tmp", "workspaceRoots": []}
    start = start_params("p", ["sh", "-c", f"exec 2>&1; {script}"], sandbox=sandbox)
    start |= {"enforceManagedNetwork": True, "env": {**ENV, **(env or {})}, **params}
    result = await wire.call("process/start", start)
    assert result["sandboxType"] == "linuxSeccomp"
    done = Finished(await wire.events_until_closed("p"))
    return (done.stdout + done.stderr).decode(), done.exit_code


@pytest.mark.parametrize(
    "permissions", [READ_ALL, {"type": "disabled"}], ids=["managed", "disabled"]
)
@requirement("network/enforced:only-the-proxy")
async def test_the_proxy_is_the_only_way_out_of_a_sandbox(wire, permissions):
    async with origin() as (_, port):
        here = f"http://127.0.0.1:{port}/"
        script = (
            f"curl -sS -m 10 {here}; echo; curl -sS -m 10 -x $ALL_PROXY {here}; echo; "
            "curl -sS -m 10 -o /dev/null -w '%{http_code}\\n' http://wrong.invalid/; "
            f"curl -s -m 10 --noproxy '*' {here}; echo direct $?"
        )
        output, code = await confined(
            wire,
            script,
            permissions=permissions,
            networkProxy=wanted(domains={"127.0.0.1": "allow"}),
        )
    assert (output, code) == ("ok\nok\n403\ndirect 7\n", 0)


@requirement("network/enforced:named-proxies")
async def test_a_proxy_of_the_environment_is_reached_from_a_sandbox(wire):
    async with origin() as (server, port):
        env = {"http_proxy": f"http://127.0.0.1:{port}"}
        output, _ = await confined(wire, "curl -sS -m 10 http://some.invalid/x", env=env)
    assert output == "ok"
    assert server.heads[0].startswith(b"GET http://some.invalid/x ")


@pytest.mark.parametrize(
    ("env", "text"),
    [
        ({}, "managed proxy mode requires proxy environment variables"),
        (
            {"HTTP_PROXY": "http://192.0.2.1:1"},
            "managed proxy mode requires parseable loopback proxy endpoints",
        ),
    ],
)
@requirement("network/enforced:fails-closed")
async def test_a_sandbox_without_a_proxy_runs_nothing(wire, env, text):
    output, code = await confined(wire, "echo ran", env=env)
    assert output == f"failed to prepare host proxy routing bridge: {text}\n"
    assert code == 101


@requirement("network/enforced:fails-closed", "network/start:lifetime")
async def test_a_sandbox_that_is_terminated_leaves_nothing(wire):
    """The server's `no_leaks` counts descriptors and tasks."""
    sandbox = {"permissions": READ_ALL, "cwd": "file:///tmp", "workspaceRoots": []}
    params = {"sandbox": sandbox, "enforceManagedNetwork": True, "networkProxy": wanted()}
    await wire.start("p", ["sleep", "60"], **params)
    await wire.call("process/terminate", {"processId": "p"})
    await wire.event("p", "process/closed")
