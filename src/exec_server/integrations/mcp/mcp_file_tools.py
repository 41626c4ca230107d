"""The tools for files."""

from __future__ import annotations

import base64
import fnmatch
import posixpath
from typing import Annotated

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

import exec_server
from exec_server.integrations.mcp.mcp_answers import (
    DirectoryAnswer,
    EntryFacts,
    FileAnswer,
    FoundLine,
    SearchAnswer,
    WrittenAnswer,
)
from exec_server.integrations.mcp.mcp_box import McpBox
from exec_server.integrations.mcp.mcp_settings import McpSettings

# A larger file is not read whole for a few of its lines.
MAX_FILE_BYTES = 16 << 20
MAX_NAMES = 1000
MAX_MATCHES = 200
# The length of a line in the answer of a search.
MAX_LINE = 300

Path = Annotated[str, Field(description="absolute, or relative to the working directory")]


class FileTools:
    """read_file, write_file, edit_file, list_directory, search."""

    def __init__(self, box: McpBox, settings: McpSettings) -> None:
        self._box = box
        self._settings = settings

    async def read_file(
        self,
        path: Path,
        first_line: Annotated[int, Field(ge=1, description="the line to begin with")] = 1,
        max_lines: Annotated[int | None, Field(ge=1, description="how many lines")] = None,
    ) -> FileAnswer:
        """Read a text file from a line on, as far as one answer goes."""
        data = await self.content(path)
        limit = self._settings.max_output
        try:
            text = data.decode()
        except UnicodeDecodeError:
            shown = base64.b64encode(data[:limit]).decode()
            return FileAnswer(text=None, base64=shown, size=len(data))
        lines = text.splitlines(keepends=True)
        chosen: list[str] = []
        for line in lines[first_line - 1 :][:max_lines]:
            limit -= len(line.encode())
            if limit < 0 and chosen:
                break
            chosen.append(line)
        end = first_line + len(chosen)
        # A single line may be longer than an answer.
        shown = "".join(chosen).encode()[: self._settings.max_output].decode(errors="ignore")
        return FileAnswer(
            text=shown,
            first_line=first_line,
            next_line=end if end <= len(lines) else None,
            size=len(data),
        )

    async def content(self, path: str) -> bytes:
        """The bytes of a file. Raises ToolError for one that is too large to read whole."""
        files = await self._files()
        size = (await files.get_metadata(self._at(path))).size
        if size > MAX_FILE_BYTES:
            raise ToolError(f"{path} has {size} bytes, which is too much; use `search`")
        return await files.read_bytes(self._at(path))

    async def write_file(
        self, path: Path, text: Annotated[str, Field(description="the whole content")]
    ) -> WrittenAnswer:
        """Create a file, or replace its content; missing directories are made."""
        files, data = await self._files(), text.encode()
        await files.create_directory(posixpath.dirname(self._at(path)) or ".", recursive=True)
        await files.write_bytes(self._at(path), data)
        return WrittenAnswer(path=path, size=len(data))

    async def edit_file(
        self,
        path: Path,
        old: Annotated[str, Field(min_length=1, description="the exact text to replace")],
        new: Annotated[str, Field(description="the text to put in its place")],
        replace_all: Annotated[bool, Field(description="replace it wherever it occurs")] = False,
    ) -> WrittenAnswer:
        """Replace a text in a file. It must occur exactly once, unless replace_all is true."""
        text = (await self.content(path)).decode()
        count = text.count(old)
        if count == 0:
            raise ToolError(f"the text does not occur in {path}; read the file again")
        if count > 1 and not replace_all:
            raise ToolError(f"the text occurs {count} times in {path}; give more of its context")
        data = text.replace(old, new).encode()
        await (await self._files()).write_bytes(self._at(path), data)
        return WrittenAnswer(path=path, size=len(data), replacements=count)

    async def list_directory(self, path: Path = ".") -> DirectoryAnswer:
        """List the names in a directory."""
        found = await (await self._files()).read_directory(self._at(path))
        entries = sorted(
            (
                EntryFacts(
                    name=_printable(each.name),
                    kind="directory" if each.is_directory else "file" if each.is_file else "other",
                    is_link=each.is_symlink is True,
                )
                for each in found
            ),
            key=lambda entry: entry.name,
        )
        return DirectoryAnswer(entries=entries[:MAX_NAMES], truncated=len(entries) > MAX_NAMES)

    async def search(
        self,
        path: Path = ".",
        pattern: Annotated[
            str, Field(description="an extended regular expression; empty: search names only")
        ] = "",
        glob: Annotated[str, Field(description="only files of such names, such as *.py")] = "*",
    ) -> SearchAnswer:
        """Search the files below a directory for lines, or for names if there is no pattern."""
        return await (self._lines(path, pattern, glob) if pattern else self._names(path, glob))

    async def _names(self, path: str, glob: str) -> SearchAnswer:
        walked = await (await self._files()).walk(self._at(path), prune_hidden_directories=True)
        found = [
            FoundLine(path=_printable(entry.path))
            for entry in walked.entries
            if entry.kind != "directory" and fnmatch.fnmatch(posixpath.basename(entry.path), glob)
        ]
        truncated = walked.truncated or len(found) > MAX_MATCHES
        return SearchAnswer(matches=found[:MAX_MATCHES], truncated=truncated)

    async def _lines(self, path: str, pattern: str, glob: str) -> SearchAnswer:
        client = await self._box.commands()
        options = ["-rnIHZE", f"--include={glob}", "--exclude-dir=.git"]
        done = await client.run(
            ["grep", *options, "-e", pattern, "--", self._at(path)],
            cwd=self._settings.cwd,
            timeout=self._settings.time_limit,
            max_output=4 << 20,
            sandbox=await self._settings.sandbox_for(client, self._settings.cwd),
        )
        if done.returncode > 1 and not done.stdout:
            raise ToolError(done.text("stderr").strip() or "the search failed")
        matches = []
        for line in done.stdout.decode(errors="replace").splitlines():
            name, zero, rest = line.partition("\0")
            number, colon, text = rest.partition(":")
            if zero and colon and number.isdigit():
                matches.append(FoundLine(path=name, line=int(number), text=text[:MAX_LINE]))
        truncated = done.truncated or len(matches) > MAX_MATCHES
        return SearchAnswer(matches=matches[:MAX_MATCHES], truncated=truncated)

    def _at(self, path: str) -> str:
        return posixpath.join(self._settings.cwd or "", "" if path == "." else path) or "."

    async def _files(self) -> exec_server.RemoteFiles:
        client = await self._box.commands()
        context = await self._settings.sandbox_for(client, self._settings.cwd)
        return client.fs if context is None else client.fs.sandboxed(context)


def _printable(name: str) -> str:
    """A name without the surrogates that stand for bytes that are not UTF-8."""
    return name.encode("utf-8", "replace").decode()
