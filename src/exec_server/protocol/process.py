"""`process/*`: shapes and names.

The module is long because `process/*` has many shapes, and each method stands behind its own.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from exec_server.errors import InvalidParams
from exec_server.protocol.base64 import Base64Error, Blob, decode_base64
from exec_server.protocol.denials import DenialKind
from exec_server.protocol.ends import EndReport, Usage
from exec_server.protocol.env_policy import EnvPolicy
from exec_server.protocol.method import Event, Method, Nothing
from exec_server.protocol.network import ManagedNetwork, NetworkProxy
from exec_server.protocol.numbers import Count, fits_u64
from exec_server.protocol.participants import Kind
from exec_server.protocol.paths import ForeignPath, to_native
from exec_server.protocol.resources import GrantedLimit, ResourceLimits
from exec_server.protocol.sandbox import OldSandbox, SandboxContext

ProcessId = NewType("ProcessId", str)
Seq = NewType("Seq", int)
Stream = Literal["stdout", "stderr", "pty"]
WriteStatus = Literal["accepted", "unknownProcess", "starting", "stdinClosed"]

# The kernel keeps a terminal's size in unsigned shorts.
Cells = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Window = Annotated[int, msgspec.Meta(ge=1)]
ShownName = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class ShellName(msgspec.Struct, rename="camel"):
    name: str
    path: str


class ShellSnapshot(msgspec.Struct, rename="camel"):
    scope_id: str
    shell: ShellName


class Metadata(msgspec.Struct, rename="camel", omit_defaults=True):
    # A UUID in any spelling; children get the canonical one.
    thread_id: str | None = None
    tool_call_id: str | None = None

    def __post_init__(self) -> None:
        if self.thread_id is not None:
            self.thread_id = str(UUID(self.thread_id))


class StartParams(msgspec.Struct, rename="camel", omit_defaults=True):
    process_id: str
    argv: list[str]
    cwd: str
    env: dict[str, str]
    tty: bool
    pipe_stdin: bool = False
    arg0: str | None = None
    env_policy: EnvPolicy | None = None
    metadata: Metadata | None = None
    shell_snapshot: ShellSnapshot | None = None
    sandbox: SandboxContext | None = None
    enforce_managed_network: bool = False
    managed_network: ManagedNetwork | None = None
    network_proxy: NetworkProxy | None = None
    # Ours: the terminal's size. The reference always has 24 rows and 80 columns.
    rows: Cells | None = None
    cols: Cells | None = None
    # Ours: the exit code of a terminal's process that signal N ended is 128 + N, as on pipes.
    # Without this it is 1, as in the reference.
    exit_signals: bool = False
    # Ours: the server keeps up to this many bytes of output that the client has not acknowledged.
    # When there are more, the program has to wait.
    flow_window: Window | None = None
    # Ours: the process outlives the server. The next server on the same state directory goes on
    # with it.
    durable: bool = False
    # Ours: the answer has the pid, and the exit has the signal, if one has ended the process.
    details: bool = False
    # Ours: what the process and its descendants may use.
    limits: ResourceLimits | None = None
    # Ours: the exit tells why the process ended and what it used.
    report: bool = False
    # Ours: the Unix user that the process runs as, instead of the server's own.
    user: str | None = None
    # Ours: the server records what the sandbox refuses.
    denials: bool = False
    # Ours, with `denials`: a refused open waits for `process/grant` for so long.
    denial_hold_ms: Count | None = None
    # Ours, with `denials`: `sandbox` is not enforced; what it would refuse is recorded.
    learn: bool = False
    # Ours: grants of earlier records that hold for this process, too.
    granted: list[str] = []
    # Ours: what it is called in lists.
    name: ShownName | None = None
    # Ours: who types at first, a person or an agent, if others look on.
    driver: Kind | None = None
    # Ours, for a terminal: the server keeps a model of its screen from the first output on, and
    # answers the queries of the program, whether a client is attached or not.
    screen: bool = False
    # Ours, for a terminal: bash, zsh or fish tells where prompts and commands begin and end.
    shell_integration: bool = False
    # The name of `sandbox` in the first revisions; its value moves to `sandbox`.
    sandbox_policy: OldSandbox | None = None

    def __post_init__(self) -> None:
        if self.sandbox_policy is not None:
            self.sandbox, self.sandbox_policy = self.sandbox or self.sandbox_policy, None
        # A cwd that is no path is refused with the parameters, before all other checks.
        try:
            to_native(self.cwd)
        except ForeignPath as exc:
            text = f"cwd URI `{self.cwd}` is not valid on this exec-server host: {exc}"
            raise InvalidParams(text) from exc


class StartResult(msgspec.Struct, rename="camel"):
    process_id: str
    # The oldest dialects do not have this.
    sandbox_type: str | None = None
    # Ours, for a sandboxed process: the backend that enforces its sandbox; "none" when nothing has
    # to be enforced, or the command may not run. The wire name `sandboxRung` is kept for earlier
    # clients and servers; the client's attribute is called like it.
    sandbox_rung: str | UnsetType = UNSET
    # Ours: the size of the window that the server grants.
    flow_window: int | UnsetType = UNSET
    # Ours: true for a process that outlives the server, absent for all others.
    durable: bool | UnsetType = UNSET
    # Ours, with `details`: the process id of the program on the server's machine.
    pid: int | UnsetType = UNSET
    # Ours, with `limits`: what became of each limit, by its name.
    limits: dict[str, GrantedLimit] | UnsetType = UNSET
    # Ours, with `denials`: the kinds that are recorded, and why not all are, if so.
    denials: list[DenialKind] | UnsetType = UNSET
    denials_unavailable: str | UnsetType = UNSET


class ReadParams(msgspec.Struct, rename="camel", omit_defaults=True):
    process_id: str
    after_seq: Count | None = None
    max_bytes: Count | None = None
    wait_ms: Count | None = None

    def __post_init__(self) -> None:
        if not fits_u64(self.after_seq, self.max_bytes, self.wait_ms):
            raise ValueError("invalid number: more than 64 bits")


class ReadChunk(msgspec.Struct, rename="camel"):
    seq: int
    stream: Stream
    chunk: Blob


class ReadResult(msgspec.Struct, rename="camel"):
    chunks: list[ReadChunk]
    next_seq: int
    exited: bool
    exit_code: int | None
    closed: bool
    failure: str | None = None
    sandbox_denied: bool = False
    # Ours: how many bytes of output after the cursor were dropped; absent if none were.
    dropped_bytes: int | UnsetType = UNSET
    # Ours: the size of the window, if the process has one.
    flow_window: int | UnsetType = UNSET
    # Ours: why the exit status of a durable process is unknown and stays so. Then `exited` is true
    # and there is no exit code.
    lost: str | UnsetType = UNSET
    # Ours: true if there is more than fits into one answer, although no size was asked for. Only
    # durable processes keep so much.
    has_more: bool | UnsetType = UNSET
    # Ours, with `details`: the number of the signal that has ended the process.
    signal: int | UnsetType = UNSET
    # Ours, with `report`: why the process ended, and what it used.
    end: EndReport | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET

    @property
    def why_lost(self) -> str | None:
        """Why the exit status is unknown and stays so; None if it is not.

        A process that is not durable and whose keeper has died has the status -1, which no process
        can return, for the sake of clients of the reference; `failure` says what has happened.
        """
        if not self.exited:
            return None
        if self.failure is not None and self.exit_code is not None and self.exit_code < 0:
            return self.lost or self.failure.removeprefix("exec-server: ")
        return self.lost or None


class WriteParams(msgspec.Struct, rename="camel", omit_defaults=True):
    process_id: str
    chunk: Blob
    # Older dialects do not have this; such a write is always done.
    write_id: str | UnsetType = UNSET


class WriteResult(msgspec.Struct, rename="camel"):
    status: WriteStatus


class SignalParams(msgspec.Struct, rename="camel"):
    process_id: str
    signal: str


class TerminateParams(msgspec.Struct, rename="camel", omit_defaults=True):
    process_id: str
    # An extension (`processTerminateTree`): end all processes that the program has started, also
    # those that left its group, even if the program has exited.
    tree: bool = False


class TerminateResult(msgspec.Struct, rename="camel"):
    running: bool


class ResizeParams(msgspec.Struct, rename="camel"):
    process_id: str
    rows: Cells
    cols: Cells


class CloseStdinParams(msgspec.Struct, rename="camel"):
    process_id: str


class AckParams(msgspec.Struct, rename="camel"):
    process_id: str
    # The client has taken all output up to this number. None gives up the window.
    seq: Count | None


class ProcessInfo(msgspec.Struct, rename="camel"):
    process_id: str
    # The state "lost" is for durable processes alone.
    state: Literal["starting", "running", "exited", "closed", "lost"]
    pid: int | None
    argv: list[str]
    tty: bool
    exit_code: int | None
    next_seq: int
    # As in the answer to the start, for a sandboxed process.
    sandbox_type: str | UnsetType = UNSET
    sandbox_rung: str | UnsetType = UNSET
    # For a durable process: that it is one, when it was started (in milliseconds since 1970), and
    # why its exit status is unknown, if it is.
    durable: bool | UnsetType = UNSET
    started_at: int | UnsetType = UNSET
    lost: str | UnsetType = UNSET
    # Ours, with `report`: why the process ended, and what it used.
    end: EndReport | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET


class ListResult(msgspec.Struct, rename="camel"):
    processes: list[ProcessInfo]


class OutputEvent(msgspec.Struct, rename="camel"):
    process_id: str
    seq: int
    stream: Stream
    chunk: Blob


class ExitedEvent(msgspec.Struct, rename="camel"):
    process_id: str
    seq: int
    # None only for a durable process that was lost.
    exit_code: int | None
    sandbox_denied: bool = False
    # Ours: why the exit status is unknown. The exit code of a process that is not durable is -1
    # then, as clients of the reference expect a number.
    lost: str | UnsetType = UNSET
    # Ours, with `details`: the number of the signal that has ended the process.
    signal: int | UnsetType = UNSET
    # Ours, with `report`: why the process ended, and what it used.
    end: EndReport | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET


class ClosedEvent(msgspec.Struct, rename="camel", omit_defaults=True):
    process_id: str
    # The oldest dialects do not have this.
    seq: int | None = None


# Starts a program on pipes or on a terminal of its own.
START = Method("process/start", StartParams, StartResult, family="exec", dialect="documented")
# Returns retained output after a number, and waits for more if asked to.
READ = Method("process/read", ReadParams, ReadResult, family="exec", dialect="documented")


def usual_write(params: Any) -> WriteParams | None:
    """The parameters of a write with an id, as the decoder of all shapes makes them."""
    if type(params) is not dict:
        return None
    try:
        name, chunk, write_id = params["processId"], params["chunk"], params["writeId"]
        if type(chunk) is str:
            chunk = Blob(decode_base64(chunk))
    except (KeyError, Base64Error):
        return None
    if type(name) is str and type(write_id) is str and type(chunk) is Blob:
        return WriteParams(name, chunk, write_id)
    return None


# Writes to the program's stdin or terminal. A repeated `writeId` is written once.
WRITE = Method(
    "process/write",
    WriteParams,
    WriteResult,
    family="exec",
    dialect="documented",
    usual_params=usual_write,
)
# Sends a signal to the program's group.
SIGNAL = Method(
    "process/signal", SignalParams, Nothing, family="exec", is_control=True, dialect="undocumented"
)
# Ends the program's group, or with `tree` all that it has started.
TERMINATE = Method(
    "process/terminate",
    TerminateParams,
    TerminateResult,
    family="exec",
    is_control=True,
    dialect="documented",
)
# Changes the size of the program's terminal.
RESIZE = Method("process/resize", ResizeParams, Nothing, family="exec", is_control=True)
# Ends the program's input after all that was written before.
CLOSE_STDIN = Method("process/closeStdin", CloseStdinParams, WriteResult, family="exec")
# Lists the processes of the session.
LIST = Method("process/list", Nothing, ListResult, family="exec", is_control=True)

# Output of a program. The numbers of a process have no gaps.
OUTPUT = Event("process/output", OutputEvent, dialect="documented")
# The program has ended. Output of processes that it has left behind may follow.
EXITED = Event("process/exited", ExitedEvent, dialect="documented")
# All output of the process has been sent.
CLOSED = Event("process/closed", ClosedEvent, dialect="documented")
# Output up to a number was taken, so that the server may send more. Clients send it.
ACK = Event("process/ack", AckParams)


# Servers mostly send output, so its message is put together from prepared pieces.
_encode = msgspec.json.Encoder().encode
OUTPUT_TAIL = b'"}}'


def output_middle(stream: Stream) -> bytes:
    """The piece of a `process/output` between its number and its base64."""
    return b',"stream":"%b","chunk":"' % stream.encode()


class EventTexts:
    """The messages of one process's events, each as the generic encoder would write it.

    A `process/output` is ``output_head``, the number, `output_middle` of its stream, the base64
    of its data, and `OUTPUT_TAIL`.
    """

    __slots__ = ("_closed_head", "_exited_head", "output_head")

    def __init__(self, process_id: str) -> None:
        name = _encode(process_id)
        self.output_head = _event_head(OUTPUT, name)
        self._exited_head = _event_head(EXITED, name)
        self._closed_head = _event_head(CLOSED, name)

    def exited(
        self,
        seq: int,
        *,
        exit_code: int,
        sandbox_denied: bool,
        lost: str | None = None,
        signal: int | None = None,
        end: EndReport | None = None,
        usage: Usage | None = None,
    ) -> bytes:
        """The `process/exited`; *lost* says that the exit code stands for an unknown status."""
        denied = b"true" if sandbox_denied else b"false"
        reason = b"" if lost is None else b',"lost":%b' % _encode(lost)
        ended_by = b"" if signal is None else b',"signal":%d' % signal
        fields = (seq, exit_code, denied, reason, ended_by, _report(end, usage))
        return self._exited_head + b'%d,"exitCode":%d,"sandboxDenied":%b%b%b%b}}' % fields

    def lost(self, seq: int, *, reason: str, end: EndReport | None = None) -> bytes:
        """The `process/exited` of a process whose exit status is unknown."""
        fields = (seq, _encode(reason), _report(end, None))
        tail = b'%d,"exitCode":null,"sandboxDenied":false,"lost":%b%b}}' % fields
        return self._exited_head + tail

    def closed(self, seq: int) -> bytes:
        return self._closed_head + b"%d}}" % seq


def _report(end: EndReport | None, usage: Usage | None) -> bytes:
    """The members of a `process/exited` for a client that has asked for a report."""
    told = b"" if end is None else b',"end":%b' % _encode(end)
    return told if usage is None else told + b',"usage":%b' % _encode(usage)


def _event_head(event: Event[Any], process_id: bytes) -> bytes:
    """The message of *event* up to its number."""
    return b'{"method":"%b","params":{"processId":%b,"seq":' % (event.name.encode(), process_id)
