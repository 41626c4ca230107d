"""Errors of the server's system are OSErrors, with a number and a path, beside our own classes."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import sys
from collections.abc import AsyncIterator

import pytest

from exec_server.client.client import ExecServerClient
from exec_server.client.os_errors import as_os_error
from exec_server.client_urls import connect
from exec_server.errors import (
    ExecServerError,
    InternalError,
    InvalidRequest,
    NotFound,
    RpcError,
)
from exec_server.protocol.sandbox import read_only
from exec_server.sync import connect as connect_sync
from tests.requirements import requirement
from tests.sandbox.escape.users import user
from tests.support.fake_server import Talk, fake_server
from tests.support.wire import Wire


def _told(error: BaseException) -> tuple[type[Exception], int | None, str | None]:
    """The class that Python has for it, the number and the path."""
    assert isinstance(error, RpcError) and isinstance(error, OSError), error
    kinds = FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError
    assert error.filename == error.path
    found = (kind for kind in (*kinds, FileExistsError) if issubclass(type(error), kind))
    kind = next(found, OSError)
    return kind, error.errno, error.path


@requirement("client/errors:os-files")
async def test_errors_of_files_are_oserrors_with_number_and_path(anywhere, tmp_path):
    fs = anywhere.fs
    file, folder, nope = tmp_path / "file", tmp_path / "folder", tmp_path / "nope"
    file.write_bytes(b"x")
    folder.mkdir()
    (folder / "entry").touch()
    link = tmp_path / "link"
    link.symlink_to(file)
    missing = FileNotFoundError, errno.ENOENT
    cases = [
        (fs.read_bytes(nope), NotFound, *missing, nope),
        (fs.read_file(nope), NotFound, *missing, nope),
        (fs.get_metadata(nope), NotFound, *missing, nope),
        (fs.read_directory(nope), NotFound, *missing, nope),
        (fs.canonicalize(nope), NotFound, *missing, nope),
        (fs.remove(nope), NotFound, *missing, nope),
        (fs.walk(nope), NotFound, *missing, nope),
        (fs.copy(nope, tmp_path / "x"), NotFound, *missing, nope),
        (fs.write_file(nope / "x", b""), NotFound, *missing, nope / "x"),
        (fs.read_stream(nope).read(), NotFound, *missing, nope),
        (fs.path(str(nope)).read_text(), NotFound, *missing, nope),
        (fs.read_bytes(folder), InvalidRequest, IsADirectoryError, errno.EISDIR, folder),
        (fs.read_stream(folder).read(), InvalidRequest, IsADirectoryError, errno.EISDIR, folder),
        (fs.read_file(folder, follow_symlinks=False), InvalidRequest, IsADirectoryError,
         errno.EISDIR, folder),
        (fs.write_file(folder, b""), InternalError, IsADirectoryError, errno.EISDIR, folder),
        (fs.copy(folder, nope), InvalidRequest, IsADirectoryError, errno.EISDIR, folder),
        (fs.read_file(file / "x"), InternalError, NotADirectoryError, errno.ENOTDIR, file / "x"),
        (fs.read_directory(file), InternalError, NotADirectoryError, errno.ENOTDIR, file),
        (fs.create_directory(folder), InternalError, FileExistsError, errno.EEXIST, folder),
        (fs.remove(folder), InternalError, OSError, errno.ENOTEMPTY, folder),
        (fs.get_metadata(link, follow_symlinks=False), InvalidRequest, OSError, errno.ELOOP, link),
    ]  # fmt: skip
    for call, ours, kind, number, path in cases:
        with pytest.raises(ours) as caught:
            await call
        assert _told(caught.value) == (kind, number, str(path))
        assert str(path) in str(caught.value)


@requirement("client/errors:os-starts")
async def test_a_missing_program_and_a_missing_directory_are_different_errors(anywhere, tmp_path):
    file = tmp_path / "file"
    file.write_text("not a program")
    nope, loop = tmp_path / "nope", tmp_path / "loop"
    loop.symlink_to(loop)
    cases = [
        ({"argv": ["nosuch"]}, FileNotFoundError, errno.ENOENT, "nosuch", "program"),
        ({"argv": [str(nope)]}, FileNotFoundError, errno.ENOENT, str(nope), "program"),
        ({"argv": [str(file)]}, PermissionError, errno.EACCES, str(file), "program"),
        ({"argv": ["ls"], "cwd": nope}, FileNotFoundError, errno.ENOENT, str(nope), "cwd"),
        ({"argv": ["ls"], "cwd": file}, NotADirectoryError, errno.ENOTDIR, str(file), "cwd"),
        (
            {"argv": ["ls"], "cwd": file / "x"},
            NotADirectoryError,
            errno.ENOTDIR,
            f"{file}/x",
            "cwd",
        ),
        ({"argv": ["ls"], "cwd": loop}, OSError, errno.ELOOP, str(loop), "cwd"),
    ]
    for start, kind, number, path, part in cases:
        with pytest.raises(InternalError) as caught:
            await anywhere.run(**start)
        assert _told(caught.value) == (kind, number, path)
        assert caught.value.kind == part
        assert str(caught.value).startswith(f"cwd {path!r}: " if part == "cwd" else f"{path!r}: ")


@pytest.fixture(params=["ours", "without details"])
async def unprivileged(request, monkeypatch) -> AsyncIterator[ExecServerClient]:
    """A client of a server that may not read everything."""
    nobody = user("nobody")
    if nobody is None:
        pytest.skip("no other user can run our server here")
    if request.param != "ours":
        # Without the question a server of ours answers as the reference does.
        monkeypatch.setattr(RpcError, "from_wire", staticmethod(_bare))
    command = " ".join(f"'{word}'" for word in [*nobody.command, "--listen", "stdio"])
    monkeypatch.setenv("PYTHONPATH", nobody.path)
    monkeypatch.chdir("/")
    async with connect(f"stdio:{command}") as client:
        yield client


_from_wire = RpcError.from_wire


def _bare(code, message, data=None):
    return _from_wire(code, message)


@requirement("client/errors:os-files", "client/errors:os-starts")
async def test_what_may_not_be_read_is_a_permission_error(unprivileged, open_folder):
    secret, locked = open_folder / "secret", open_folder / "locked"
    secret.write_bytes(b"x")
    secret.chmod(0o600)
    locked.mkdir(0o700)
    os.chown(secret, 0, 0)
    for call, path in [
        (unprivileged.fs.read_bytes(secret), secret),
        (unprivileged.fs.write_bytes(secret, b"y"), secret),
        (unprivileged.fs.read_directory(locked), locked),
        (unprivileged.fs.write_file(open_folder / "new", b""), open_folder / "new"),
    ]:
        with pytest.raises(PermissionError) as caught:
            await call
        assert _told(caught.value) == (PermissionError, errno.EACCES, str(path))
        assert isinstance(caught.value, InvalidRequest)
    for start, part, path in [
        (unprivileged.run(["ls"], cwd=locked), "cwd", locked),
        (unprivileged.run([str(secret)]), "program", secret),
    ]:
        with pytest.raises(InternalError) as refused:
            await start
        assert _told(refused.value) == (PermissionError, errno.EACCES, str(path))
        assert refused.value.kind == part


@requirement("client/errors:os-files")
async def test_calls_in_a_sandbox_fail_in_the_same_way(client, tmp_path):
    confined = client.fs.sandboxed(read_only())
    with pytest.raises(FileNotFoundError) as caught:
        await confined.read_file(tmp_path / "nope")
    assert _told(caught.value) == (FileNotFoundError, errno.ENOENT, str(tmp_path / "nope"))
    with pytest.raises(IsADirectoryError):
        await confined.read_file(tmp_path)


@requirement("client/errors:os-files")
async def test_the_error_names_the_path_that_is_missing(client, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"x")
    with pytest.raises(FileNotFoundError) as caught:
        await client.fs.copy(source, tmp_path / "nope" / "target")
    assert caught.value.filename == str(tmp_path / "nope" / "target")
    assert str(caught.value).startswith(f"'{source}' -> '{tmp_path}/nope/target': ")


@requirement("client/errors:os-files")
def test_a_program_without_a_loop_gets_the_same_errors(tmp_path):
    with connect_sync(f"stdio:{sys.executable} -m exec_server --listen stdio") as box:
        with pytest.raises(FileNotFoundError):
            box.fs.read_bytes(tmp_path / "nope")
        with pytest.raises(FileNotFoundError):
            box.run(["nosuch"])


@requirement("client/errors:os-files")
@pytest.mark.parametrize(
    ("code", "text", "kind", "number"),
    [
        (-32004, "No such file or directory (os error 2)", FileNotFoundError, 2),
        (-32600, "Operation not permitted (os error 1)", PermissionError, 1),
        (-32603, "Connection timed out (os error 110)", OSError, 110),
        (-32603, "the pipe: Broken pipe (os error 32)", OSError, 32),
        (-1, "File exists (os error 17)", FileExistsError, 17),
    ],
)
def test_the_number_is_found_in_the_text(code, text, kind, number):
    error = as_os_error(RpcError.from_wire(code, text))
    assert isinstance(error, OSError) and isinstance(error, kind)
    assert (error.errno, error.code, error.message, str(error)) == (number, code, text, text)
    # These would be taken for errors of the connection.
    assert not isinstance(error, TimeoutError | ConnectionError)
    assert error.strerror == text.split(": ")[-1].partition(" (os")[0]


@requirement("client/errors:os-files")
def test_other_errors_stay_as_they_are():
    error = RpcError.from_wire(-32603, "fs sandbox helper failed")
    assert as_os_error(error) is error
    assert (error.errno, error.path, error.kind) == (None, None, None)


@requirement("client/errors:os-files")
def test_errors_can_be_copied_and_pickled():
    data = {"errno": 2, "path": "/x", "kind": "cwd"}
    error = as_os_error(RpcError.from_wire(-32603, "gone (os error 2)", data)).about("cwd '/x'")
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is type(error) and isinstance(again, ExecServerError)
        assert (str(again), again.message, again.args) == (str(error), error.message, error.args)
        assert (again.errno, again.path, again.kind, again.code) == (2, "/x", "cwd", -32603)
    plain = pickle.loads(pickle.dumps(RpcError("text", code=-7).about("'x'")))
    assert (type(plain), plain.code, str(plain)) == (RpcError, -7, "'x': text")


@requirement("client/errors:os-files")
@pytest.mark.parametrize(
    "data", [[], 7, "x", {"errno": "2", "path": 3, "kind": "other"}, {"errno": True}, {}]
)
async def test_nonsense_in_data_is_ignored(data):
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        asked = await talk.expect("fs/canonicalize")
        await talk.send({"id": asked["id"], "error": {"code": -1, "message": "m", "data": data}})
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        with pytest.raises(RpcError, match="m") as caught:
            await client.fs.canonicalize("/x")
        assert (caught.value.errno, caught.value.path) == (None, "/x")


@requirement("errors/details:asked-for")
async def test_a_client_that_does_not_ask_gets_code_and_message_alone(server, tmp_path):
    uri = f"file://{tmp_path}/nope"
    start = {
        "processId": "p", "argv": ["ls"], "cwd": uri, "env": {}, "tty": False,
        "pipeStdin": False, "arg0": None,
    }  # fmt: skip
    (tmp_path / "file").touch()
    copied = {
        "sourcePath": f"file://{tmp_path}/file", "destinationPath": f"{uri}/target",
        "recursive": False,
    }  # fmt: skip
    async with Wire(server.url) as stock, Wire(server.url) as ours:
        await stock.initialize()
        await ours.initialize(errorDetails=True)
        for method, params, more in [
            ("fs/copy", copied, {"errno": 2, "path": f"{uri}/target"}),
            ("process/start", start, {"errno": 2, "kind": "cwd"}),
        ]:
            plain, full = await stock.error(method, params), await ours.error(method, params)
            assert set(plain) == {"code", "message"}
            assert full == {**plain, "data": more}
