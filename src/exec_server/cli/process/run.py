"""`exec-server run`: run a command on a server as if it ran here."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from functools import partial

import msgspec

from exec_server.cli import exit_codes, server_access
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.log_setup import errors_told, print_error, print_warning
from exec_server.cli.os_error_text import os_error_number, without_os_error
from exec_server.cli.output_format import asks_for_json, printable_json
from exec_server.cli.process.asking import Questions
from exec_server.cli.process.denial_report import (
    denial_facts,
    is_recorded,
    remembered_grants,
    tell_denials,
)
from exec_server.cli.process.end_words import print_stats, report_facts, tell_end
from exec_server.cli.process.limit_options import limit_facts, tell_limits
from exec_server.cli.process.own_terminal import terminal_io
from exec_server.cli.process.own_terminal.connection_notices import Notices, say
from exec_server.cli.process.own_terminal.terminal_bridge import (
    BridgeOptions,
    Collected,
    TerminalBridge,
)
from exec_server.cli.process.run_options import RunOptions, parse_run
from exec_server.cli.recordings.record_option import LocalRecording, recorded
from exec_server.cli.sandbox.sandbox_options import CannotConfine, check_confined, context_for
from exec_server.client.client import ExecServerClient
from exec_server.client.process.bounded_output import BoundedOutput, with_gap
from exec_server.client.process.framed_input import (
    HELPER_WORDS,
    NO_HELPER_WORDS,
    EndlessInputProcess,
    FramedProcess,
    can_end_input,
    start_with_input,
)
from exec_server.client.process.remote_process import OnGap, RemoteProcess
from exec_server.errors import ConfigurationError, NotFound, ProcessLost, RpcError
from exec_server.limits import DEFAULT_LIMITS


def run_command(words: list[str]) -> int:
    """Run the command that *words* describe and return the exit status."""
    try:
        options = parse_run(words)
    except ConfigurationError as exc:
        print_error(str(exc))
        if asks_for_json(words):
            _tell_failure(_no_output(None), [], exit_codes.FAILED)
        return exit_codes.FAILED
    work = _detach if options.detach else _run
    return run_and_tell(work, options)


def run_and_tell(
    work: Callable[[RunOptions, Collected], Awaitable[int]], options: RunOptions
) -> int:
    """Run *work*, which may collect output; failures are told in JSON, too, if that is asked for.

    The exit status is returned.
    """
    collected = _no_output(options.max_output)
    lost: list[str] = []

    async def collecting() -> int:
        try:
            return await work(options, collected)
        except ProcessLost as exc:
            lost.append(exc.reason)
            raise

    tell = partial(_tell_failure, collected, lost) if options.output == "json" else None
    return run_to_exit_status(collecting, log_level=options.log_level, tell=tell)


def _no_output(max_output: int | None) -> Collected:
    limit = DEFAULT_LIMITS.run_output_bytes if max_output is None else max_output
    return {"stdout": BoundedOutput(limit), "stderr": BoundedOutput(limit)}


def _tell_failure(collected: Collected, lost: list[str], status: int) -> None:
    """Print the last error for programs, with the output so far."""
    facts: dict[str, object] = {"exitCode": status}
    if lost:
        # The status of this command is not that of the lost one, which is unknown.
        facts = {"exitCode": None, "lost": lost[0]}
    facts["error"] = errors_told()[-1]
    print(printable_json(facts | output_facts(collected)))


async def _run(options: RunOptions, collected: Collected) -> int:
    notices = Notices(is_verbose=options.verbose)
    async with _open(options, notices) as client:
        return await run_on(client, options, notices, collected)


async def run_on(
    client: ExecServerClient, options: RunOptions, notices: Notices, collected: Collected
) -> int:
    """Run the command of *options* on the server of *client* and return the exit status."""
    is_json = options.output == "json"
    questions = Questions(
        asks=options.ask and not is_json, server=server_access.shown(options.server)
    )
    size = terminal_io.terminal_size()
    with recorded_command(options, size) as recording:
        process = await start_command(client, options, questions=questions)
        if options.stdin and not options.tty:
            await _tell_helper(client, process, options)
        status = await _follow(process, options, notices, collected, questions, recording)
    if not questions.has_allowed_network:
        return status
    # A running process cannot get a network, so it is started again.
    return await run_on(client, _with_network(options), notices, collected)


def _with_network(options: RunOptions) -> RunOptions:
    assert options.sandbox is not None
    wider = msgspec.structs.replace(options.sandbox, network=True)
    return msgspec.structs.replace(options, sandbox=wider)


async def _tell_helper(
    client: ExecServerClient, process: RemoteProcess, options: RunOptions
) -> None:
    if not await can_end_input(client, process):
        print_warning(NO_HELPER_WORDS)
    elif options.verbose and isinstance(process, FramedProcess):
        say(f"{server_access.shown(options.server)}: {HELPER_WORDS}")


def recorded_command(
    options: RunOptions, size: tuple[int, int] | None
) -> AbstractContextManager[LocalRecording | None]:
    """The recording of a command, if one is wanted."""
    return recorded(options.record, options.argv, size, env=options.env, token=options.token)


async def _follow(
    process: RemoteProcess,
    options: RunOptions,
    notices: Notices,
    collected: Collected,
    questions: Questions,
    recording: LocalRecording | None,
) -> int:
    is_json = options.output == "json"
    bridge_options = BridgeOptions(
        is_terminal=options.tty,
        has_input=options.stdin,
        collected=collected if is_json else None,
        max_output=options.max_output,
        time_limit=options.time_limit,
        size=terminal_io.terminal_size(),
        recording=recording,
    )
    async with (
        TerminalBridge(process, bridge_options, notices) as bridge,
        _asked(questions, process, options),
    ):
        status = await bridge.follow()
        if status and options.ask and not bridge.has_interrupted:
            await questions.ask_network(process)
        is_confined = options.sandbox is not None and not options.learn
        is_refused = is_confined and process.sandbox_rung == "none"
        if is_refused:
            # The sandbox refused the command; the output says why.
            status = exit_codes.NOT_STARTED
        if is_json:
            facts = _facts(process, status, is_timed_out=bridge.is_timed_out)
            if is_refused:
                facts["error"] = f"cannot run `{options.argv[0]}` in a sandbox"
                print_error(f"cannot run `{options.argv[0]}` in a sandbox")
            facts |= await denial_facts(process, options, questions)
            facts |= report_facts(process.end, process.usage) | output_facts(collected)
            await bridge.show(msgspec.json.encode(facts) + b"\n")
    if recording is not None:
        recording.close(process.returncode)
    if isinstance(process, EndlessInputProcess) and process.why_ended is not None:
        print_error(process.why_ended)
    if bridge.is_timed_out and not is_json:
        print_error(f"the command took longer than {options.time_limit:g} seconds")
    if not is_json and not questions.has_allowed_network:
        is_known = bridge.is_timed_out or bridge.has_interrupted
        is_told = await tell_denials(process, options, questions, has_failed=status != 0)
        tell_end(process, is_known=is_known, knows_denials=is_told)
    if options.stats:
        print_stats(process.usage)
    return status


def _asked(
    questions: Questions, process: RemoteProcess, options: RunOptions
) -> AbstractAsyncContextManager[None]:
    return questions.about(process) if options.ask or options.learn else nullcontext()


async def _detach(options: RunOptions, _: Collected) -> int:
    """Start the command, print the id of its record, and leave it running."""
    import uuid

    from exec_server.cli.process.detached import detach
    from exec_server.cli.process.detached.saved_sessions import SessionStore

    if not server_access.can_be_resumed(options.server):
        raise ConfigurationError(
            f"`{server_access.shown(options.server)}` ends with this command: "
            "no process can be detached from it"
        )
    store = SessionStore()
    async with _open(options, Notices()) as client:
        durable = options.durable and await client.offers("processDurable")
        # A durable process is kept without an end.
        kept = None if durable else await detach.keep(client, options.keep)
        # The record is saved before the start: no process may run without one.
        session = detach.new_record(
            store,
            client,
            str(uuid.uuid4()),
            server=options.server,
            argv=options.argv,
            tty=options.tty,
            started_at=time.time(),
            token_file=options.token_file,
            pin=options.pin,
            kept=kept,
            durable=durable,
            name=options.name,
        )
        try:
            process = await start_command(
                client, options, process_id=session.process_id, durable=durable
            )
        except exit_codes.StatusError:
            store.remove(session.id)
            raise
        process.leave_running()
        try:
            detach.update(store, client, session)
        except ConfigurationError as exc:
            # The first record is good enough to come back.
            print_warning(str(exc))
    if not durable:
        detach.tell_kept(kept, options.keep)
        if options.durable and os.isatty(2):
            # A person may count on it; a script knows its server.
            say("this server keeps no durable jobs: it ends if the server stops or is restarted")
    print(msgspec.json.encode(session.facts).decode() if options.output == "json" else session.id)
    return exit_codes.OK


def _open(options: RunOptions, notices: Notices) -> AbstractAsyncContextManager[ExecServerClient]:
    return server_access.open_server(
        options.server,
        token=options.token,
        pin=options.pin,
        client_name="exec-server run",
        on_state=notices.on_state,
    )


async def start_command(
    client: ExecServerClient,
    options: RunOptions,
    *,
    process_id: str | None = None,
    durable: bool = False,
    on_gap: OnGap = "fail",
    questions: Questions | None = None,
) -> RemoteProcess:
    """Start the command of *options*.

    Raises StatusError, with the exit status of a shell, if it cannot be started or confined.
    """
    size = terminal_io.terminal_size() if options.tty else None
    env = dict(options.env)
    if options.tty:
        for name in ("TERM", "COLORTERM"):
            if name in os.environ:
                env.setdefault(name, os.environ[name])
    try:
        sandbox = None
        if options.sandbox is not None:
            sandbox = await context_for(client, options.sandbox, cwd=options.cwd)
        asks = questions if options.ask or options.learn else None
        starting = partial(client.start, stdin=options.stdin)
        if options.stdin and not options.tty:
            starting = partial(start_with_input, client)
        process = await starting(
            options.argv,
            cwd=options.cwd,
            env=env,
            tty=options.tty,
            rows=size[0] if size else None,
            cols=size[1] if size else None,
            sandbox=sandbox,
            limits=options.limits,
            user=options.user,
            name=options.name,
            shell_integration=options.integration,
            # One who sits at a terminal is a person.
            driver="person" if options.tty and options.stdin and os.isatty(0) else None,
            process_id=process_id,
            durable=durable,
            ensure=True,
            on_gap=on_gap,
            # Of a detached command `logs -f` and `attach` tell it.
            denials=(questions is not None or process_id is not None)
            and await is_recorded(client, options),
            denial_hold=0.0 if asks is None else asks.hold,
            on_denied=None if asks is None else asks.on_denied,
            learn=options.learn,
            granted=await remembered_grants(client, options),
        )
        check_confined(process, None if options.learn else options.sandbox)
        tell_limits(process, options.limits, is_verbose=options.verbose)
    except (RpcError, CannotConfine) as exc:
        raise await _not_started(client, options, exc) from exc
    return process


async def _not_started(
    client: ExecServerClient, options: RunOptions, exc: RpcError | CannotConfine
) -> exit_codes.StatusError:
    """The error that tells why the command did not start, and which name is the reason."""
    number = os_error_number(str(exc))
    command = f"cannot run `{options.argv[0]}`"
    if options.cwd is not None and number in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
        # The server's message is the same for a missing directory and for a missing program.
        obstacle = await _obstacle(client, options.cwd)
        if obstacle is not None:
            text = f"{command} in `{options.cwd}`: {obstacle}"
            return exit_codes.StatusError(text, exit_codes.NOT_STARTED)
        command += f" in `{options.cwd}`"
    status = exit_codes.NOT_FOUND if number == errno.ENOENT else exit_codes.NOT_STARTED
    # The message without its subject: the program is named already.
    why = exc.message if isinstance(exc, RpcError) else str(exc)
    return exit_codes.StatusError(f"{command}: {without_os_error(why)}", status)


async def _obstacle(client: ExecServerClient, directory: str) -> str | None:
    """The reason why no command can run in a directory on the server, if one is found."""
    try:
        found = await client.fs.get_metadata(directory)
    except NotFound:
        return "the directory does not exist on the server"
    except RpcError:
        return None
    return None if found.is_directory else "it is not a directory"


def _facts(process: RemoteProcess, status: int, *, is_timed_out: bool) -> dict[str, object]:
    result: dict[str, object] = {"exitCode": status}
    if process.signal is not None and not is_timed_out:
        result["signal"] = getattr(process.signal, "name", process.signal)
    if process.sandbox_type not in (None, "none"):
        result["sandboxRung"] = process.sandbox_rung
        result["sandboxDenied"] = process.sandbox_denied
    result |= limit_facts(process)
    if is_timed_out:
        result["timedOut"] = True
    return result


def output_facts(collected: Collected) -> dict[str, object]:
    """The output of each stream: as text, or in base64 if it is not UTF-8.

    Where the middle of a long output is missing, a line of the text says so, and the facts do.
    """
    facts: dict[str, object] = {}
    for name, output in collected.items():
        data = output.content()
        try:
            facts[name] = with_gap(data, output.gap, "utf-8") if output.gap else data.decode()
        except UnicodeDecodeError:
            facts[f"{name}Base64"] = data
    dropped = sum(output.dropped_bytes for output in collected.values())
    return facts | ({"truncated": True, "droppedBytes": dropped} if dropped else {})
