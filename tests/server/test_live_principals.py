"""Who gets in with a file of principals, and who may stay while it changes."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import time
from pathlib import Path

import msgspec
import pytest
import websockets

from exec_server.access.principal import read_scopes
from exec_server.access.signed_token import signed_token
from exec_server.access.token_secrets import digest_of, new_secret
from exec_server.cli.cert.cert_command import cert_command
from exec_server.server.authentication import CapabilityToken, SignedBearerToken
from exec_server.server.serving import serve
from exec_server.transport.binding import UnixAccess
from exec_server.transport.certificate import Certificate
from tests.requirements import requirement
from tests.server.test_authentication import SECRET, digest
from tests.support.leaks import eventually
from tests.support.principals import LIMITS, MadePrincipals, bearer
from tests.support.wire import Wire


@pytest.fixture
def made(tmp_path) -> MadePrincipals:
    return MadePrincipals(tmp_path)


async def refusal(wire: Wire) -> str:
    """The text of the 401 that answers a connection."""
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with wire:
            pass
    assert refused.value.response.status_code == 401
    return bytes(refused.value.response.body or b"").decode()


async def who(wire: Wire) -> str:
    async with wire:
        await wire.initialize()
        name: str = (await wire.call("session/whoami", {}))["principal"]
    return name


@requirement("principals:server")
async def test_who_gets_in(no_leaks, made):
    made.add("ci")
    made.add("old", expires_at=time.time() - 1)
    made.add("out", revoked_at=time.time())
    async with serve(limits=LIMITS, principals=made.path) as running:
        assert await who(made.wire(running.url, "ci")) == "ci"
        old, out = made.wire(running.url, "old"), made.wire(running.url, "out")
        assert await refusal(old) == "the access of the principal `old` has expired"
        assert await refusal(out) == "the access of the principal `out` was revoked"
        assert await refusal(Wire(running.url)) == "missing websocket bearer token"
        wrong = Wire(running.url, headers=bearer("exs_wrong"))
        assert await refusal(wrong) == "invalid websocket bearer token"
        odd = Wire(running.url, headers={"Authorization": "Basic eDp5"})
        assert await refusal(odd) == "invalid authorization header"


@requirement("principals:server")
async def test_the_tokens_of_codex_options_work_beside_the_file(no_leaks, made):
    made.add("ci")
    serving = serve(
        limits=LIMITS, principals=made.path, authenticator=CapabilityToken(digest("one"))
    )
    async with serving as running:
        assert await who(made.wire(running.url, "ci")) == "ci"
        async with Wire(running.url, headers=bearer("one")) as wire:
            await wire.initialize()
            found = await wire.call("session/whoami", {})
            assert found["principal"] == "token" and "admin" in found["may"]
        wrong = Wire(running.url, headers=bearer("two"))
        assert await refusal(wrong) == "invalid websocket bearer token"


# What happens to `ci`; the connection of `other` must stay.
CHANGES = {
    "revoked": lambda made: made.change("ci", revoked_at=time.time()),
    "rotated": lambda made: made.change("ci", digest=digest_of(new_secret())),
    "narrowed": lambda made: made.change("ci", may=read_scopes("exec")),
    "expired": lambda made: made.change("ci", expires_at=time.time() + 0.2),
    "removed": lambda made: made.file.remove("ci"),
}


@requirement("principals:live")
async def test_a_principal_that_changes_loses_its_connections(no_leaks, tmp_path):
    for change in CHANGES.values():
        folder = tmp_path / str(id(change))
        folder.mkdir()
        made = MadePrincipals(folder)
        made.add("ci")
        made.add("other")
        async with serve(limits=LIMITS, principals=made.path) as running:
            async with (
                made.wire(running.url, "ci") as one,
                made.wire(running.url, "ci") as two,
                made.wire(running.url, "other") as other,
            ):
                for wire in (one, two, other):
                    await wire.initialize()
                # Another change of the file does no harm to these.
                made.add("new")
                await eventually(lambda: running.access._known and "new" in running.access._known)
                await one.call("session/ping", {})
                change(made)
                await asyncio.gather(one.closed(), two.closed())
                assert one.socket.close_code == two.socket.close_code == 1008
                said = "the token of this connection is no longer accepted"
                assert one.socket.close_reason == said
                await other.call("session/ping", {})


@requirement("principals:live")
async def test_the_session_waits_for_the_new_token(no_leaks, made):
    made.add("ci")
    async with serve(limits=LIMITS, principals=made.path) as running:
        async with made.wire(running.url, "ci") as wire:
            session = (await wire.initialize())["sessionId"]
            made.tokens["ci"] = new_secret()
            made.change("ci", digest=digest_of(made.tokens["ci"]))
            await wire.closed()
        async with made.wire(running.url, "ci") as wire:
            assert (await wire.initialize(resumeSessionId=session))["sessionId"] == session


@requirement("principals:reload")
async def test_a_broken_file_keeps_the_old_principals(no_leaks, made, caplog):
    made.add("ci")
    async with serve(limits=LIMITS, principals=made.path) as running:
        async with made.wire(running.url, "ci") as wire:
            await wire.initialize()
            made.path.chmod(0o644)
            await eventually(lambda: "the old principals stay in use" in caplog.text)
            await wire.call("session/ping", {})
            assert await who(made.wire(running.url, "ci")) == "ci"
            made.path.chmod(0o600)
            made.change("ci", revoked_at=time.time())
            await wire.closed()
    assert caplog.text.count("the old principals stay in use") == 1


@requirement("principals:last-use")
async def test_the_last_use_is_noted(no_leaks, made):
    made.add("ci")
    made.add("idle")
    before = time.time()
    async with serve(limits=LIMITS, principals=made.path) as running:
        async with made.wire(running.url, "ci") as wire:
            await wire.initialize()
            await eventually(lambda: made.file.last_uses())
            # A note is no change of the principals.
            await wire.call("session/ping", {})
            port = wire.socket.local_address[1]
        (found,) = made.file.last_uses().items()
        assert found[0] == "ci" and before <= found[1].at <= time.time()
        assert found[1].source == f"127.0.0.1:{port}"
        noted = found[1].at
        await who(made.wire(running.url, "ci"))
    # The end of the server notes what was not noted yet.
    assert made.file.last_uses()["ci"].at > noted


def signed(**claims: object) -> dict[str, str]:
    return bearer(signed_token({"exp": int(time.time()) + 600, **claims}, SECRET))


@requirement("principals:signed")
async def test_the_subject_of_a_signed_token_is_a_principal(no_leaks, made):
    made.add("ann", "exec,files:read", subjects=("auth0|1",))
    made.add("out", revoked_at=time.time())
    serving = serve(limits=LIMITS, principals=made.path, authenticator=SignedBearerToken(SECRET))
    cases: list[tuple[dict[str, object], str, list[str]]] = [
        ({"sub": "ann"}, "ann", ["exec", "files:read"]),
        ({"sub": "auth0|1"}, "ann", ["exec", "files:read"]),
        ({"sub": "ann", "may": ["exec", "admin"]}, "ann", ["exec"]),
        ({"sub": "ann", "may": "exec http"}, "ann", ["exec"]),
        ({"sub": "ann", "scope": "openid exec"}, "ann", ["exec"]),
        ({"sub": "ann", "scope": "openid"}, "ann", ["exec", "files:read"]),
        ({"sub": "ann", "may": []}, "ann", []),
        ({"sub": "new", "may": ["files:read"]}, "sub:new", ["files:read"]),
        ({"may": ["files:read"]}, "token", ["files:read"]),
    ]
    async with serving as running:
        for claims, name, may in cases:
            async with Wire(running.url, headers=signed(**claims)) as wire:
                await wire.initialize()
                found = await wire.call("session/whoami", {})
                assert (found["principal"], found["may"]) == (name, may), claims
        nothing = "the jwt names no principal of this server, and no scopes"
        assert await refusal(Wire(running.url, headers=signed(sub="new"))) == nothing
        assert await refusal(Wire(running.url, headers=signed())) == nothing
        assert await refusal(Wire(running.url, headers=signed(may=1))) == "invalid websocket jwt"
        revoked = Wire(running.url, headers=signed(sub="out", may=["exec"]))
        assert await refusal(revoked) == "the access of the principal `out` was revoked"
        async with Wire(running.url, headers=signed(sub="ann")) as wire:
            await wire.initialize()
            made.change("ann", revoked_at=time.time())
            await wire.closed()


@requirement("principals:signed")
async def test_without_a_file_a_signed_token_has_the_rights_that_it_leaves(no_leaks):
    async with serve(limits=LIMITS, authenticator=SignedBearerToken(SECRET)) as running:
        for claims, may in (({"sub": "ann"}, 5), ({"sub": "ann", "may": ["exec"]}, 1), ({}, 5)):
            async with Wire(running.url, headers=signed(**claims)) as wire:
                await wire.initialize()
                assert len((await wire.call("session/whoami", {}))["may"]) == may


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    folder = tmp_path / "lab"
    for words in (["ca"], ["server", "127.0.0.1"], ["client", "alice"], ["client", "eve"]):
        assert cert_command([words[0], str(folder), *words[1:]]) == 0
    return folder


def trusting(lab: Path, client: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=lab / "ca.pem")
    context.load_cert_chain(lab / f"client-{client}.pem", lab / f"client-{client}-key.pem")
    return context


@requirement("principals:certificate")
async def test_a_certificate_makes_its_client_a_principal(no_leaks, made, lab):
    made.add("alice-at-work", "files:read", certificates=("alice",), digest=None)
    made.add("ci", "exec")
    tls = Certificate(
        str(lab / "server-127.0.0.1.pem"),
        str(lab / "server-127.0.0.1-key.pem"),
        client_ca=str(lab / "ca.pem"),
    )
    async with serve(limits=LIMITS, principals=made.path, tls=tls) as running:
        alice, eve = trusting(lab, "alice"), trusting(lab, "eve")
        # A token tells who it is, whichever certificate the connection has.
        token = bearer(made.tokens["ci"])
        assert await who(Wire(running.url, headers=token, context=alice)) == "ci"
        assert await who(Wire(running.url, headers=token, context=eve)) == "ci"
        wrong = Wire(running.url, headers=bearer("wrong"), context=alice)
        assert await refusal(wrong) == "invalid websocket bearer token"
        said = "no principal has this certificate, and there is no bearer token"
        assert await refusal(Wire(running.url, context=eve)) == said
        async with Wire(running.url, context=alice) as wire:
            await wire.initialize()
            assert (await wire.call("session/whoami", {}))["principal"] == "alice-at-work"
            assert (await wire.error("process/list", {}))["code"] == -32020
            made.change("alice-at-work", certificates=("alice-2",))
            await wire.closed()


CONNECT = """\
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(30)
try:
    os.setuid(int(sys.argv[2]))
    s.connect(sys.argv[1])
except OSError:
    # A container has few users, or its temporary directory is not for others.
    sys.exit(77)
s.sendall(b'{"id":1,"method":"initialize","params":{"clientName":"x"}}\\n'
          b'{"method":"initialized"}\\n{"id":2,"method":"session/whoami","params":{}}\\n')
found = b""
while b'"id":2' not in found:
    data = s.recv(65536)
    if not data:
        break
    found += data
sys.stdout.buffer.write(found.splitlines()[-1] if found else b"refused")
"""


async def said_to_user(path: Path, uid: int) -> str:
    """The answer to `whoami` of a connection of the user *uid*, or "refused"."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CONNECT, str(path), str(uid), stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    if process.returncode == 77:
        pytest.skip(f"the user {uid} cannot reach a socket in the temporary directory")
    return out.decode()


@requirement("principals:unix-user")
@pytest.mark.one_loop
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")
async def test_users_at_a_unix_socket_are_principals(no_leaks, made, open_folder):
    made.add("worker", "files:read", unix_users=("4321",), digest=None)
    made.add("out", unix_users=("4322",), digest=None, revoked_at=1.0)
    path = open_folder / "s"
    serving = serve(
        f"unix://{path}", limits=LIMITS, principals=made.path, unix_access=UnixAccess(0o666)
    )
    async with serving as running:
        worker = msgspec.json.decode(await said_to_user(path, 4321))["result"]
        assert (worker["principal"], worker["may"]) == ("worker", ["files:read"])
        for uid in (4322, 4323):
            assert await said_to_user(path, uid) == "refused"
        own = msgspec.json.decode(await said_to_user(path, 0))["result"]
        assert own["principal"] == "uid:0" and "admin" in own["may"]
        async with Wire(running.url) as wire:
            await wire.initialize()
            assert (await wire.call("session/whoami", {}))["principal"] == "uid:0"
            # The file may restrict even the server's own user.
            made.add("me", "files:read", unix_users=("root",), digest=None)
            await wire.closed()
        assert await who(Wire(running.url)) == "me"
