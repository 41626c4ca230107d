"""`process/watch`, `process/control`: many look on, one types. All of it is ours."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from exec_server.protocol.base64 import Blob
from exec_server.protocol.ends import EndReport, Usage
from exec_server.protocol.method import Event, Method, Nothing
from exec_server.protocol.numbers import Count, fits_u64
from exec_server.protocol.participants import Kind
from exec_server.protocol.process import Stream, Window

# "state" changes nothing and only answers.
ControlAction = Literal["take", "offer", "giveBack", "state"]
# Why the driver has changed. "left": the driver has gone, so its predecessor drives again.
ControlReason = Literal["taken", "accepted", "givenBack", "left"]
WatchId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
ShownName = Annotated[str, msgspec.Meta(max_length=64)]

# The participant of the session that has started the process.
OWNER = "owner"


class Participant(msgspec.Struct, rename="camel"):
    """One who looks on at a process, or drives it."""

    # Names it within its process; "owner" is the session that has started the process.
    id: str
    name: str
    kind: Kind
    principal: str
    # True for the one whose input and sizes the program gets.
    drives: bool
    # False while its connection is lost, and for an owner without a client.
    connected: bool
    # When it typed last, or came; in milliseconds since 1970.
    idle_since: int


class ControlState(msgspec.Struct, rename="camel", omit_defaults=True):
    """Who takes part in a process, and who drives it."""

    # Grows with every change of the driver; it survives the server for durable processes.
    epoch: int
    # The participant that this answer is for.
    you: str
    participants: list[Participant]
    # The number of the last event before this answer, and the version of the screen, if there is a
    # model of it: what has happened since then is news.
    seq: int
    version: int | None = None
    # The participant that was offered the input and has not taken it; "" means any.
    offered: str | None = None


class WatchParams(msgspec.Struct, rename="camel", omit_defaults=True):
    process_id: str
    # Chosen by the client. Later requests use it as their `processId`.
    watch_id: WatchId
    # The session of the process. Without it: this session, or else the only one of the same
    # principal that has such a process.
    session_id: str | None = None
    kind: Kind = "agent"
    name: ShownName = ""
    # The bytes that may be under way before `process/ack`. Past them a watcher of a terminal gets a
    # new picture of the screen instead of all output; one of pipes gets the retained output later.
    window: Window | None = None
    # Output after this number follows. Without it: a picture of the screen, or what is retained.
    after_seq: Count | None = None
    # False: output alone, as of pipes, and never a picture.
    pictures: bool = True
    # A watch that begins again, with the same id, has another number here; its events repeat it, so
    # that those of before can be told from those that follow the new answer.
    run: Count = 0
    # True answers with the screen and does not begin to watch.
    once: bool = False

    def __post_init__(self) -> None:
        if not fits_u64(self.after_seq, self.run):
            raise ValueError("invalid number: more than 64 bits")


class ScreenPicture(msgspec.Struct, rename="camel"):
    """Control sequences that paint a terminal exactly as it is, on a terminal that was reset."""

    data: Blob
    # It contains all output up to this number.
    seq: int
    rows: int
    cols: int
    version: int


class WatchResult(msgspec.Struct, rename="camel", omit_defaults=True):
    argv: list[str]
    tty: bool
    # Events after this number follow.
    seq: int
    control: ControlState
    # Present for a terminal, if the server has a model of its screen.
    screen: ScreenPicture | None = None
    rows: int | None = None
    cols: int | None = None


class UnwatchParams(msgspec.Struct, rename="camel"):
    watch_id: WatchId


class ControlParams(msgspec.Struct, rename="camel", omit_defaults=True):
    # The id of a process of this session, or of a watch.
    process_id: str
    action: ControlAction = "state"
    # The participant that is offered the input; without it, any may take it.
    to: str | None = None
    # The action is refused if the driver has changed since this epoch.
    epoch: Count | None = None
    # What the owner of a process is, and what it is called. A watcher has said it before.
    kind: Kind | None = None
    name: ShownName | None = None

    def __post_init__(self) -> None:
        if not fits_u64(self.epoch):
            raise ValueError("invalid number: more than 64 bits")


class WatchedEvent(msgspec.Struct, rename="camel", omit_defaults=True):
    """Something happened to a process that is watched. One of the members after `seq` says what."""

    watch_id: str
    # The number of the event in its process. Events of a watch come in order.
    seq: int
    # That of the request.
    run: int = 0
    stream: Stream | UnsetType = UNSET
    chunk: Blob | UnsetType = UNSET
    # This replaces all output so far: the watcher was too slow.
    screen: ScreenPicture | UnsetType = UNSET
    # So many bytes before this could not be retained.
    dropped_bytes: int | UnsetType = UNSET
    # The terminal has this many rows and columns now.
    size: tuple[int, int] | UnsetType = UNSET
    exited: bool | UnsetType = UNSET
    exit_code: int | UnsetType | None = UNSET
    signal: int | UnsetType = UNSET
    lost: str | UnsetType = UNSET
    sandbox_denied: bool = False
    # Why the process ended, and what it used, if its start has asked for a report.
    end: EndReport | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET
    # Nothing follows.
    closed: bool | UnsetType = UNSET


class PresenceEvent(msgspec.Struct, rename="camel"):
    """One has come, left, or typed after a pause, or the driver has changed."""

    # The id of the process in this session, or of the watch.
    process_id: str
    control: ControlState


class ControlChangedEvent(msgspec.Struct, rename="camel", omit_defaults=True):
    """Another participant drives, or this one is offered the input."""

    process_id: str
    reason: ControlReason | Literal["offered"]
    # The participant that drives now, and the one that drove before.
    driver: Participant
    control: ControlState
    previous: str | None = None


# Looks on at a process of any session of the same principal; an admin at every process.
WATCH = Method("process/watch", WatchParams, WatchResult, family="exec")
# Ends a watch. The input goes back if the watcher drives.
UNWATCH = Method("process/unwatch", UnwatchParams, Nothing, family="exec", is_control=True)
# Takes the input of a process, offers it, gives it back, or asks who has it.
CONTROL = Method("process/control", ControlParams, ControlState, family="exec", is_control=True)

# Output, a picture of the screen, a size or the end of a process that is watched.
WATCHED = Event("process/watched", WatchedEvent)
# Who looks on at a process, who drives it, and since when each is idle.
PRESENCE = Event("process/presence", PresenceEvent)
# The driver of a process has changed.
CONTROL_CHANGED = Event("process/controlChanged", ControlChangedEvent)
