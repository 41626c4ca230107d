"""`cp -r` again after an interruption or an error: it finishes the same destination."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.files.conftest import done, run
from tests.client.files.transfer.test_transfer import described, make_files
from tests.requirements import requirement
from tests.support.fault_proxy import Fault, fault_proxy
from tests.support.leaks import eventually
from tests.support.servers import OURS, start_server
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.one_loop

MIB = 1024 * 1024


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    make_files(root, 60, 1000)
    (root / "big").write_bytes(os.urandom(12 * MIB))
    return root


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("way", ["up", "down"])
@requirement("cli/files:cp-again")
async def test_an_interrupted_copy_is_finished_by_the_same_command(
    server, tmp_path, source, signum, way
):
    copy = tmp_path / "new" / "copy"
    schedule = [Fault(9 * MIB, way, "stall"), None, None]
    async with fault_proxy(server.url, schedule) as proxy:
        if way == "up":
            words = ["cp", "-r", str(source), f"{proxy.url}:{copy}"]
        else:
            words = ["cp", "-r", f"{proxy.url}:{source}", str(copy)]
        process = await asyncio.create_subprocess_exec(*OURS, *words, stderr=subprocess.DEVNULL)
        await eventually(lambda: proxy.faults == 1)
        await eventually(lambda: any(copy.glob("big.*.part")))
        process.send_signal(signum)
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() != 0
        assert not (copy / "big").exists()
        await done(*words)
        assert described(copy) == described(source)
        # The note is gone, so the next copy goes into the directory, as with cp.
        assert os.listdir(copy.parent) == ["copy"]
        await done(*words)
    assert described(copy / "source") == described(source)


@requirement("cli/files:cp-again")
async def test_a_copy_with_errors_is_finished_by_the_same_command(server, tmp_path, source):
    copy = tmp_path / "copy"
    with start_limited(MIB) as url:
        failed = await run("cp", "-r", source, f"{url}:{copy}")
        assert failed.status == 1 and f"{source}/big: File too large" in failed.stderr
        assert not any(copy.glob("*.part")) and not any(copy.glob(".exec-server-*"))
        assert len(list(copy.rglob("f*"))) == 60
    await done("cp", "-r", source, f"{server.url}:{copy}")
    assert described(copy) == described(source)


@requirement("cli/files:cp-again")
async def test_a_copy_within_one_server_is_finished_by_the_same_command(server, tmp_path, source):
    copy = tmp_path / "new" / "copy"
    copy.parent.mkdir()
    for number in range(9):
        (source / f"link{number}").symlink_to("big")
    with start_limited(MIB) as url:
        failed = await run("cp", "-r", f"{url}:{source}", f"{url}:{copy}")
        assert failed.status == 1 and "File too large" in failed.stderr
        assert copy.is_dir()
    words = ["cp", "-r", f"{server.url}:{source}", f"{server.url}:{copy}"]
    await done(*words)
    assert os.listdir(copy.parent) == ["copy"]
    assert described(copy) == described(source)
    # The note is gone, so the next copy goes into the directory, as with cp.
    await done(*words)
    assert (copy / "source" / "big").exists()


@requirement("cli/files:cp-again")
async def test_another_source_goes_into_the_directory(server, tmp_path, source):
    copy = tmp_path / "copy"
    with start_limited(MIB) as url:
        assert (await run("cp", "-r", source, f"{url}:{copy}")).status == 1
    make_files(tmp_path / "other", 3)
    await done("cp", "-r", tmp_path / "other", f"{server.url}:{copy}")
    assert described(copy / "other") == described(tmp_path / "other")


@requirement("cli/files:errors")
async def test_a_missing_directory_is_named(server, tmp_path, source):
    file = source / "d0" / "f0"
    missing = tmp_path / "nope" / "x"
    for words in ([file, f"{server.url}:{missing}/y"], [f"{server.url}:{file}", missing / "y"]):
        failed = await run("cp", *words)
        assert failed.status == 1
        assert failed.stderr.endswith(f"{missing}/y: the directory {missing} does not exist\n")


@contextlib.contextmanager
def start_limited(most: int) -> Iterator[str]:
    """A server that cannot write files of more than *most* bytes."""
    program = (
        "import os, resource, sys; "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most})); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    with start_server(command=[sys.executable, "-c", program, *OURS]) as running:
        yield running.url


@requirement("cli/files:cp-again")
async def test_the_destination_may_be_written_in_another_way(server, tmp_path, source):
    copy = tmp_path / "copy"
    relative = os.path.relpath(copy, os.getcwd())
    with start_limited(MIB) as url:
        assert (await run("cp", "-r", source, f"{url}:{copy}/")).status == 1
        assert (await run("cp", "-r", f"{source}/", f"{url}:{relative}")).status == 1
    await done("cp", "-r", source, f"{server.url}:{tmp_path}/./copy")
    assert described(copy) == described(source)
    assert sorted(os.listdir(tmp_path)) == ["copy", "source"]


@pytest.mark.parametrize("form", ["relative", "dots", "link"])
@requirement("cli/files:cp-again")
async def test_the_source_on_a_server_may_be_written_in_another_way(server, tmp_path, source, form):
    copy, link = tmp_path / "copy", tmp_path / "link"
    link.symlink_to(source)
    forms = {
        "relative": os.path.relpath(source, os.getcwd()),
        "dots": f"{tmp_path}/../{tmp_path.name}/./source//",
        "link": f"{link}/",
    }
    with start_limited(MIB) as url:
        assert (await run("cp", "-r", f"{url}:{source}", f"{url}:{copy}")).status == 1
    await done("cp", "-r", f"{server.url}:{forms[form]}", f"{server.url}:{copy}")
    assert (copy / "big").read_bytes() == (source / "big").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["copy", "link", "source"]
    assert not (copy / "source").exists() and not (copy / "link").exists()
