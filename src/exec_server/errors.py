"""Every exception of the package.

::

    ExecServerError
    ├── RpcError                    told to the peer; ``code`` is its JSON-RPC code
    │   ├── InvalidRequest          -32600  malformed, out of order, or of an unknown thing
    │   ├── MethodNotFound          -32601
    │   ├── InvalidParams           -32602
    │   ├── InternalError           -32603  the operating system refused
    │   ├── NotFound                -32004  a file that does not exist
    │   └── SessionAttached         -32010  another connection holds the session (retryable)
    ├── ProtocolError               the peer broke the contract; the connection closes
    │   ├── MalformedMessage        not a JSON-RPC message; the connection goes on
    │   └── RelayError              not what the relay allows; its stream ends
    ├── ConnectionClosed            the transport is gone; what was pending may have run (retryable)
    │   ├── ConnectError            it never came to be: nothing has run (retryable)
    │   │   └── ConnectionRejected  somebody answered, and would answer the same again
    │   │       └── RegistryError   the registry of a remote environment refused
    │   │           └── UntrustedExecutor  it names another key than the one we trust
    │   └── SessionLost             the session cannot be resumed; only a new client goes on
    ├── HttpBodyFailed              a streamed HTTP answer broke off; what came before is right
    ├── CallTimeout                 no answer before the deadline; it may have run
    ├── ProcessFailed               the client can no longer follow this process
    ├── StdinClosed                 a process takes no input, or no more of it
    ├── CommandFailed               a command of ``run(check=True)`` did not end with status 0
    ├── TransferFailed              some of a tree could not be copied; ``result`` says what
    ├── CommandTimeout              a command of ``run(timeout=...)`` took longer and was ended
    └── ConfigurationError          options that cannot be served
        └── ExecServerListenUrlParseError

Ask an exception ``exc.retryable``: whether the same call can succeed later without a change.
Ask ConnectionClosed and CallTimeout ``exc.may_have_run``: False when the request was never sent.
"""

from __future__ import annotations

from typing import Any, ClassVar


class ExecServerError(Exception):
    """The root of everything this package raises on purpose."""

    retryable: ClassVar[bool] = False


class RpcError(ExecServerError):
    """An error that crosses the wire, raised by a service or received by a client."""

    code: int = -32603

    def __init__(self, message: str, *, code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code

    @staticmethod
    def from_wire(code: int, message: str) -> RpcError:
        """The exception for an error object that a peer sent."""
        kind = _BY_CODE.get(code)
        return kind(message) if kind is not None else RpcError(message, code=code)


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


_BY_CODE: dict[int, type[RpcError]] = {
    kind.code: kind
    for kind in (
        InvalidRequest,
        MethodNotFound,
        InvalidParams,
        InternalError,
        NotFound,
        SessionAttached,
    )
}


class ProtocolError(ExecServerError):
    """The peer said something that the contract does not allow."""


class MalformedMessage(ProtocolError):
    """Bytes that are not one JSON-RPC message."""


class RelayError(ProtocolError):
    """A frame, handshake or record that the relay does not allow; its stream is of no more use."""


class ConnectionClosed(ExecServerError):
    """The connection ended; a call that was under way may or may not have run."""

    retryable = True
    may_have_run: bool = True

    def __init__(self, message: str, *, may_have_run: bool | None = None) -> None:
        super().__init__(message)
        if may_have_run is not None:
            self.may_have_run = may_have_run


class ConnectError(ConnectionClosed):
    """No connection came about, so nothing was sent and nothing has run."""

    may_have_run = False
    # The HTTP status of an answer that was no connection.
    status: int | None = None


class ConnectionRejected(ConnectError):
    """The other side answered without letting us in: a wrong token, a wrong path, another service.

    `status` is the HTTP status, or None when the answer was not even HTTP.
    """

    retryable = False

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class RegistryError(ConnectionRejected):
    """The registry did not do what it was asked; without a status it did not even answer.

    `error_code` is its own word for the reason, where it has one.
    """

    def __init__(
        self, message: str, *, status: int | None = None, error_code: str | None = None
    ) -> None:
        super().__init__(message, status=status)
        self.error_code = error_code


class UntrustedExecutor(RegistryError):
    """The key that the registry names is not the one that was pinned or seen before."""


class SessionLost(ConnectionClosed):
    """The connection was lost for good: there is no way back to the session and its processes."""

    retryable = False


class CallTimeout(ExecServerError):
    """The answer did not come in time; unless it was never sent, the call may still run."""

    def __init__(self, message: str, *, may_have_run: bool = True) -> None:
        super().__init__(message)
        self.may_have_run = may_have_run


class ProcessFailed(ExecServerError):
    """Events of this process were lost or cannot be ordered any more."""


class HttpBodyFailed(ExecServerError):
    """The body of a streamed HTTP answer ended before its end, or was not taken in time."""


class StdinClosed(ExecServerError):
    """The process was started without input, has closed it, or has ended."""


class CommandFailed(ExecServerError):
    """A command ended with a status other than 0 although the caller asked for success."""

    def __init__(self, argv: list[str], returncode: int, stdout: bytes, stderr: bytes) -> None:
        super().__init__(f"{argv[0]} ended with status {returncode}")
        self.argv = argv
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr


class CommandTimeout(ExecServerError):
    """A command took too long and was ended; `stdout` and `stderr` are what it had said."""

    def __init__(self, argv: list[str], timeout: float, stdout: bytes, stderr: bytes) -> None:
        super().__init__(f"{argv[0]} took longer than {timeout:g} seconds")
        self.argv = argv
        self.timeout = timeout
        self.stdout = stdout
        self.stderr = stderr


class TransferFailed(ExecServerError):
    """Some of a tree could not be copied; `result` says what was, and its `problems` what not."""

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        # A TransferResult.
        self.result = result


class ConfigurationError(ExecServerError):
    """Options that contradict each other or cannot be served."""


class ExecServerListenUrlParseError(ConfigurationError):
    """A ``--listen`` value that names no transport of ours."""
