"""The tools for commands and jobs."""

from __future__ import annotations

import asyncio
import base64
import codecs
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, ContentBlock, ImageContent, TextContent
from pydantic import Field

import exec_server
from exec_server.integrations.mcp.mcp_answers import (
    JobFacts,
    ListAnswer,
    ReadAnswer,
    RunAnswer,
    SignalAnswer,
    StartAnswer,
    WriteAnswer,
)
from exec_server.integrations.mcp.mcp_box import McpBox
from exec_server.integrations.mcp.mcp_settings import McpSettings

# How many seconds lie between two reports of progress.
PROGRESS_PAUSE = 2.0

Command = Annotated[
    str, Field(description="a command for the shell; leave it out if argv is given")
]
Argv = Annotated[
    list[str] | None, Field(description="a program and its arguments, without a shell")
]
Cwd = Annotated[str | None, Field(description="the directory to run in")]
Variables = Annotated[dict[str, str] | None, Field(description="additional environment variables")]
Limit = Annotated[int | None, Field(gt=0, description="bytes of each output in the answer")]
Sandbox = Annotated[
    Literal["read-only", "workspace-write", "none"] | None,
    Field(description="what the command may write; workspace-write: its directory and /tmp"),
]
Seconds = Annotated[float | None, Field(gt=0, description="kill the command after so many seconds")]
ProcessId = Annotated[str, Field(description="the process_id that `start` has returned")]


class ProcessTools:
    """run, start, read, write, signal, list."""

    def __init__(self, box: McpBox, settings: McpSettings) -> None:
        self._box = box
        self._settings = settings
        # What `run` has left in the background: it is not among the jobs.
        self._background: set[str] = set()
        # The beginning of a character at the end of what was read, and the number of that end.
        self._unread: dict[str, tuple[int, bytes]] = {}

    async def run(
        self,
        ctx: Context[Any],
        command: Command = "",
        argv: Argv = None,
        cwd: Cwd = None,
        env: Variables = None,
        stdin: Annotated[
            str | None, Field(description="input; without it the input is empty")
        ] = None,
        timeout: Seconds = None,  # noqa: ASYNC109 (an argument of the model)
        max_output_bytes: Limit = None,
        sandbox: Sandbox = None,
    ) -> RunAnswer:
        """Run a command on the machine and return its output when it has ended.

        It is killed at its time limit, and the answer has the output so far. For servers, watchers
        and everything that takes longer use `start` and `read`.
        """
        client = await self._box.commands()
        words = await self._words(client, command, argv)
        seconds = min(timeout or self._settings.time_limit, self._settings.max_time_limit)
        running = client.run(
            words,
            input=None if stdin is None else stdin.encode(),
            timeout=seconds,
            cwd=cwd or self._settings.cwd,
            env=env,
            max_output=max_output_bytes or self._settings.max_output,
            sandbox=await self._sandbox(client, env, sandbox),
        )
        try:
            async with _progress(ctx, seconds, f"`{_shortened(words)}` runs"):
                done = await running
        except exec_server.CommandTimeout as exc:
            return RunAnswer(
                exit_code=None,
                stdout=exc.stdout.decode(errors="replace"),
                stderr=exc.stderr.decode(errors="replace"),
                timed_out=True,
                truncated=exc.dropped_bytes > 0,
            )
        if done.has_background and done.process_id is not None:
            self._background.add(done.process_id)
        return RunAnswer(
            exit_code=done.returncode,
            stdout=done.text(),
            stderr=done.text("stderr"),
            truncated=done.truncated,
            signal=_signal_name(done.signal),
            sandbox_denied=done.sandbox_denied,
            background_process_id=done.process_id if done.has_background else None,
        )

    async def start(
        self,
        command: Command = "",
        argv: Argv = None,
        cwd: Cwd = None,
        env: Variables = None,
        tty: Annotated[bool, Field(description="run it on a terminal of 24 x 80 cells")] = False,
        sandbox: Sandbox = None,
    ) -> StartAnswer:
        """Start a job that runs on by itself, also when this connection is closed.

        `read` returns its output, `write` its input, `signal` ends it, and `list` finds it later.
        """
        client = await self._box.kept_jobs()
        words = await self._words(client, command, argv)
        process = await client.start(
            words,
            cwd=cwd or self._settings.cwd,
            env=env,
            tty=tty,
            stdin=True,
            sandbox=await self._sandbox(client, env, sandbox),
            durable=await client.offers("processDurable"),
            ensure=True,
        )
        # Its output is read by number; the server keeps the newest, and the job never waits.
        process.leave_running()
        survives: Any = "the exec-server" if process.is_durable else "this connection"
        return StartAnswer(process_id=process.process_id, survives=survives)

    async def read(
        self,
        ctx: Context[Any],
        process_id: ProcessId,
        after: Annotated[int, Field(ge=0, description="`next` of the answer before; 0: all")] = 0,
        wait_seconds: Annotated[
            float, Field(ge=0, description="wait up to so long for output or the end")
        ] = 0,
        max_output_bytes: Limit = None,
    ) -> ReadAnswer:
        """Return the output of a job after a number, and whether the job has ended."""
        client = await self._client_of(process_id)
        limit = max_output_bytes or self._settings.max_output
        wait = min(wait_seconds, self._settings.max_time_limit)
        async with _progress(ctx, wait, "waiting for output"):
            found = await client.read(process_id, after_seq=after, max_bytes=limit, wait=wait)
        if found.failure is not None and not found.exited:
            raise ToolError(found.failure)
        output = b"".join(chunk.chunk.data for chunk in found.chunks)
        end = found.next_seq - 1
        return ReadAnswer(
            output=self._decode(process_id, after, end, _cut(output, limit)),
            next=end,
            truncated=len(output) > limit,
            is_running=not found.exited,
            exit_code=found.exit_code,
            is_complete=found.closed and not found.chunks,
            dropped_bytes=found.dropped_bytes if isinstance(found.dropped_bytes, int) else 0,
        )

    def _decode(self, process_id: str, after: int, end: int, data: bytes) -> str:
        """*data* as text; the first bytes of a character that is not complete wait for the rest."""
        number, rest = self._unread.pop(process_id, (0, b""))
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode((rest if number == after else b"") + data)
        if waiting := decoder.getstate()[0]:
            self._unread[process_id] = (end, waiting)
        return text

    async def write(
        self,
        process_id: ProcessId,
        text: Annotated[str, Field(description="what to type; end a line with \\n")] = "",
        bytes_base64: Annotated[
            str, Field(description="the same, for bytes that are no text")
        ] = "",
        close: Annotated[bool, Field(description="end the input after that")] = False,
    ) -> WriteAnswer:
        """Write to the input or the terminal of a job."""
        client = await self._client_of(process_id)
        status: Any = "accepted"
        if data := text.encode() + base64.b64decode(bytes_base64):
            try:
                async with asyncio.timeout(self._settings.time_limit):
                    status = await client.write(process_id, data)
            except TimeoutError:
                raise ToolError("the job does not read its input") from None
        if close and status == "accepted":
            status = await client.close_stdin(process_id)
        return WriteAnswer(status=status)

    async def screenshot(
        self,
        process_id: ProcessId,
        picture: Annotated[bool, Field(description="add a PNG of the screen")] = False,
    ) -> CallToolResult:
        """Return what the terminal of a job shows now, as rows of text; for jobs with `tty`."""
        client = await self._client_of(process_id)
        screen = await client.screen(process_id)
        cursor = f"cursor: row {screen.cursor.row}, column {screen.cursor.column}"
        facts = f"{screen.rows} rows, {screen.columns} columns, {cursor}, title: {screen.title!r}"
        content: list[ContentBlock] = [
            TextContent(type="text", text=screen.text),
            TextContent(type="text", text=facts),
        ]
        if picture:
            data = base64.b64encode(await client.screenshot(process_id, png=True)).decode()
            content.append(ImageContent(type="image", data=data, mime_type="image/png"))
        return CallToolResult(content=content)

    async def signal(
        self,
        process_id: ProcessId,
        signal: Annotated[str, Field(description="TERM, INT, KILL, HUP, ...")] = "TERM",
    ) -> SignalAnswer:
        """Send a signal to a job. KILL ends it with everything that it has started."""
        client = await self._client_of(process_id)
        if signal.upper().removeprefix("SIG") == "KILL":
            return SignalAnswer(was_running=await client.terminate(process_id))
        states = {each.process_id: each.state for each in await client.list_processes()}
        await client.signal(process_id, signal)
        return SignalAnswer(was_running=states.get(process_id) in ("starting", "running"))

    async def list_jobs(self) -> ListAnswer:
        """List the jobs that `start` has started, also those of earlier connections."""
        found = await (await self._box.jobs()).list_processes()
        return ListAnswer(
            processes=[
                JobFacts(
                    process_id=each.process_id,
                    argv=each.argv,
                    state=each.state,
                    exit_code=each.exit_code,
                    tty=each.tty,
                )
                for each in found
            ]
        )

    async def log(self, process_id: str) -> str:
        """The output of a job that the server keeps, as far as one answer holds it."""
        client = await self._client_of(process_id)
        found = await client.read(process_id, max_bytes=self._settings.max_output)
        output = b"".join(chunk.chunk.data for chunk in found.chunks)
        return _cut(output, self._settings.max_output).decode(errors="replace")

    async def _client_of(self, process_id: str) -> exec_server.ExecServerClient:
        if process_id in self._background:
            return await self._box.commands()
        return await self._box.jobs()

    async def _words(
        self, client: exec_server.ExecServerClient, command: str, argv: list[str] | None
    ) -> list[str]:
        if bool(command) == bool(argv):
            raise ToolError("give either `command` or `argv`")
        if argv:
            return argv
        return [(await client.environment_info()).shell.path, "-c", command]

    async def _sandbox(
        self, client: exec_server.ExecServerClient, env: dict[str, str] | None, chosen: str | None
    ) -> Any:
        """The sandbox of a command. Raises if the server does not say that it has sandboxes.

        That of the operator depends on nothing that the model says: neither on the directory of the
        command nor on TMPDIR, which names a directory that commands may write to.
        """
        if chosen == "none":
            return None
        context = chosen or await self._settings.sandbox_for(client, self._settings.cwd)
        if context is None:
            return None
        if await client.sandbox_info() is None:
            raise ToolError("the server does not say that it confines commands; nothing has run")
        if not chosen and "TMPDIR" in (env or {}):
            raise ToolError("a command in this sandbox cannot have another TMPDIR")
        return context


@contextlib.asynccontextmanager
async def _progress(ctx: Context[Any], total: float, message: str) -> AsyncIterator[None]:
    """Report every few seconds how much of *total* has passed, if the client wants to know."""

    async def report() -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        while True:
            await asyncio.sleep(PROGRESS_PAUSE)
            await ctx.report_progress(min(loop.time() - begin, total), total, message)

    reporting = asyncio.create_task(report())
    try:
        yield
    finally:
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)


def _cut(output: bytes, limit: int) -> bytes:
    """The first and the last half of *output*: a server sends one piece, however long it is."""
    if len(output) <= limit:
        return output
    gap = b"\n... %d bytes are missing here ...\n" % (len(output) - limit)
    return output[: limit - limit // 2] + gap + output[len(output) - limit // 2 :]


def _signal_name(number: int | None) -> str | None:
    """Most of the real-time signals have no name."""
    return None if number is None else getattr(number, "name", f"signal {int(number)}")


def _shortened(words: list[str]) -> str:
    text = " ".join(words)
    return text if len(text) <= 60 else f"{text[:59]}…"
