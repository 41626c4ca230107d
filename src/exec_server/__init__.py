"""Run processes on another machine, or let other machines run them on this one.

This is a client::

    async with exec_server.connect("ws://127.0.0.1:41181") as client:
        done = await client.run(["uname", "-a"])
        print(done.returncode, done.stdout)

This does the same on this machine, without a socket::

    async with exec_server.local() as client:
        await client.run(["uname", "-a"])

This is a server in your own event loop::

    async with exec_server.serve("ws://127.0.0.1:0") as server:
        print(server.url)

A name is imported when it is first used: a program that only serves does not load the client.
"""

# `python -m exec_server` puts the current directory on the path, and a workspace must not give a
# server its modules. It is taken off before anything else is imported, even `__future__`; only the
# name of the program tells this start from that of a program which uses the package.
import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    if any(word.endswith("exec_server") for word in sys.orig_argv):
        del sys.path[0]

from exec_server.version import VERSION as __version__

# Type checkers know this name. Importing `typing` would double the start time of a command.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from exec_server.client.connect_options import (
        ExecServerClientConnectOptions,
        RemoteExecServerConnectArgs,
    )
    from exec_server.client.environments.lazy import EnvironmentStatus
    from exec_server.client.environments.manager import EnvironmentFacts, EnvironmentManager
    from exec_server.client.files.change_reports import Change, Changes, FileWatch
    from exec_server.client.files.file_streams import ReadStream, WriteStream
    from exec_server.client.files.remote_files import RemoteFiles
    from exec_server.client.files.remote_path import RemotePath
    from exec_server.client.files.search_results import FileSearch, SearchHit
    from exec_server.client.files.transfer.progress import Progress
    from exec_server.client.files.transfer.result import TransferResult
    from exec_server.client.http.remote_http import (
        FromEnvironment,
        HttpHeaders,
        HttpResponse,
        RemoteHttp,
        StreamedHttpResponse,
    )
    from exec_server.client.process.output_buffer import (
        Closed,
        Exited,
        Failed,
        OutputChunk,
        ResyncRequired,
    )
    from exec_server.client.process.output_view import OutputView
    from exec_server.client.process.processes import INHERIT_ENV
    from exec_server.client.process.remote_process import RemoteProcess
    from exec_server.client.process.run_to_end import CompletedProcess
    from exec_server.client.process.screen_data import Screen, ScreenMatch
    from exec_server.client.process.watched_process import (
        MissedOutput,
        TerminalSize,
        WatchedProcess,
    )
    from exec_server.client.session_link import ConnectionState
    from exec_server.client_urls import ExecServerClient, connect
    from exec_server.client_urls import open as open
    from exec_server.errors import (
        AuditUnavailable,
        CallTimeout,
        CommandFailed,
        CommandTimeout,
        ConfigurationError,
        ConnectError,
        ConnectionClosed,
        ConnectionRejected,
        ControlLost,
        ControlRefused,
        ExecServerError,
        ExecServerListenUrlParseError,
        FloorRefused,
        HttpBodyFailed,
        InternalError,
        InvalidParams,
        InvalidRequest,
        MalformedMessage,
        MethodNotFound,
        NotFound,
        ProcessFailed,
        ProcessLost,
        ProtocolError,
        QuotaReached,
        RegistryError,
        RelayError,
        RpcError,
        RuleRefused,
        ScopeRefused,
        ScreenEnded,
        ScreenTimeout,
        SessionAttached,
        SessionForgotten,
        SessionLost,
        StdinClosed,
        TransferFailed,
        UntrustedExecutor,
    )
    from exec_server.limits import DEFAULT_LIMITS, Limits
    from exec_server.local_server import environments, local
    from exec_server.protocol.base64 import Blob
    from exec_server.protocol.denials import Denial, DenialsResult
    from exec_server.protocol.ends import EndedBy, EndReport, Usage
    from exec_server.protocol.env_policy import EnvPolicy
    from exec_server.protocol.environment import EnvironmentInfo
    from exec_server.protocol.jobs import JobInfo
    from exec_server.protocol.lifecycle import InitializeParams
    from exec_server.protocol.lifecycle import InitializeResult as InitializeResponse
    from exec_server.protocol.process import ClosedEvent as ExecClosedNotification
    from exec_server.protocol.process import (
        CloseStdinParams,
        ProcessId,
        ProcessInfo,
        ReadChunk,
        ReadParams,
        ResizeParams,
        SignalParams,
        TerminateParams,
        WriteParams,
        WriteStatus,
    )
    from exec_server.protocol.process import ExitedEvent as ExecExitedNotification
    from exec_server.protocol.process import ListResult as ListResponse
    from exec_server.protocol.process import OutputEvent as ExecOutputDeltaNotification
    from exec_server.protocol.process import ReadResult as ReadResponse
    from exec_server.protocol.process import StartParams as ExecParams
    from exec_server.protocol.process import StartResult as ExecResponse
    from exec_server.protocol.process import TerminateResult as TerminateResponse
    from exec_server.protocol.process import WriteResult as WriteResponse
    from exec_server.protocol.resources import GrantedLimit, ResourceLimits
    from exec_server.protocol.sandbox import SandboxContext, read_only, workspace_write
    from exec_server.protocol.screen import LastCommand
    from exec_server.protocol.sharing import (
        ControlChangedEvent,
        ControlState,
        Participant,
        ScreenPicture,
    )
    from exec_server.remote.identity import create_identity, load_identity
    from exec_server.remote.remote_config import RemoteEnvironmentConfig
    from exec_server.remote_server import (
        RemoteExecutorConfig,
        run_forward,
        run_remote_environment,
        run_remote_executor,
    )
    from exec_server.server.authentication import Authenticator, CapabilityToken, SignedBearerToken
    from exec_server.server.server import ExecServer
    from exec_server.server.serving import ExecServerRuntimePaths, RunningServer, run_main, serve
    from exec_server.transport.address import DEFAULT_LISTEN_URL

__all__ = [
    "DEFAULT_LIMITS",
    "DEFAULT_LISTEN_URL",
    "INHERIT_ENV",
    "AuditUnavailable",
    "Authenticator",
    "Blob",
    "CallTimeout",
    "CapabilityToken",
    "Change",
    "Changes",
    "CloseStdinParams",
    "Closed",
    "CommandFailed",
    "CommandTimeout",
    "CompletedProcess",
    "ConfigurationError",
    "ConnectError",
    "ConnectionClosed",
    "ConnectionRejected",
    "ConnectionState",
    "ControlChangedEvent",
    "ControlLost",
    "ControlRefused",
    "ControlState",
    "Denial",
    "DenialsResult",
    "EndReport",
    "EndedBy",
    "EnvPolicy",
    "EnvironmentFacts",
    "EnvironmentInfo",
    "EnvironmentManager",
    "EnvironmentStatus",
    "ExecClosedNotification",
    "ExecExitedNotification",
    "ExecOutputDeltaNotification",
    "ExecParams",
    "ExecResponse",
    "ExecServer",
    "ExecServerClient",
    "ExecServerClientConnectOptions",
    "ExecServerError",
    "ExecServerListenUrlParseError",
    "ExecServerRuntimePaths",
    "Exited",
    "Failed",
    "FileSearch",
    "FileWatch",
    "FloorRefused",
    "FromEnvironment",
    "GrantedLimit",
    "HttpBodyFailed",
    "HttpHeaders",
    "HttpResponse",
    "InitializeParams",
    "InitializeResponse",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "JobInfo",
    "LastCommand",
    "Limits",
    "ListResponse",
    "MalformedMessage",
    "MethodNotFound",
    "MissedOutput",
    "NotFound",
    "OutputChunk",
    "OutputView",
    "Participant",
    "ProcessFailed",
    "ProcessId",
    "ProcessInfo",
    "ProcessLost",
    "Progress",
    "ProtocolError",
    "QuotaReached",
    "ReadChunk",
    "ReadParams",
    "ReadResponse",
    "ReadStream",
    "RegistryError",
    "RelayError",
    "RemoteEnvironmentConfig",
    "RemoteExecServerConnectArgs",
    "RemoteExecutorConfig",
    "RemoteFiles",
    "RemoteHttp",
    "RemotePath",
    "RemoteProcess",
    "ResizeParams",
    "ResourceLimits",
    "ResyncRequired",
    "RpcError",
    "RuleRefused",
    "RunningServer",
    "SandboxContext",
    "ScopeRefused",
    "Screen",
    "ScreenEnded",
    "ScreenMatch",
    "ScreenPicture",
    "ScreenTimeout",
    "SearchHit",
    "SessionAttached",
    "SessionForgotten",
    "SessionLost",
    "SignalParams",
    "SignedBearerToken",
    "StdinClosed",
    "StreamedHttpResponse",
    "TerminalSize",
    "TerminateParams",
    "TerminateResponse",
    "TransferFailed",
    "TransferResult",
    "UntrustedExecutor",
    "Usage",
    "WatchedProcess",
    "WriteParams",
    "WriteResponse",
    "WriteStatus",
    "WriteStream",
    "__version__",
    "connect",
    "create_identity",
    "environments",
    "load_identity",
    "local",
    "read_only",
    "run_forward",
    "run_main",
    "run_remote_environment",
    "run_remote_executor",
    "serve",
    "workspace_write",
]

# The module of each public name; `NAME=INNER` if the module calls it INNER.
_NAMES = {
    "client.process.run_to_end": "CompletedProcess",
    "client.environments.lazy": "EnvironmentStatus",
    "client.environments.manager": "EnvironmentFacts EnvironmentManager",
    "client.connect_options": "ExecServerClientConnectOptions RemoteExecServerConnectArgs",
    "client.files.remote_files": "RemoteFiles",
    "client.http.remote_http": (
        "FromEnvironment HttpHeaders HttpResponse RemoteHttp StreamedHttpResponse"
    ),
    "client.session_link": "ConnectionState",
    "client.process.output_buffer": "Closed Exited Failed OutputChunk ResyncRequired",
    "client.process.watched_process": "MissedOutput TerminalSize WatchedProcess",
    "client.process.output_view": "OutputView",
    "client.files.remote_path": "RemotePath",
    "client.process.screen_data": "Screen ScreenMatch",
    "client.process.remote_process": "RemoteProcess",
    "client.process.processes": "INHERIT_ENV",
    "client.files.search_results": "FileSearch SearchHit",
    "client.files.file_streams": "ReadStream WriteStream",
    "client.files.change_reports": "Change Changes FileWatch",
    "client.files.transfer.progress": "Progress",
    "client.files.transfer.result": "TransferResult",
    "errors": (
        "AuditUnavailable CallTimeout CommandFailed CommandTimeout ConfigurationError ConnectError "
        "ConnectionClosed ConnectionRejected ExecServerError ExecServerListenUrlParseError "
        "FloorRefused HttpBodyFailed InternalError InvalidParams InvalidRequest MalformedMessage "
        "ControlLost ControlRefused "
        "MethodNotFound NotFound ProcessFailed ProcessLost ProtocolError QuotaReached "
        "RegistryError RelayError RpcError RuleRefused ScopeRefused ScreenEnded ScreenTimeout "
        "SessionAttached SessionForgotten SessionLost StdinClosed TransferFailed UntrustedExecutor"
    ),
    "local_server": "environments local",
    "limits": "DEFAULT_LIMITS Limits",
    "protocol.base64": "Blob",
    "protocol.denials": "Denial DenialsResult",
    "protocol.sharing": "ControlChangedEvent ControlState Participant ScreenPicture",
    "protocol.ends": "EndReport EndedBy Usage",
    "protocol.env_policy": "EnvPolicy",
    "protocol.environment": "EnvironmentInfo",
    "protocol.jobs": "JobInfo",
    "protocol.lifecycle": "InitializeParams InitializeResponse=InitializeResult",
    "protocol.process": (
        "CloseStdinParams ExecClosedNotification=ClosedEvent ExecExitedNotification=ExitedEvent "
        "ExecOutputDeltaNotification=OutputEvent ExecParams=StartParams ExecResponse=StartResult "
        "ListResponse=ListResult ProcessId ProcessInfo ReadChunk ReadParams "
        "ReadResponse=ReadResult ResizeParams SignalParams TerminateParams "
        "TerminateResponse=TerminateResult WriteParams WriteResponse=WriteResult WriteStatus"
    ),
    "protocol.screen": "LastCommand",
    "protocol.resources": "GrantedLimit ResourceLimits",
    "protocol.sandbox": "SandboxContext read_only workspace_write",
    # `open` is not in `__all__`, so that `import *` leaves the built-in function alone.
    "client_urls": "ExecServerClient connect open",
    "remote_server": "RemoteExecutorConfig run_forward run_remote_environment run_remote_executor",
    "remote.remote_config": "RemoteEnvironmentConfig",
    "remote.identity": "create_identity load_identity",
    "server.authentication": "Authenticator CapabilityToken SignedBearerToken",
    "server.serving": "ExecServerRuntimePaths RunningServer run_main serve",
    "server.server": "ExecServer",
    "transport.address": "DEFAULT_LISTEN_URL",
}
_HOMES = {
    name: (module, inner or name)
    for module, names in _NAMES.items()
    for name, _, inner in (word.partition("=") for word in names.split())
}


# Type checkers do not see this; otherwise every name would exist for them.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        module, inner = home
        value = getattr(import_module(f"{__name__}.{module}"), inner)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
