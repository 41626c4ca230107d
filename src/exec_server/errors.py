"""Every exception of the package. The module is long because they are one tree.

::

    ExecServerError
    ├── RpcError                    sent to the peer; ``code`` is its JSON-RPC code
    │   ├── InvalidRequest          -32600  malformed, out of order, or about an unknown object
    │   ├── MethodNotFound          -32601  a method that this side does not have
    │   ├── InvalidParams           -32602  parameters of another shape, or a value out of range
    │   ├── InternalError           -32603  the operating system refused the request
    │   ├── NotFound                -32004  a file that does not exist
    │   ├── SessionAttached         -32010  another connection holds the session (retryable)
    │   ├── ScopeRefused            -32020  the principal of the connection lacks a scope
    │   ├── RuleRefused             a rule of the server's operator, which the text names
    │   │   ├── FloorRefused        -32021  beyond what the principal may do
    │   │   └── QuotaReached        -32022  the principal has as much as it may have (retryable)
    │   ├── ControlLost             -32040  another participant drives the process
    │   ├── ControlRefused          -32041  the input cannot be taken: a person drives
    │   └── AuditUnavailable        -32030  the server cannot write its audit log (retryable)
    ├── ProtocolError               the peer broke the protocol; the connection closes
    │   ├── MalformedMessage        not a JSON-RPC message; the connection stays open
    │   └── RelayError              the peer broke the relay's rules; the stream ends
    ├── ConnectionClosed            the connection ended; pending calls may have run (retryable)
    │   ├── ConnectError            there was no connection, so nothing has run (retryable)
    │   │   └── ConnectionRejected  the server refused, and would refuse again
    │   │       └── RegistryError   the registry of a remote environment refused
    │   │           └── UntrustedExecutor  the registry names a key that we do not trust
    │   └── SessionLost             the session cannot be resumed; a new client is needed
    │       └── SessionForgotten    the server does not know it: it was restarted, for example
    ├── HttpBodyFailed              a streamed HTTP body broke off; the part before it is valid
    ├── CallTimeout                 no answer before the deadline; the call may have run
    ├── ProcessFailed               the client can no longer follow this process
    │   └── ProcessLost             its exit status is unknown and stays so; ``reason`` says why
    ├── StdinClosed                 the process has no input, or its input is closed
    ├── CommandFailed               a command of ``run(check=True)`` did not end with status 0
    ├── TransferFailed              a part of a tree was not copied; ``result`` has the details
    ├── CommandTimeout              a command of ``run(timeout=...)`` took longer and was ended
    ├── ScreenTimeout               ``wait_for(timeout=...)`` ended; also a TimeoutError
    │   └── ScreenEnded             the program has ended, so what was waited for cannot come
    └── ConfigurationError          options that are invalid or contradict each other
        └── ExecServerListenUrlParseError

Two attributes say whether to repeat a call. ``exc.retryable`` is True if the same call can succeed
later without a change. ``exc.may_have_run`` of ConnectionClosed and CallTimeout is False if the
request was never sent.

An error of the server's operating system, in a call about files or a start, is an OSError as well:
FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError, or
OSError itself. `exc.errno` and `exc.path` say what it is about; both are None of other errors.
"""

from __future__ import annotations

# Type checkers know this name; `typing` takes a while to load.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, ClassVar, Literal, Self

    # What a start has failed at.
    StartPart = Literal["program", "cwd"]


class ExecServerError(Exception):
    """The base class of all exceptions of this package."""

    retryable: ClassVar[bool] = False


class RpcError(ExecServerError):
    """An error of the protocol: a service raises it, and the client receives it."""

    code: int = -32603
    # The path or program that the client's call was about, if the text of the error names it.
    subject: str | None = None
    # The number of the operating system's error, the path or program that it is about, and for a
    # start which of the two it is; each None if it is not known.
    errno: int | None = None
    path: str | None = None
    kind: StartPart | None = None

    def __init__(self, message: str, *, code: int | None = None) -> None:
        super().__init__(message)
        # The words of the peer, without the subject.
        self.message = message
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        # OSError would make a text of its own.
        return str(self.args[0])

    def about(self, subject: str, *, path: str | None = None) -> Self:
        """This error, with a text that begins with *subject*; it is about *path*."""
        if self.subject is None and subject not in self.message:
            self.subject = subject
            self.args = (f"{subject}: {self.message}",)
        if self.path is None:
            self.path = path
        return self

    @staticmethod
    def from_wire(code: int, message: str, data: dict[str, Any] | None = None) -> RpcError:
        """The exception for an error object that a peer sent; see `details` for *data*."""
        kind = _BY_CODE.get(code)
        error = kind(message) if kind is not None else RpcError(message, code=code)
        if data:
            error.take_details(data)
        return error

    def take_details(self, data: dict[str, Any]) -> None:
        """Take what a peer has told in `data`."""
        number, path, part = data.get("errno"), data.get("path"), data.get("kind")
        self.errno = number if type(number) is int else None
        self.path = path if type(path) is str else None
        self.kind = part if part in ("program", "cwd") else None

    def details(self) -> dict[str, Any] | None:
        """The `data` that a peer is told if it has asked for details; None if there is nothing."""
        found = {"errno": self.errno, "path": self.path, "kind": self.kind}
        return {name: value for name, value in found.items() if value is not None} or None


class InvalidRequest(RpcError):
    code = -32600


class MethodNotFound(RpcError):
    code = -32601


class InvalidParams(RpcError):
    code = -32602


class InternalError(RpcError):
    code = -32603


class NotFound(RpcError):
    code = -32004


class SessionAttached(RpcError):
    code = -32010
    retryable = True


class ScopeRefused(RpcError):
    """The principal of the connection may not do this: it has not the *scope* that it needs."""

    code = -32020

    def __init__(
        self, message: str, *, scope: str | None = None, principal: str | None = None
    ) -> None:
        super().__init__(message)
        self.scope = scope
        self.principal = principal

    def details(self) -> dict[str, Any] | None:
        return {"scope": self.scope, "principal": self.principal} if self.scope else None

    def take_details(self, data: dict[str, Any]) -> None:
        super().take_details(data)
        scope, principal = data.get("scope"), data.get("principal")
        self.scope = scope if type(scope) is str else None
        self.principal = principal if type(principal) is str else None


class RuleRefused(RpcError):
    """A rule of the server's operator, which the text names, stands against a request."""


class FloorRefused(RuleRefused):
    """The request goes beyond what the principal may do."""

    code = -32021


class QuotaReached(RuleRefused):
    """The principal, or the whole server, has as many of something as it may have."""

    code = -32022
    retryable = True


class ControlLost(RpcError):
    """Another participant drives the process, or has driven it since the last write.

    `by` is its name and `driver_kind` what it is; `epoch` is that of the change. What was on the
    screen has changed: read it again from `version`, or the output from `seq`.
    """

    code = -32040
    by: str | None = None
    driver_kind: str | None = None
    epoch: int | None = None
    seq: int | None = None
    version: int | None = None
    # True if this participant drives again: the next write is done.
    is_back = False

    def details(self) -> dict[str, Any] | None:
        found = {
            "by": self.by,
            "driverKind": self.driver_kind,
            "epoch": self.epoch,
            "seq": self.seq,
            "version": self.version,
            "isBack": self.is_back or None,
        }
        return {name: value for name, value in found.items() if value is not None} or None

    def take_details(self, data: dict[str, Any]) -> None:
        super().take_details(data)
        by, kind = data.get("by"), data.get("driverKind")
        self.by = by if type(by) is str else None
        self.driver_kind = kind if type(kind) is str else None
        self.is_back = data.get("isBack") is True
        for name in ("epoch", "seq", "version"):
            number = data.get(name)
            setattr(self, name, number if type(number) is int else None)


class ControlRefused(RpcError):
    """The input of a process cannot be taken: a person drives it, or the epoch is an old one."""

    code = -32041


class AuditUnavailable(RpcError):
    """The server does no work while it cannot write its audit log."""

    code = -32030
    retryable = True


_BY_CODE: dict[int, type[RpcError]] = {
    kind.code: kind
    for kind in (
        InvalidRequest,
        MethodNotFound,
        InvalidParams,
        InternalError,
        NotFound,
        SessionAttached,
        ScopeRefused,
        FloorRefused,
        QuotaReached,
        ControlLost,
        ControlRefused,
        AuditUnavailable,
    )
}


class ProtocolError(ExecServerError):
    """The peer sent a message that the protocol does not allow."""


class MalformedMessage(ProtocolError):
    """Bytes that are not one JSON-RPC message."""


class RelayError(ProtocolError):
    """A frame, handshake or record that the relay does not allow; its stream ends."""


class ConnectionClosed(ExecServerError):
    """The connection ended; a pending call may or may not have run."""

    retryable = True
    may_have_run: bool = True

    def __init__(self, message: str, *, may_have_run: bool | None = None) -> None:
        super().__init__(message)
        if may_have_run is not None:
            self.may_have_run = may_have_run


class ConnectError(ConnectionClosed):
    """No connection was made, so nothing was sent and nothing has run."""

    may_have_run = False
    # The HTTP status of the refusal, if there was one.
    status: int | None = None


class ConnectionRejected(ConnectError):
    """The server refused the connection: a wrong token, a wrong path or another service.

    `status` is the HTTP status, or None if the answer was not HTTP.
    """

    retryable = False

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class RegistryError(ConnectionRejected):
    """The registry refused a request; it did not answer at all if `status` is None.

    `error_code` is the registry's code for the reason, if it has one.
    """

    def __init__(
        self, message: str, *, status: int | None = None, error_code: str | None = None
    ) -> None:
        super().__init__(message, status=status)
        self.error_code = error_code


class UntrustedExecutor(RegistryError):
    """The key in the registry differs from the pinned key or from the one seen before."""


class SessionLost(ConnectionClosed):
    """The session cannot be resumed, so the client cannot reach its processes any more."""

    retryable = False


class SessionForgotten(SessionLost):
    """The server has answered and does not know the session, so its processes have ended.

    The server was restarted and the session had no durable process, or the session was away for too
    long.
    """


class CallTimeout(ExecServerError):
    """The answer did not come in time. The call may still run, unless it was never sent."""

    def __init__(self, message: str, *, may_have_run: bool = True) -> None:
        super().__init__(message)
        self.may_have_run = may_have_run


class ScreenTimeout(ExecServerError, TimeoutError):
    """A terminal did not show what was waited for in time."""


class ScreenEnded(ScreenTimeout):
    """The program has ended, and its terminal has not shown what was waited for."""

    def __init__(self, wanted: str, exit_code: int | None = None) -> None:
        status = "" if exit_code is None else f" with status {exit_code}"
        super().__init__(
            f"the program has ended{status}, and its terminal did not show it: {wanted}"
        )
        # None if it is not known.
        self.exit_code = exit_code


class ProcessFailed(ExecServerError):
    """Events of this process were lost or cannot be put in order."""


class ProcessLost(ProcessFailed):
    """The process is gone, and its exit status is unknown and stays so; `reason` says why.

    The machine was restarted, for example. The output up to that moment can be read. `run()` puts
    what it has collected into `stdout` and `stderr`.
    """

    def __init__(self, reason: str, *, stdout: bytes = b"", stderr: bytes = b"") -> None:
        super().__init__(f"the exit status is unknown: {reason}")
        self.reason = reason
        self.stdout = stdout
        self.stderr = stderr


class HttpBodyFailed(ExecServerError):
    """A streamed HTTP body broke off, or was not read in time."""


class StdinClosed(ExecServerError):
    """The process was started without input, has closed it, or has ended."""


class CommandFailed(ExecServerError):
    """A command ended with a status other than 0 although the caller asked for success.

    `signal` is the signal that has ended it, if it is known that one has; `end` says why it ended,
    if the server does, as `RemoteProcess.end`.
    """

    def __init__(
        self,
        argv: list[str],
        returncode: int,
        stdout: bytes,
        stderr: bytes,
        *,
        signal: int | None = None,
        dropped_bytes: int = 0,
        end: Any = None,
    ) -> None:
        text = f"ended with status {returncode}"
        if signal is not None:
            text = f"was ended by {getattr(signal, 'name', f'signal {signal}')}"
        if end is not None and end.cause not in ("exited", "signal"):
            text += f": {end.evidence}"
        super().__init__(f"{argv[0]} {text}{_missing(dropped_bytes)}")
        self.end = end
        self.argv = argv
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr
        self.signal = signal
        self.dropped_bytes = dropped_bytes


class CommandTimeout(ExecServerError):
    """A command took too long and was ended; `stdout` and `stderr` are its output so far.

    `dropped_bytes` are missing in their middle, because there were more than `max_output`.
    """

    def __init__(
        self,
        argv: list[str],
        timeout: float,
        stdout: bytes,
        stderr: bytes,
        *,
        dropped_bytes: int = 0,
    ) -> None:
        text = f"{argv[0]} took longer than {timeout:g} seconds{_missing(dropped_bytes)}"
        super().__init__(text)
        self.argv = argv
        self.timeout = timeout
        self.stdout = stdout
        self.stderr = stderr
        self.dropped_bytes = dropped_bytes


def _missing(dropped_bytes: int) -> str:
    return f"; {dropped_bytes} bytes of its output were dropped" if dropped_bytes else ""


class TransferFailed(ExecServerError):
    """A part of a tree was not copied; `result` lists what was, and its `problems` the rest."""

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        # This is a TransferResult.
        self.result = result


class ConfigurationError(ExecServerError):
    """Options that contradict each other or that the server cannot use."""


class ExecServerListenUrlParseError(ConfigurationError):
    """A ``--listen`` value that names no known transport."""
