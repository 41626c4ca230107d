"""`fs/*`: each handler is one call to the connection's files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from exec_server.protocol import file_delta, file_search, file_watch, fs
from exec_server.protocol.method import NOTHING, Nothing, Reply
from exec_server.rpc.router import handles
from exec_server.server.context import Context

if TYPE_CHECKING:
    from exec_server.files.file_calls import FileCalls
    from exec_server.files.file_service import FileTerms


def _within(ctx: Context, params: Any, *, is_read: bool) -> FileCalls:
    """The file calls of the connection, within the request's sandbox."""
    files, floors = ctx.files, ctx.floors
    if floors is not None and floors.holds_files:
        floors.check_paths(params)
        return files.within(params.sandbox, is_read=is_read, terms=floors.file_terms)
    return files if params.sandbox is None else files.within(params.sandbox, is_read=is_read)


@handles(fs.READ_FILE)
def read_file(ctx: Context, params: fs.ReadFileParams) -> Reply[fs.ReadFileResult]:
    return _within(ctx, params, is_read=True).read_file(params)


@handles(fs.WRITE_FILE)
def write_file(ctx: Context, params: fs.WriteFileParams) -> Reply[Nothing]:
    return _within(ctx, params, is_read=False).write_file(params)


@handles(fs.APPEND)
def append(ctx: Context, params: fs.AppendParams) -> Reply[fs.AppendResult]:
    return _within(ctx, params, is_read=False).call(fs.APPEND, params)


@handles(fs.OPEN)
def open_file(ctx: Context, params: fs.OpenParams) -> Reply[fs.OpenResult]:
    return _within(ctx, params, is_read=params.mode == "read").open(params)


@handles(fs.READ_BLOCK)
def read_block(ctx: Context, params: fs.ReadBlockParams) -> Reply[fs.ReadBlockResult]:
    return ctx.files.open_files.read_block(params)


@handles(fs.WRITE_BLOCK)
def write_block(ctx: Context, params: fs.WriteBlockParams) -> Reply[Nothing]:
    return ctx.files.open_files.write_block(params)


@handles(fs.CLOSE)
def close_file(ctx: Context, params: fs.CloseParams) -> Nothing:
    return ctx.files.open_files.close(params)


@handles(fs.GET_METADATA)
def get_metadata(ctx: Context, params: fs.GetMetadataParams) -> Reply[fs.Metadata]:
    return _within(ctx, params, is_read=True).get_metadata(params)


@handles(fs.LSTAT)
def lstat(ctx: Context, params: fs.LstatParams) -> Reply[fs.Metadata]:
    return _within(ctx, params, is_read=True).call(fs.LSTAT, params)


@handles(fs.READ_LINK)
def read_link(ctx: Context, params: fs.ReadLinkParams) -> Reply[fs.LinkTarget]:
    return _within(ctx, params, is_read=True).call(fs.READ_LINK, params)


@handles(fs.SYMLINK)
def symlink(ctx: Context, params: fs.SymlinkParams) -> Reply[Nothing]:
    return _within(ctx, params, is_read=False).call(fs.SYMLINK, params)


@handles(fs.CANONICALIZE)
def canonicalize(ctx: Context, params: fs.CanonicalizeParams) -> Reply[fs.CanonicalizeResult]:
    return _within(ctx, params, is_read=True).call(fs.CANONICALIZE, params)


@handles(fs.CREATE_DIRECTORY)
def create_directory(ctx: Context, params: fs.CreateDirectoryParams) -> Reply[Nothing]:
    return _within(ctx, params, is_read=False).call(fs.CREATE_DIRECTORY, params)


@handles(fs.REMOVE)
def remove(ctx: Context, params: fs.RemoveParams) -> Reply[Nothing]:
    return _within(ctx, params, is_read=False).call(fs.REMOVE, params)


@handles(fs.RENAME)
def rename(ctx: Context, params: fs.RenameParams) -> Reply[Nothing]:
    return _within(ctx, params, is_read=False).call(fs.RENAME, params)


@handles(fs.SET_PERMISSIONS)
def set_permissions(ctx: Context, params: fs.SetPermissionsParams) -> Reply[Nothing]:
    return _within(ctx, params, is_read=False).call(fs.SET_PERMISSIONS, params)


@handles(fs.READ_DIRECTORY)
def read_directory(ctx: Context, params: fs.ReadDirectoryParams) -> Reply[fs.ReadDirectoryResult]:
    return _within(ctx, params, is_read=True).call(fs.READ_DIRECTORY, params)


@handles(fs.WALK)
def walk(ctx: Context, params: fs.WalkParams) -> Reply[fs.WalkResult]:
    return _within(ctx, params, is_read=True).call(fs.WALK, params)


@handles(fs.COPY)
def copy(ctx: Context, params: fs.CopyParams) -> Reply[Nothing]:
    return _within(ctx, params, is_read=False).call(fs.COPY, params)


@handles(fs.WATCH_MISSING)
def watch_missing(ctx: Context, params: fs.WatchMissingParams) -> Reply[fs.WatchMissingResult]:
    if ctx.floors is not None and ctx.floors.hides_files:
        # A watch would tell which paths exist. Clients go on without one.
        rule = "the files of the server are not watched for this principal"
        ctx.server.on_rule_refused(ctx.who, fs.WATCH_MISSING.name, rule)
        return fs.WatchMissingResult(False)
    return ctx.files.missing.replace(params)


@handles(file_delta.SIGNATURE)
def signature(
    ctx: Context, params: file_delta.SignatureParams
) -> Reply[file_delta.SignatureResult]:
    return _within(ctx, params, is_read=True).call(file_delta.SIGNATURE, params)


@handles(file_delta.COPY_RANGES)
def copy_ranges(ctx: Context, params: file_delta.CopyRangesParams) -> Reply[Nothing]:
    return _within(ctx, params, is_read=False).call(file_delta.COPY_RANGES, params)


# Searches and watches, which a process of their own does.


def _terms(ctx: Context, params: Any) -> FileTerms:
    """What the operator decides about a search or a watch. Raises FloorRefused."""
    from exec_server.files.file_service import NO_TERMS

    floors = ctx.floors
    if floors is None or not floors.holds_files:
        return NO_TERMS
    floors.check_paths(params)
    return floors.file_terms


@handles(file_search.SEARCH)
def search(ctx: Context, params: file_search.SearchParams) -> Reply[Nothing]:
    return ctx.searches.start(params, _terms(ctx, params))


@handles(file_search.CANCEL_SEARCH)
def cancel_search(ctx: Context, params: file_search.CancelSearchParams) -> Nothing:
    ctx.searches.cancel(params.search_id)
    return NOTHING


@handles(file_watch.WATCH)
def watch(ctx: Context, params: file_watch.WatchParams) -> Reply[file_watch.WatchResult]:
    return ctx.watches.start(params, _terms(ctx, params))


@handles(file_watch.UNWATCH)
def unwatch(ctx: Context, params: file_watch.UnwatchParams) -> Nothing:
    ctx.watches.drop(params.watch_id)
    return NOTHING
