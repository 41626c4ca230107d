"""What callers may pass in, and what they are told if it is something else."""

from __future__ import annotations

import array
import asyncio
import enum
import gc
import logging
import signal
from pathlib import Path, PurePosixPath
from typing import cast

import pytest

from exec_server import read_only, workspace_write
from exec_server.client.arguments import as_bytes, signal_name
from exec_server.errors import InternalError, InvalidParams, NotFound, RpcError
from exec_server.protocol.sandbox import as_context
from tests.requirements import requirement

pytestmark = pytest.mark.usefixtures("no_leaks")


class Tool(str, enum.Enum):  # noqa: UP042 (its str() is not its value)
    ECHO = "echo"


class Text(str):
    def __str__(self) -> str:
        return "something else"


# Bytes.


@requirement("client/arguments:bytes")
@pytest.mark.parametrize("data", ["abcd", "text", 7, None, ["x"], 1.5], ids=repr)
async def test_only_bytes_are_written(client, tmp_path, data):
    path = tmp_path / "f"
    calls = {
        "data": [
            lambda: client.fs.write_bytes(path, data),
            lambda: client.fs.write_file(path, data),
            lambda: client.fs.append(path, data),
            lambda: client.fs.path(str(path)).write_bytes(data),
            lambda: client.write("p", data),
            lambda: client.fs.write_block("h", 0, data),
        ],
        "input": [] if data is None else [lambda: client.run(["cat"], input=data)],
        "content": []
        if data is None
        else [lambda: client.http.post("http://127.0.0.1:9/", content=data)],
    }
    for name, attempts in calls.items():
        for attempt in attempts:
            with pytest.raises(TypeError, match=f"^{name} must be bytes, not"):
                await attempt()
    assert not path.exists()


@requirement("client/arguments:bytes")
async def test_a_text_is_refused_by_streams_and_handles(client, tmp_path):
    with pytest.raises(TypeError, match=r"^data must be bytes, not str"):
        async with client.fs.write_stream(tmp_path / "f") as stream:
            await stream.write("abcd")
    process = await client.start(["cat"], stdin=True)
    with pytest.raises(TypeError, match=r"^data must be bytes, not str"):
        await process.write("abcd")
    await process.terminate()


@requirement("client/arguments:bytes")
async def test_everything_like_bytes_is_written(client, tmp_path):
    for data in (b"abcd", bytearray(b"abcd"), memoryview(b"abcd"), memoryview(b"xabcdx")[1:5]):
        await client.fs.write_bytes(tmp_path / "f", data)
        assert (tmp_path / "f").read_bytes() == b"abcd"
        assert (await client.run(["cat"], input=data)).stdout == b"abcd"
    assert as_bytes(array.array("H", [1, 2]), "data") == array.array("H", [1, 2]).tobytes()


@requirement("client/arguments:bytes")
async def test_text_methods_want_text(client, tmp_path):
    with pytest.raises(TypeError, match=r"^text must be str, not bytes"):
        await client.fs.write_text(tmp_path / "f", b"abcd")


# Commands.


@requirement("client/arguments:words")
async def test_words_may_be_paths_bytes_and_kinds_of_str(client, tmp_path):
    words = [Tool.ECHO, Path("/tmp"), PurePosixPath("/p"), b"bytes", Text("t"), "é"]
    done = await client.run(words, cwd=tmp_path, env={"A": Path("/a"), Text("B"): b"b"})
    assert done.stdout.decode() == "/tmp /p bytes t é\n"
    assert done.argv == ["echo", "/tmp", "/p", "bytes", "t", "é"]
    said = await client.run(
        ["sh", "-c", "pwd; echo $A $B"], cwd=bytes(tmp_path), env={"A": Text("x")}
    )
    assert said.stdout.decode() == f"{tmp_path}\nx\n"
    assert (await client.run(["pwd"], cwd=client.fs.path("/tmp"))).stdout == b"/tmp\n"


@requirement("client/arguments:words")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"argv": "ls -l"}, r"^argv must be a sequence of words.*sh.*-c"),
        ({"argv": b"ls"}, "^argv must be a sequence of words"),
        ({"argv": Path("/bin/ls")}, "^argv must be a sequence of words"),
        ({"argv": None}, "^argv must be a sequence of words, not NoneType"),
        ({"argv": {"ls": 1}}, "^argv must be a sequence of words, not dict"),
        ({"argv": 7}, "^argv must be a sequence of words, not int"),
        ({"argv": ["ls", 7]}, r"^argv\[1\] must be str, bytes or os.PathLike, not int"),
        ({"argv": ["ls", None]}, r"^argv\[1\] must be"),
        ({"argv": ["ls", True]}, r"^argv\[1\] must be .* not bool"),
        ({"argv": ["ls", 1.5]}, r"^argv\[1\] must be .* not float"),
        ({"argv": ["ls", bytearray(b"x")]}, r"^argv\[1\] must be .* not bytearray"),
        ({"argv": [["ls"]]}, r"^argv\[0\] must be"),
        ({"cwd": 7}, "^cwd must be str, bytes or os.PathLike, not int"),
        ({"cwd": ["/tmp"]}, "^cwd must be"),
        ({"env": {"PORT": 80}}, r"^env\['PORT'\] must be str, bytes or os.PathLike, not int"),
        ({"env": {1: "x"}}, "^a name in env must be str, not int"),
        ({"env": ["A=b"]}, "^env must be a mapping"),
        ({"timeout": "5"}, "^timeout must be a number"),
        ({"sandbox": 7}, "^sandbox must be .*read-only.*workspace-write"),
        ({"sandbox": "readonly"}, "^sandbox must be .*read-only.*workspace-write"),
    ],
    ids=str,
)
async def test_anything_else_is_a_type_error_and_nothing_is_sent(client, options, message):
    options = {"argv": ["true"], **options}
    with pytest.raises(TypeError, match=message):
        await client.run(options.pop("argv"), **options)
    assert await client.list_processes() == []


@requirement("client/arguments:words")
@pytest.mark.parametrize("word", ["\udcff", b"\xff"], ids=repr)
async def test_a_word_that_messages_cannot_carry_is_refused(client, word):
    with pytest.raises(ValueError, match=r"^argv\[1\] is not UTF-8"):
        await client.run(["echo", word])
    with pytest.raises(ValueError, match=r"^env\['A'\] is not UTF-8"):
        await client.run(["echo"], env={"A": word})


@requirement("client/arguments:words")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"argv": ["echo", "a\0b"]}, r"^argv\[1\] has a NUL character"),
        ({"env": {"A": "\0"}}, r"^env\['A'\] has a NUL character"),
        ({"env": {"A=B": "c"}}, "^a name in env must not be empty or contain `=`: 'A=B'"),
        ({"env": {"": "c"}}, "^a name in env must not be empty"),
        ({"timeout": float("nan")}, "^timeout must be a number of seconds or None, not nan"),
    ],
    ids=str,
)
async def test_a_value_that_no_program_can_have_is_refused(client, options, message):
    options = {"argv": ["true"], **options}
    with pytest.raises(ValueError, match=message):
        await client.run(options.pop("argv"), **options)
    assert await client.list_processes() == []


@requirement("client/arguments:words")
async def test_a_directory_that_is_not_utf8_can_be_the_cwd(client, tmp_path):
    folder = bytes(tmp_path) + b"/\xff"
    await client.fs.create_directory(folder)
    assert (await client.run(["pwd"], cwd=folder)).stdout == folder + b"\n"


@requirement("client/arguments:words")
async def test_a_refused_argument_leaves_nothing_behind(client, caplog):
    with caplog.at_level(logging.ERROR, "asyncio"):
        for _ in range(3):
            with pytest.raises(TypeError, match=r"^argv\[0\] must be"):
                await client.start([object()])
            with pytest.raises(TypeError, match="a object cannot be sent"):
                await client.start(["true"], process_id=object())
        client.close()
        await client.wait_closed()
        gc.collect()
        await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text


# Signals.


@requirement("client/arguments:signals")
@pytest.mark.parametrize(
    "name", ["TERM", "SIGTERM", "sigterm", "term", "SigTerm", signal.SIGTERM, 15], ids=repr
)
async def test_signals_by_any_spelling(client, name):
    process = await client.start(["sleep", "60"])
    await process.send_signal(name)
    assert await process.wait() == 143


@requirement("client/arguments:signals")
@pytest.mark.parametrize("name", ["SIGNOPE", "", "15", 99, 0, "SIG"], ids=repr)
def test_an_unknown_signal_is_told_with_the_known_ones(name):
    with pytest.raises((ValueError, InvalidParams), match=r"there is no signal .*SIGHUP.*SIGTERM"):
        signal_name(name)


@requirement("client/arguments:signals")
@pytest.mark.parametrize("name", [None, 15.0, b"TERM", True], ids=repr)
def test_only_names_and_numbers_are_signals(name):
    with pytest.raises(TypeError, match=r"^signum must be"):
        signal_name(name)


def test_interrupts_are_what_every_server_knows():
    spellings = ("INT", "sigint", "interrupt", 2, signal.SIGINT)
    assert {signal_name(each) for each in spellings} == {"interrupt"}


# Sandboxes.


@requirement("client/arguments:sandbox")
def test_a_single_path_is_one_root():
    roots = [workspace_write(root).wire for root in ("/tmp/x", b"/tmp/x", Path("/tmp/x"))]
    assert roots == [workspace_write(["/tmp/x"]).wire] * 3
    other = workspace_write("/a", writable_roots="/b").wire
    assert other == workspace_write(["/a"], writable_roots=["/b"]).wire
    with pytest.raises(TypeError, match=r"^roots must be"):
        workspace_write(cast("str", 7))
    with pytest.raises(TypeError, match=r"^roots must be paths"):
        workspace_write([cast("str", 7)])


@requirement("client/arguments:sandbox")
def test_sandboxes_by_name():
    assert as_context("read-only") == read_only()
    assert as_context("workspace-write", cwd="file:///w") == workspace_write("/w")
    with pytest.raises(TypeError, match="workspace_write"):
        as_context("workspace-write")


@requirement("client/arguments:sandbox")
def test_sandboxes_by_name_with_directories():
    expected = workspace_write(["/a", "/w/b"])
    assert as_context("workspace-write=/a:b", cwd="file:///w") == expected
    assert as_context("workspace-write=/a") == workspace_write("/a")
    for wrong in ("workspace-write=", "workspace-write=/a:", "readonly", "read-only=/a", ""):
        with pytest.raises(TypeError, match=r"^sandbox must be"):
            as_context(wrong, cwd="/w")
    with pytest.raises(TypeError, match="needs absolute directories"):
        as_context("workspace-write=a")


# The subject of an error.


@requirement("client/arguments:subjects")
async def test_errors_of_files_name_the_path(client, tmp_path):
    nope = str(tmp_path / "nope")
    attempts = [
        client.fs.read_text(nope),
        client.fs.read_bytes(nope),
        client.fs.get_metadata(nope),
        client.fs.canonicalize(nope),
        client.fs.read_directory(nope),
        client.fs.remove(nope),
        client.fs.copy(nope, tmp_path / "x"),
        client.fs.rename(nope, tmp_path / "x"),
        client.fs.open(nope),
        client.fs.path(nope).read_text(),
        client.fs.write_bytes(f"{nope}/x", b""),
        client.fs.create_directory(f"{nope}/x"),
        client.fs.watch(nope).__aenter__(),
    ]
    with pytest.raises(RpcError, match=f"^'{nope}': No such file or directory"):
        await anext(client.fs.search(nope, "x"))
    for attempt in attempts:
        with pytest.raises(RpcError) as caught:
            await attempt
        assert f"'{nope}" in str(caught.value)
        assert str(caught.value).endswith("No such file or directory (os error 2)")
        assert isinstance(caught.value, NotFound)


@requirement("client/arguments:subjects")
async def test_a_missing_program_and_a_missing_directory_are_told_apart(client, tmp_path):
    with pytest.raises(InternalError) as program:
        await client.run(["nosuch"])
    assert str(program.value) == "'nosuch': No such file or directory (os error 2)"
    with pytest.raises(InternalError) as directory:
        await client.run(["ls"], cwd=tmp_path / "nope")
    said = f"cwd '{tmp_path}/nope': No such file or directory (os error 2)"
    assert str(directory.value) == said
    (tmp_path / "file").touch()
    with pytest.raises(InternalError) as file:
        await client.start(["ls"], cwd=tmp_path / "file")
    assert str(file.value).startswith(f"cwd '{tmp_path}/file': ")


@requirement("client/arguments:subjects")
async def test_an_upload_names_a_source_that_does_not_exist(client, tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        await client.fs.upload("/nope", tmp_path / "x")
    assert caught.value.filename == "/nope"
    with pytest.raises(FileNotFoundError, match=r"^'/nope': "):
        await client.fs.download("/nope", tmp_path / "x")
    with pytest.raises(TypeError):
        await client.fs.upload(None, tmp_path / "x")
