"""`fs/*`: one line each, to the connection's files."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, cast

from exec_server.protocol import fs
from exec_server.protocol.method import Encoded, Nothing
from exec_server.rpc.router import handles
from exec_server.server.context import Context

if TYPE_CHECKING:
    from exec_server.files.file_service import Files


def _within(ctx: Context, params: Any, *, is_read: bool) -> Files:
    """The connection's files, as far as the request's sandbox allows."""
    files = ctx.files
    if params.sandbox is None:
        return files
    # What is confined has the same methods; their answers are encoded already.
    return cast("Files", files.within(params.sandbox, is_read=is_read))


@handles(fs.READ_FILE)
def read_file(ctx: Context, params: fs.ReadFileParams) -> Encoded | Awaitable[Encoded]:
    return _within(ctx, params, is_read=True).read_file(params)


@handles(fs.WRITE_FILE)
def write_file(ctx: Context, params: fs.WriteFileParams) -> Nothing | Awaitable[Nothing]:
    return _within(ctx, params, is_read=False).write_file(params)


@handles(fs.APPEND)
def append(ctx: Context, params: fs.AppendParams) -> Awaitable[fs.AppendResult]:
    return _within(ctx, params, is_read=False).append(params)


@handles(fs.OPEN)
def open_file(ctx: Context, params: fs.OpenParams) -> fs.OpenResult | Awaitable[fs.OpenResult]:
    return _within(ctx, params, is_read=params.mode == "read").open(params)


@handles(fs.READ_BLOCK)
def read_block(ctx: Context, params: fs.ReadBlockParams) -> Encoded | Awaitable[Encoded]:
    return ctx.files.open_files.read_block(params)


@handles(fs.WRITE_BLOCK)
def write_block(ctx: Context, params: fs.WriteBlockParams) -> Nothing | Awaitable[Nothing]:
    return ctx.files.open_files.write_block(params)


@handles(fs.CLOSE)
def close_file(ctx: Context, params: fs.CloseParams) -> Nothing:
    return ctx.files.open_files.close(params)


@handles(fs.GET_METADATA)
def get_metadata(
    ctx: Context, params: fs.GetMetadataParams
) -> fs.Metadata | Awaitable[fs.Metadata]:
    return _within(ctx, params, is_read=True).get_metadata(params)


@handles(fs.CANONICALIZE)
def canonicalize(ctx: Context, params: fs.CanonicalizeParams) -> Awaitable[fs.CanonicalizeResult]:
    return _within(ctx, params, is_read=True).canonicalize(params)


@handles(fs.CREATE_DIRECTORY)
def create_directory(ctx: Context, params: fs.CreateDirectoryParams) -> Awaitable[Nothing]:
    return _within(ctx, params, is_read=False).create_directory(params)


@handles(fs.REMOVE)
def remove(ctx: Context, params: fs.RemoveParams) -> Awaitable[Nothing]:
    return _within(ctx, params, is_read=False).remove(params)


@handles(fs.RENAME)
def rename(ctx: Context, params: fs.RenameParams) -> Awaitable[Nothing]:
    return _within(ctx, params, is_read=False).rename(params)


@handles(fs.SET_PERMISSIONS)
def set_permissions(ctx: Context, params: fs.SetPermissionsParams) -> Awaitable[Nothing]:
    return _within(ctx, params, is_read=False).set_permissions(params)


@handles(fs.READ_DIRECTORY)
def read_directory(ctx: Context, params: fs.ReadDirectoryParams) -> Awaitable[Encoded]:
    return _within(ctx, params, is_read=True).read_directory(params)


@handles(fs.WALK)
def walk(ctx: Context, params: fs.WalkParams) -> Awaitable[Encoded]:
    return _within(ctx, params, is_read=True).walk(params)


@handles(fs.COPY)
def copy(ctx: Context, params: fs.CopyParams) -> Awaitable[Nothing]:
    return _within(ctx, params, is_read=False).copy(params)


@handles(fs.WATCH_MISSING)
def watch_missing(
    ctx: Context, params: fs.WatchMissingParams
) -> fs.WatchMissingResult | Awaitable[fs.WatchMissingResult]:
    return ctx.files.missing.replace(params)
