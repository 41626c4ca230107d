"""The file methods that find, follow and compare files, which are extensions."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Literal

from exec_server.client.files.change_reports import FileWatch
from exec_server.client.files.file_methods import AnyPath, unless
from exec_server.client.files.link_methods import LinkMethods
from exec_server.client.files.search_results import FileSearch
from exec_server.protocol.base64 import Blob
from exec_server.protocol.file_delta import (
    COPY_RANGES,
    SIGNATURE,
    SPAN_BYTES,
    CopyRangesParams,
    SignatureParams,
    SignatureResult,
)
from exec_server.protocol.file_search import SearchParams
from exec_server.protocol.file_watch import WatchParams


class LookingMethods(LinkMethods):
    """The part of `client.fs` that finds files, follows their changes and compares contents.

    Servers without `fsSearch`, `fsWatch` and `fsDelta` raise MethodNotFound.
    """

    def search(
        self,
        path: AnyPath,
        pattern: str,
        *,
        mode: Literal["content", "names"] = "content",
        literal: bool = False,
        ignore_case: bool = False,
        whole_words: bool = False,
        globs: Iterable[str] = (),
        hidden: bool = False,
        ignored: bool = False,
        before: int = 0,
        after: int = 0,
        max_matches: int | None = None,
        max_seconds: float | None = None,
    ) -> FileSearch:
        """`fs/search`: the lines in files at and below *path* that match a regular expression.

        With *mode* `names` the paths below *path* are searched. Hidden files, and files that
        .gitignore names, are left out unless *hidden* and *ignored* are true. *globs* are as those
        of `rg --glob`. It starts with the first step of the iteration, or with `async with`.
        """
        search_id = uuid.uuid4().hex

        async def prepare() -> SearchParams:
            await self._require("fsSearch")
            return SearchParams(
                search_id,
                await self.uri(path),
                pattern,
                mode,
                literal,
                ignore_case,
                whole_words,
                tuple(globs),
                hidden,
                ignored,
                before,
                after,
                max_matches,
                max_seconds,
                await self.offers("fsSearchPacked"),
                self._sandbox,
            )

        return FileSearch(self._session, search_id, prepare)

    async def signature(
        self,
        path: AnyPath,
        *,
        offset: int = 0,
        length: int = SPAN_BYTES,
        chunks: bool = True,
        block_bytes: int = 0,
        key: bytes | None = None,
        follow_symlinks: bool = True,
    ) -> SignatureResult:
        """`fs/signature`: the checksums of a part of a file, of at most 128 MiB.

        Chunks end where the content says so, or after *block_bytes* each, if that is not 0. Their
        checksums are SHA-256, or GMAC with a *key* of 16 random bytes.
        `exec_server.protocol.file_delta.unpack_chunks` reads the chunks.
        """
        await self._require("fsDelta" if key is None else "fsDeltaKeyed")
        params = SignatureParams(
            await self.uri(path),
            offset,
            length,
            chunks,
            block_bytes,
            None if key is None else Blob(key),
            unless(follow_symlinks),
            self._sandbox,
        )
        return await self._call(SIGNATURE, params)

    async def copy_ranges(
        self,
        source: AnyPath,
        destination: AnyPath,
        ranges: Sequence[tuple[int, int, int]],
        *,
        follow_symlinks: bool = True,
    ) -> None:
        """`fs/copyRanges`: copy parts of one file of the server into another one, which exists.

        A range is the offset in the source, the offset in the destination, and the length. All
        together are at most 128 MiB.
        """
        await self._require("fsDelta")
        params = CopyRangesParams(
            await self.uri(source),
            await self.uri(destination),
            list(ranges),
            unless(follow_symlinks),
            self._sandbox,
        )
        await self._call(COPY_RANGES, params)

    def watch(
        self, path: AnyPath, *, recursive: bool = True, ignore: Iterable[str] = ()
    ) -> FileWatch:
        """`fs/watch`: changes of a file, or in a directory and everything below it.

        *ignore* has patterns as in .gitignore. It starts with `async with`; what changes after
        that is reported. Links are not followed.
        """
        watch_id = uuid.uuid4().hex

        async def prepare() -> WatchParams:
            await self._require("fsWatch")
            uri = await self.uri(path)
            return WatchParams(watch_id, uri, recursive, tuple(ignore), None, self._sandbox)

        return FileWatch(self._session, watch_id, prepare)
