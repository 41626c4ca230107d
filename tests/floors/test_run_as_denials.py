"""What is refused to commands of another user is recorded, and granted with that user's rights."""

from __future__ import annotations

import asyncio
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from exec_server import Denial, connect
from exec_server.sandbox.supervisor.orders import obstacle, obstacle_to_landlock
from tests.floors.test_run_as import USER, needs_root
from tests.requirements import requirement
from tests.sandbox.test_processes import managed, on_both_backends, special
from tests.support.tenants import serving
from tests.support.wire import PATIENCE

pytestmark = [
    needs_root,
    pytest.mark.one_loop,
    pytest.mark.skipif(obstacle() is not None, reason=f"no supervisor here: {obstacle()}"),
]


def on(backend: str) -> Any:
    is_landlock = backend == "landlock"
    if is_landlock and obstacle_to_landlock(is_other_user=True) is not None:
        pytest.skip("the kernel does not let a user's processes look at one another")
    return managed(special("root", "read"), useLegacyLandlock=is_landlock)


@on_both_backends
@requirement("denials/records:other-users")
async def test_a_held_call_of_another_user_goes_on_with_its_rights(no_leaks, place, backend):
    nobody = pwd.getpwnam(USER)
    app, other = place / "app", place / "other"
    os.chown(app, nobody.pw_uid, nobody.pw_gid)
    other.chmod(0o700)
    heard: asyncio.Queue[Denial] = asyncio.Queue()
    # The user may not write to the second directory, so nothing was refused by the sandbox there.
    script = f"umask 027; echo x > {app}/made; echo x > {other}/made; id -u; cat {app}/made"
    async with serving() as (running, _, _), connect(running.url) as client:
        process = await client.start(
            ["sh", "-c", script],
            cwd=app,
            user=USER,
            sandbox=on(backend),
            denial_hold=30,
            on_denied=heard.put_nowait,
        )
        assert process.denials_unavailable is None
        async with asyncio.timeout(PATIENCE):
            denial = await heard.get()
        assert (denial.target, denial.held) == (str(app / "made"), True)
        assert (await process.grant(denial)).released == 1
        out, _ = await process.communicate()
        assert out == b"%d\nx\n" % nobody.pw_uid
        found = await process.denials()
        assert [each.target for each in found.denials] == [str(app / "made")]
        assert found.unseen == 0
    assert owner(app / "made") == (nobody.pw_uid, nobody.pw_gid, 0o640)


def owner(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid, found.st_mode & 0o777
