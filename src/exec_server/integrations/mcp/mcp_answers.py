"""The shapes of the tools' structured answers; their schemas are what clients see."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class RunAnswer(BaseModel):
    """How a command ended, and its output."""

    exit_code: int | None = Field(description="exit status; null if the time limit ended it")
    stdout: str
    stderr: str
    timed_out: bool = Field(default=False, description="true if it was killed at its time limit")
    truncated: bool = Field(
        default=False, description="true if the middle of a long output is missing"
    )
    signal: str | None = Field(default=None, description="the signal that ended it")
    sandbox_denied: bool = Field(
        default=False, description="the sandbox has probably refused something"
    )
    background_process_id: str | None = Field(
        default=None, description="what it left in the background; `signal` can end it"
    )


class StartAnswer(BaseModel):
    """A job that was started."""

    process_id: str = Field(description="for `read`, `write` and `signal`")
    survives: Literal["the exec-server", "this connection"] = Field(
        description="what the job outlives: a restart of the exec-server, or the MCP connection"
    )


class ReadAnswer(BaseModel):
    """Output of a job."""

    output: str = Field(description="stdout and stderr in the order in which they came")
    next: int = Field(description="pass it as `after` to read what follows")
    is_running: bool
    exit_code: int | None = Field(default=None, description="exit status, once the job has exited")
    is_complete: bool = Field(description="true if there is no output after `next`")
    truncated: bool = Field(default=False, description="true if the middle of it is missing")
    dropped_bytes: int = Field(default=0, description="old output that the server no longer has")


class WriteAnswer(BaseModel):
    """What became of the input."""

    status: Literal["accepted", "starting", "unknownProcess", "stdinClosed"]


class SignalAnswer(BaseModel):
    """What became of a signal."""

    was_running: bool


class JobFacts(BaseModel):
    """One job."""

    process_id: str
    argv: list[str]
    state: Literal["starting", "running", "exited", "closed", "lost"]
    exit_code: int | None = None
    tty: bool = False


class ListAnswer(BaseModel):
    """The jobs that `start` has started, also in earlier connections."""

    processes: list[JobFacts]


class FileAnswer(BaseModel):
    """A part of a file."""

    text: str | None = Field(description="null if the file is not UTF-8 text")
    base64: str | None = Field(
        default=None, description="the first bytes of a file that is not text"
    )
    first_line: int = 1
    next_line: int | None = Field(
        default=None, description="pass it as `first_line`; null at the end"
    )
    size: int = Field(description="bytes of the whole file")


class WrittenAnswer(BaseModel):
    """A file that was written."""

    path: str
    size: int = Field(description="bytes")
    replacements: int = Field(
        default=0, description="how many times `edit_file` has replaced the text"
    )


class EntryFacts(BaseModel):
    """A name in a directory."""

    name: str
    kind: Literal["file", "directory", "other"]
    is_link: bool = False


class DirectoryAnswer(BaseModel):
    """The names in a directory, sorted."""

    entries: list[EntryFacts]
    truncated: bool = False


class FoundLine(BaseModel):
    """A line that matches, or a file whose name does (without `line`)."""

    path: str
    line: int | None = None
    text: str | None = None


class SearchAnswer(BaseModel):
    """What a search has found."""

    matches: list[FoundLine]
    truncated: bool = False
