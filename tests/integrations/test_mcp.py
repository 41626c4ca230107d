"""`exec-server mcp`, used by the client of the MCP SDK and by the Codex CLI."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ImageContent, ReadResourceResult, TextContent, TextResourceContents

import exec_server
from exec_server.cli.mcp.mcp_options import mcp_parser
from exec_server.client.session_token import SessionToken
from exec_server.integrations.mcp import mcp_process_tools
from exec_server.integrations.mcp.mcp_box import McpBox
from exec_server.integrations.mcp.mcp_http import listen
from exec_server.integrations.mcp.mcp_server import make_server
from exec_server.integrations.mcp.mcp_settings import McpSettings
from tests.requirements import requirement
from tests.support.cli import running
from tests.support.leaks import eventually
from tests.support.servers import OURS, ROOT, codex_home, reference_binary
from tests.support.wire import PATIENCE

# A program that serves MCP loads for seconds on a busy machine.
PATIENT = 90.0
pytestmark = [pytest.mark.one_loop, pytest.mark.timeout(150)]

ALL = set(
    "run start read write screenshot signal list "
    "read_file write_file edit_file list_directory search".split()
)
CHANGING = {"run", "start", "write", "signal", "write_file", "edit_file"}


@contextlib.asynccontextmanager
async def tools(server, tmp_path: Path, **options: Any) -> AsyncIterator[Client]:
    """A client of an MCP server in this process, which works in *tmp_path*."""
    settings = McpSettings(
        server=server.url, cwd=str(tmp_path), records=tmp_path / "records", **options
    )

    def connect(session_token: str | None):
        return exec_server.connect(server.url, session_token=session_token)

    async with asyncio.timeout(PATIENT), McpBox(connect, settings) as box:
        async with Client(make_server(box, settings)) as client:
            yield client


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


def text_of(resource: ReadResourceResult) -> str:
    (content,) = resource.contents
    assert isinstance(content, TextResourceContents)
    return content.text


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return str(result.content[0].text)  # type: ignore[union-attr]


@requirement("integrations/mcp:tools")
async def test_every_tool_has_schemas_and_hints(server, tmp_path):
    async with tools(server, tmp_path) as mcp:
        found = {tool.name: tool for tool in (await mcp.list_tools()).tools}
        assert set(found) == ALL
        for tool in found.values():
            # A picture has no structure.
            assert (tool.output_schema is None) is (tool.name == "screenshot")
            assert tool.description
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint is (tool.name not in CHANGING)
            assert not {"sandbox", "max_output_bytes"} & set(tool.input_schema["properties"])


@requirement("integrations/mcp:operator-decides")
async def test_the_model_chooses_only_what_the_operator_allows(server, tmp_path):
    choices = frozenset({"sandbox", "output"})
    async with tools(server, tmp_path, model_may=choices, max_output=8) as client:
        found = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"sandbox", "max_output_bytes"} <= set(found["run"].input_schema["properties"])
        ran = await call(client, "run", command="echo 123456789", max_output_bytes=100)
        assert ran["stdout"] == "123456789\n"
    async with tools(server, tmp_path, max_output=8) as client:
        assert (await call(client, "run", command="echo 123456789"))["truncated"]
        told = await refusal(client, "run", command="echo 1", max_output_bytes=100)
        assert "max_output_bytes" in told and "not permitted" in told


@requirement("integrations/mcp:unknown-arguments")
async def test_a_tool_refuses_arguments_that_it_does_not_have(server, tmp_path):
    async with tools(server, tmp_path) as client:
        for tool in (await client.list_tools()).tools:
            assert tool.input_schema["additionalProperties"] is False
        told = await refusal(client, "run", command="touch made", time_out=3)
        assert "time_out" in told
        assert not (tmp_path / "made").exists()


@requirement("integrations/mcp:read-only")
async def test_a_read_only_server_has_no_tool_that_changes_something(server, tmp_path):
    async with tools(server, tmp_path, read_only=True) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == ALL - CHANGING
        assert "Unknown tool" in await refusal(client, "run", command="true")


@requirement("integrations/mcp:run")
async def test_run_tells_how_a_command_ended(server, tmp_path):
    async with tools(server, tmp_path) as mcp:
        ran = await call(
            mcp, "run", command="echo out; echo err >&2; pwd; cat; exit 3", stdin="in\n"
        )
        assert (ran["exit_code"], ran["stderr"]) == (3, "err\n")
        assert ran["stdout"] == f"out\n{tmp_path}\nin\n"
        assert (await call(mcp, "run", argv=["sh", "-c", "kill -9 $$"]))["signal"] == "SIGKILL"
        nameless = await call(mcp, "run", argv=["sh", "-c", "kill -40 $$"])
        assert (nameless["signal"], nameless["exit_code"]) == ("signal 40", 168)
        assert "No such file" in await refusal(mcp, "run", argv=["nonesuch"])
        assert "either" in await refusal(mcp, "run", command="true", argv=["true"])
        late = await call(mcp, "run", command="echo so far; sleep 600", timeout=0.5)
        assert late["timed_out"] and late["stdout"] == "so far\n" and late["exit_code"] is None


@requirement("integrations/mcp:run-background")
async def test_what_run_leaves_in_the_background_can_be_ended(server, tmp_path):
    async with tools(server, tmp_path) as mcp:
        ran = await call(mcp, "run", command="sleep 600 & echo up")
        assert ran["stdout"] == "up\n" and ran["exit_code"] == 0
        process_id = ran["background_process_id"]
        assert (await call(mcp, "list"))["processes"] == []
        await call(mcp, "signal", process_id=process_id, signal="KILL")
        read: dict[str, Any] = {"is_complete": False, "next": 0}
        while not read["is_complete"]:
            arguments = {"after": read["next"], "wait_seconds": PATIENCE}
            read = await call(mcp, "read", process_id=process_id, **arguments)


@requirement("integrations/mcp:progress")
async def test_progress_is_reported_while_a_command_runs(server, tmp_path, monkeypatch):
    async with tools(server, tmp_path) as mcp:
        monkeypatch.setattr(mcp_process_tools, "PROGRESS_PAUSE", 0.01)
        os.mkfifo(tmp_path / "cue")
        heard = asyncio.Event()

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            assert total == 50 and message and "cat cue" in message
            heard.set()

        async def end() -> None:
            await heard.wait()
            await asyncio.to_thread((tmp_path / "cue").write_text, "done")

        result, _ = await asyncio.gather(
            mcp.call_tool("run", {"command": "cat cue"}, progress_callback=hear), end()
        )
        assert result.structured_content["stdout"] == "done"


@requirement("integrations/mcp:cancel")
async def test_a_cancelled_call_ends_its_command(server, tmp_path):
    async with tools(server, tmp_path) as mcp:
        os.mkfifo(tmp_path / "pid")
        command = "echo $$ > pid; sleep 600"
        calling = asyncio.create_task(mcp.call_tool("run", {"command": command}))
        pid = int(await asyncio.to_thread((tmp_path / "pid").read_text))
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        await eventually(lambda: not Path(f"/proc/{pid}").exists())


@requirement("integrations/mcp:jobs", "integrations/mcp:resources")
async def test_a_job_is_read_written_to_and_signalled(server, tmp_path):
    async with tools(server, tmp_path) as mcp:
        started = await call(mcp, "start", command="echo hello; read x; echo got $x; sleep 600")
        process_id = started["process_id"]
        first = await call(mcp, "read", process_id=process_id, wait_seconds=PATIENCE)
        assert first["output"] == "hello\n" and first["is_running"]
        assert (await call(mcp, "write", process_id=process_id, text="it\n"))[
            "status"
        ] == "accepted"
        after = first["next"]
        second = await call(mcp, "read", process_id=process_id, after=after, wait_seconds=PATIENCE)
        assert second["output"] == "got it\n"
        log = await mcp.read_resource(f"process:///{process_id}/log")
        assert text_of(log) == "hello\ngot it\n"
        (job,) = (await call(mcp, "list"))["processes"]
        assert (job["process_id"], job["state"]) == (process_id, "running")
        assert (await call(mcp, "signal", process_id=process_id))["was_running"]
        after = second["next"]
        last = await call(mcp, "read", process_id=process_id, after=after, wait_seconds=PATIENCE)
        assert (last["exit_code"], last["is_running"], last["output"]) == (143, False, "")
        with pytest.raises(MCPError):
            await mcp.read_resource("process:///nonesuch/log")
        assert "nonesuch" in await refusal(mcp, "read", process_id="nonesuch")


@requirement("integrations/mcp:jobs")
async def test_a_character_that_comes_in_two_parts_is_read_whole(server, tmp_path):
    async with tools(server, tmp_path) as mcp:
        command = r"printf 'a\303'; read x; printf '\251b'"
        process_id = (await call(mcp, "start", command=command))["process_id"]
        read = await call(mcp, "read", process_id=process_id, wait_seconds=PATIENCE)
        assert read["output"] == "a"
        await call(mcp, "write", process_id=process_id, text="\n")
        again = {"process_id": process_id, "after": read["next"], "wait_seconds": PATIENCE}
        assert (await call(mcp, "read", **again))["output"] == "éb"


@requirement("integrations/mcp:jobs-survive")
async def test_a_job_survives_the_mcp_server(server, tmp_path):
    async with tools(server, tmp_path) as one:
        started = await call(one, "start", command="echo before; read x; echo after $x")
        process_id = started["process_id"]
        # A second server beside the first has jobs of its own.
        async with tools(server, tmp_path) as other:
            assert (await call(other, "list"))["processes"] == []
    async with tools(server, tmp_path) as later:
        (job,) = (await call(later, "list"))["processes"]
        assert (job["process_id"], job["state"]) == (process_id, "running")
        await call(later, "write", process_id=process_id, text="that\n")
        text, after = "", 0
        while "that" not in text:
            read = await call(
                later, "read", process_id=process_id, after=after, wait_seconds=PATIENCE
            )
            text, after = text + read["output"], read["next"]
    assert text == "before\nafter that\n"


@requirement("integrations/mcp:jobs-survive")
async def test_the_record_of_a_forgotten_session_is_removed(server, tmp_path):
    async with tools(server, tmp_path) as client:
        await call(client, "start", command="true")
    (record,) = (tmp_path / "records").iterdir()
    assert record.stat().st_mode & 0o777 == 0o600
    record.write_text(str(SessionToken("nonesuch", {})))
    async with tools(server, tmp_path) as client:
        assert (await call(client, "list"))["processes"] == []
    assert not list((tmp_path / "records").iterdir())


@requirement("integrations/mcp:files", "integrations/mcp:resources")
async def test_files_are_written_edited_read_listed_and_searched(server, tmp_path):
    async with tools(server, tmp_path) as mcp:
        await call(mcp, "write_file", path="sub/a.txt", text="one\ntwo\nthree\n")
        edited = await call(mcp, "edit_file", path="sub/a.txt", old="two", new="2")
        assert edited["replacements"] == 1
        assert (tmp_path / "sub/a.txt").read_text() == "one\n2\nthree\n"
        read = await call(mcp, "read_file", path="sub/a.txt", first_line=2, max_lines=1)
        assert (read["text"], read["next_line"], read["size"]) == ("2\n", 3, 12)
        assert "does not occur" in await refusal(
            mcp, "edit_file", path="sub/a.txt", old="x", new="y"
        )
        assert "3 times" in await refusal(mcp, "edit_file", path="sub/a.txt", old="e", new="E")
        listed = await call(mcp, "list_directory")
        assert {"name": "sub", "kind": "directory", "is_link": False} in listed["entries"]
        found = await call(mcp, "search", pattern="thr.e", glob="*.txt")
        assert found["matches"] == [{"path": f"{tmp_path}/sub/a.txt", "line": 3, "text": "three"}]
        assert (await call(mcp, "search", pattern="nowhere"))["matches"] == []
        names = await call(mcp, "search", glob="a.*")
        assert [match["path"] for match in names["matches"]] == [f"{tmp_path}/sub/a.txt"]
        (tmp_path / "raw").write_bytes(b"\xff\x00")
        assert (await call(mcp, "read_file", path="raw"))["base64"] == "/wA="
        assert "No such file" in await refusal(mcp, "read_file", path="none")
        resource = await mcp.read_resource(f"file://{tmp_path}/sub/a.txt")
        assert text_of(resource) == "one\n2\nthree\n"
        with pytest.raises(MCPError, match="No such file"):
            await mcp.read_resource(f"file://{tmp_path}/none")


@requirement("integrations/mcp:files")
async def test_a_long_file_is_read_in_parts(server, tmp_path):
    text = "".join(f"line {number}\n" for number in range(100))
    (tmp_path / "long").write_text(text)
    async with tools(server, tmp_path, max_output=300) as client:
        got, first = "", 1
        while first is not None:
            read = await call(client, "read_file", path="long", first_line=first)
            assert len(read["text"]) <= 300
            got, first = got + read["text"], read["next_line"]
    assert got == text


@requirement("integrations/mcp:sandbox")
async def test_the_sandbox_of_the_operator_holds_for_commands_and_files(server, tmp_path):
    async with exec_server.connect(server.url) as box:
        found = await box.sandbox_info()
        if found is None or found.rung not in ("bubblewrap", "landlock"):
            pytest.skip("there is no sandbox on this machine that confines files")

    async def read_only(client: exec_server.ExecServerClient, cwd: str | None):
        return exec_server.read_only()

    async with tools(server, tmp_path, sandbox_for=read_only, is_sandboxed=True) as client:
        assert (await call(client, "run", command="echo x > file"))["exit_code"] != 0
        assert await refusal(client, "write_file", path="file", text="x")
        started = await call(client, "start", command="echo x > file")
        process_id = started["process_id"]
        read: dict[str, Any] = {"is_running": True, "next": 0}
        while read["is_running"]:
            read = await call(
                client, "read", process_id=process_id, after=read["next"], wait_seconds=PATIENCE
            )
        assert read["exit_code"] != 0
    assert not (tmp_path / "file").exists()


@requirement("integrations/mcp:sandbox")
async def test_the_model_does_not_choose_what_the_sandbox_lets_it_write(server, tmp_path):
    # Not below /tmp, which such a sandbox lets commands write to.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        own, other = Path(folder) / "own", Path(folder) / "other"
        own.mkdir()
        other.mkdir()
        options = ("--cwd", str(own), "--sandbox", "workspace-write")
        async with asyncio.timeout(PATIENT):
            async with Client(stdio_client(stdio(server.url, tmp_path, *options))) as client:
                ran = await client.call_tool("run", {"command": "echo x > file"})
                if ran.is_error:
                    pytest.skip("there is no sandbox on this machine that can do this")
                assert (own / "file").exists(), ran.structured_content
                for tool in ("run", "start"):
                    await client.call_tool(
                        tool, {"command": "echo x > file; echo x > ../own/two", "cwd": str(other)}
                    )
                    env = {"TMPDIR": str(other)}
                    told = await refusal(client, tool, command="echo x > ../other/file", env=env)
                    assert "TMPDIR" in told
                await call(client, "write_file", path="three", text="x")
                assert await refusal(client, "write_file", path=str(other / "file"), text="x")
        assert not list(other.iterdir())


def stdio(url: str, tmp_path: Path, *options: str) -> StdioServerParameters:
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    words = [*OURS, "mcp", *options, url]
    return StdioServerParameters(command=words[0], args=words[1:], env=env)


@requirement("integrations/mcp:sandbox", "integrations/mcp:jobs-survive")
async def test_a_shell_that_was_started_without_a_sandbox_is_no_way_out_of_one(server, tmp_path):
    async with asyncio.timeout(PATIENT):
        async with Client(stdio_client(stdio(server.url, tmp_path))) as client:
            shell = (await call(client, "start", argv=["sh"]))["process_id"]
        words = stdio(server.url, tmp_path, "--sandbox", "read-only")
        async with Client(stdio_client(words)) as client:
            assert (await call(client, "list"))["processes"] == []
            wrote = await call(client, "write", process_id=shell, text="exit\n")
            assert wrote["status"] == "unknownProcess"
        async with Client(stdio_client(stdio(server.url, tmp_path))) as client:
            (job,) = (await call(client, "list"))["processes"]
            assert (job["process_id"], job["state"]) == (shell, "running")
            await call(client, "signal", process_id=shell, signal="KILL")


@requirement("integrations/mcp:stdio", "integrations/mcp:unreachable")
async def test_the_command_speaks_mcp_on_stdio_and_connects_at_the_first_call(server, tmp_path):
    async with asyncio.timeout(PATIENT):
        async with Client(stdio_client(stdio(server.url, tmp_path))) as client:
            assert (await call(client, "run", command="echo hi"))["stdout"] == "hi\n"
        async with Client(stdio_client(stdio("ws://127.0.0.1:1", tmp_path))) as client:
            assert len((await client.list_tools()).tools) == len(ALL)
            assert "failed to connect" in await refusal(client, "run", command="true")


@requirement("integrations/mcp:killed")
async def test_commands_end_when_the_mcp_server_is_killed(tmp_path):
    async with exec_server.serve(limits=exec_server.Limits(detached_session_seconds=0.2)) as server:
        words = ("mcp", "--cwd", str(tmp_path), server.url)
        env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
        async with running(*words, stdin=subprocess.PIPE, env=env) as process:
            pid = await start_command(process, tmp_path, "echo $$ > pid; sleep 600")
            process.send_signal(signal.SIGKILL)
            await eventually(lambda: not Path(f"/proc/{pid}").exists())


@requirement("integrations/mcp:signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_the_program_and_its_commands(server, tmp_path, number):
    words = ("mcp", "--cwd", str(tmp_path), server.url)
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    async with running(*words, stdin=subprocess.PIPE, env=env) as process:
        async with asyncio.timeout(PATIENT):
            pid = await start_command(process, tmp_path, "sleep 600 & echo $! > pid; wait")
            process.send_signal(number)
            # The client neither writes nor closes anything.
            await process.wait()
            assert process.returncode == 0
            await eventually(lambda: not Path(f"/proc/{pid}").exists())


async def start_command(process: asyncio.subprocess.Process, folder: Path, command: str) -> int:
    """Let the MCP server of *process* run a command that writes its process id to `pid`."""
    assert process.stdin is not None
    os.mkfifo(folder / "pid")
    call_tool = {"name": "run", "arguments": {"command": command}}
    for message in (
        {"id": 0, "method": "initialize", "params": INITIALIZE},
        {"method": "notifications/initialized"},
        {"id": 1, "method": "tools/call", "params": call_tool},
    ):
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    return int(await asyncio.to_thread((folder / "pid").read_text))


INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "0"},
}


@requirement("integrations/mcp:http", "integrations/mcp:http-token")
async def test_the_command_serves_http_with_a_token(server, tmp_path):
    (tmp_path / "token").write_text("secret\n")
    words = ("mcp", "--http", "127.0.0.1:0", "--http-token-file", str(tmp_path / "token"))
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    async with running(*words, server.url, env=env) as process, asyncio.timeout(PATIENT):
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        headers = {"Authorization": "Bearer secret"}
        async with httpx2.AsyncClient(headers=headers) as http:
            async with Client(streamable_http_client(url, http_client=http)) as client:
                assert (await call(client, "run", command="echo hi"))["stdout"] == "hi\n"
        async with httpx2.AsyncClient() as http:
            assert (await http.post(url, json={})).status_code == 401
        process.send_signal(signal.SIGINT)
        _, errors = await process.communicate()
        assert (process.returncode, errors) == (0, b"")


@requirement("integrations/mcp:http-token")
def test_an_address_for_other_machines_needs_a_token():
    with pytest.raises(exec_server.ConfigurationError, match="--http-token-file"):
        listen("0.0.0.0", 0, token=None)
    with pytest.raises(exec_server.ConfigurationError, match="is not an IP address"):
        listen("localhost", 0, token="secret")
    with pytest.raises(SystemExit):
        mcp_parser().parse_options(["--http", "localhost"], {})
    listen("0.0.0.0", 0, token="secret").close()


@requirement("integrations/mcp:operator-decides")
def test_no_person_can_be_asked(capsys):
    with pytest.raises(SystemExit):
        mcp_parser().parse_options(["--sandbox", "read-only", "--ask", "build"], {})
    assert "unexpected argument '--ask'" in capsys.readouterr().err


@requirement("integrations/mcp:codex")
async def test_codex_takes_the_command_as_a_server(server, tmp_path):
    binary = reference_binary()
    if binary is None:
        pytest.skip("the Codex CLI could not be installed (npm is missing or has no network)")
    with codex_home() as home:
        env = {**os.environ, "CODEX_HOME": str(home)}
        words = [*OURS, "mcp", "--cwd", str(tmp_path), server.url]

        def codex(*arguments: str) -> str:
            return subprocess.run(
                [binary, "mcp", *arguments], env=env, check=True, capture_output=True, text=True
            ).stdout

        await asyncio.to_thread(codex, "add", "build", "--", *words)
        (entry,) = json.loads(await asyncio.to_thread(codex, "list", "--json"))
        transport = entry["transport"]
        assert [transport["command"], *transport["args"]] == words and entry["enabled"]
    parameters = StdioServerParameters(command=transport["command"], args=transport["args"])
    parameters.env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    async with asyncio.timeout(PATIENT), Client(stdio_client(parameters)) as client:
        assert (await call(client, "run", command="pwd"))["stdout"] == f"{tmp_path}\n"


@requirement("integrations:extras")
def test_without_the_extra_the_command_says_what_to_install(tmp_path):
    program = (
        "import sys; sys.modules['mcp'] = None; from exec_server.cli.main import main; "
        "sys.exit(main(['mcp', 'ws://127.0.0.1:1']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "exec-server[mcp]" in done.stderr


@requirement("screen:mcp")
async def test_a_job_on_a_terminal_can_be_seen(server, tmp_path):
    async with tools(server, tmp_path) as mcp:
        script = "printf 'one\\033[3;5Htwo'; exec sleep 600"
        started = await call(mcp, "start", command=script, tty=True)
        process_id = started["process_id"]
        await call(mcp, "read", process_id=process_id, wait_seconds=PATIENCE)
        seen = await mcp.call_tool("screenshot", {"process_id": process_id, "picture": True})
        assert not seen.is_error, seen.content
        text, facts, picture = seen.content
        assert isinstance(text, TextContent) and isinstance(facts, TextContent)
        assert isinstance(picture, ImageContent)
        assert text.text == "one\n\n    two" and "24 rows, 80 columns" in facts.text
        assert picture.mime_type == "image/png"
        await call(mcp, "signal", process_id=process_id, signal="KILL")
