"""Whole trees, from one server to another."""

from __future__ import annotations

import asyncio
import os
from functools import partial

import pytest

from exec_server.client.client import ExecServerClient
from exec_server.client.files.remote_files import RemoteFiles
from exec_server.client.files.transfer.progress import Progress
from exec_server.client.files.transfer.result import TransferResult
from exec_server.client.files.transfer.transfer import persist
from exec_server.client.files.transfer.upload import Upload
from exec_server.client_urls import connect
from exec_server.errors import NotFound, TransferFailed
from exec_server.server.serving import serve
from tests.client.files.transfer.test_transfer import MIB, described, make_files
from tests.requirements import requirement
from tests.support.trees import make_tree
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.one_loop


@pytest.fixture
async def other(no_leaks):
    """A client of another server than `client` is of."""
    async with serve() as running, connect(running.url) as connected:
        yield connected


@pytest.fixture
def copy(client: ExecServerClient, other: ExecServerClient):
    async def copy_tree(source, destination, *, verify="size", on_progress=None) -> TransferResult:
        between = partial(Upload.prepare_between, client.fs, source, other.fs, destination)
        return await persist(partial(between, on_progress=on_progress), verify=verify)

    return copy_tree


@requirement("client/transfer:between")
async def test_a_tree_with_one_of_everything_arrives(copy, tmp_path):
    source = bytes(tmp_path / "source")
    make_tree(source)
    os.chmod(source + b"/setuid", 0o755)
    with open(source + b"/large", "wb") as file:
        file.write(os.urandom(3 * MIB + 1))
    told: list[Progress] = []
    result = await copy(source, tmp_path / "there", verify="hash", on_progress=told.append)
    assert described(tmp_path / "there") == described(source)
    assert (result.problems, result.not_kept) == ([], set())
    assert sorted(remark.path for remark in result.skipped) == ["fifo", "socket"]
    assert (told[-1].files, told[-1].bytes) == (told[-1].total_files, told[-1].total_bytes)
    again = await copy(source, tmp_path / "there")
    assert (again.files, again.kept) == (0, result.files)


@requirement("client/transfer:between")
async def test_a_copy_that_was_cut_goes_on(copy, tmp_path):
    data = os.urandom(40 * MIB)
    (tmp_path / "big").write_bytes(data)
    begun = asyncio.Event()

    def on_progress(progress: Progress) -> None:
        if progress.bytes > 10 * MIB:
            begun.set()

    task = asyncio.ensure_future(
        copy(tmp_path / "big", tmp_path / "there", on_progress=on_progress)
    )
    async with asyncio.timeout(PATIENCE):
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not (tmp_path / "there").exists()
        result = await copy(tmp_path / "big", tmp_path / "there", verify="hash")
    assert result.resumed_bytes > 0
    assert (tmp_path / "there").read_bytes() == data


@requirement("client/transfer:between", "client/transfer:changed")
async def test_what_changes_or_vanishes_meanwhile_is_reported(copy, tmp_path):
    make_files(tmp_path / "source", 3)
    (tmp_path / "source" / "grows").write_bytes(bytes(2 * MIB))
    (tmp_path / "source" / "goes").write_bytes(b"x")

    def on_progress(progress: Progress) -> None:
        if progress.files == 0:
            (tmp_path / "source" / "goes").unlink(missing_ok=True)
            with (tmp_path / "source" / "grows").open("ab") as file:
                file.write(b"more")

    with pytest.raises(TransferFailed) as failed:
        await copy(tmp_path / "source", tmp_path / "there", on_progress=on_progress)
    problems = failed.value.result.problems
    assert sorted(problem.path for problem in problems) == ["goes", "grows"]
    assert {problem.text for problem in problems} == {"changed while it was copied"}
    assert sorted(os.listdir(tmp_path / "there")) == ["d0", "d1", "d2"]


@requirement("client/transfer:between")
async def test_other_bytes_of_the_same_size_and_time_are_found(copy, tmp_path):
    for name, data in (("source", b"these"), ("there", b"those")):
        (tmp_path / name).write_bytes(data)
        os.utime(tmp_path / name, (1, 1))
    assert (await copy(tmp_path / "source", tmp_path / "there")).kept == 1
    with pytest.raises(TransferFailed, match="another content"):
        await copy(tmp_path / "source", tmp_path / "there", verify="hash")


@requirement("client/transfer:between")
async def test_what_is_not_there_is_told(copy, tmp_path):
    with pytest.raises(NotFound):
        await copy(tmp_path / "missing", tmp_path / "there")


@requirement("client/transfer:interrupted")
async def test_a_server_without_rename_is_left_no_part(copy, tmp_path, monkeypatch):
    """There a file grows under its own name, so that a part would look complete."""

    async def offers(files: RemoteFiles, capability: str) -> bool:
        return capability == "fileWriteStreaming"

    monkeypatch.setattr(RemoteFiles, "offers", offers)
    with (tmp_path / "big").open("wb") as file:
        file.truncate(512 * MIB)
    begun = asyncio.Event()

    def on_progress(progress: Progress) -> None:
        if progress.bytes:
            begun.set()

    task = asyncio.ensure_future(
        copy(tmp_path / "big", tmp_path / "there", on_progress=on_progress)
    )
    async with asyncio.timeout(PATIENCE):
        await begun.wait()
        assert (tmp_path / "there").exists()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert os.listdir(tmp_path) == ["big"]
