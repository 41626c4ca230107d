"""The screen of a terminal as data, and waiting for what it shows. All of it is ours."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from exec_server.protocol.method import Method
from exec_server.protocol.numbers import Count, fits_u64

# A colour of the palette, or "#rrggbb".
ScreenColor = int | str
ShortText = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
HistoryRows = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
ConditionKind = Literal["text", "regex", "gone", "still", "prompt", "exit"]
CommandState = Literal["none", "running", "done", "unconfirmed"]


class ScreenSpan(msgspec.Struct, rename="camel", omit_defaults=True):
    """Neighbouring cells of one style."""

    text: str
    # How many columns it covers; a wide character covers two.
    columns: int
    foreground: ScreenColor | None = None
    background: ScreenColor | None = None
    underline_color: ScreenColor | None = None
    bold: bool = False
    faint: bool = False
    italic: bool = False
    # 1 single, 2 double, 3 curly, 4 dotted, 5 dashed.
    underline: int = 0
    blink: bool = False
    inverse: bool = False
    invisible: bool = False
    strikethrough: bool = False
    overline: bool = False
    # The target of a hyperlink.
    link: str | None = None


class ScreenRow(msgspec.Struct, rename="camel", omit_defaults=True):
    # Counted from 0 at the top of the screen.
    row: int
    text: str = ""
    # With `cells`: the same with styles.
    spans: list[ScreenSpan] | UnsetType = UNSET
    # True if the line goes on in the next row.
    wrapped: bool = False


class CursorPlace(msgspec.Struct, rename="camel", omit_defaults=True):
    # Counted from 0.
    row: int
    column: int
    visible: bool = True
    shape: Literal["block", "underline", "bar"] = "block"
    blinking: bool = False


class KeyModesInForce(msgspec.Struct, rename="camel", omit_defaults=True):
    """The modes that change what keys send."""

    cursor_application: bool = False
    backarrow: bool = False
    kitty_flags: int = 0


class LastCommand(msgspec.Struct, rename="camel", omit_defaults=True):
    """What a shell with integration said of its last command (OSC 133)."""

    # "none" if there was none yet. "unconfirmed" if something was entered at the prompt, and the
    # shell said nothing of it: its hooks are gone.
    state: CommandState
    command: str | None = None
    cwd: str | None = None
    exit_code: int | None = None
    # What it printed, as rows of text; the newest if it was very much.
    output: str = ""
    truncated: bool = False


class ScreenParams(msgspec.Struct, rename="camel", omit_defaults=True):
    process_id: str
    # Only the rows that changed after this version; all of them if that is not known any more.
    since: Count | None = None
    # Rows with styles, not only their text.
    cells: bool = False
    # The newest so many rows above the screen, as text.
    history: HistoryRows = 0
    # The last command of a shell with integration.
    command: bool = False
    # False leaves the rows out.
    lines: bool = True
    # The screen as it was after the event with this number, as far as output is retained.
    at: Count | None = None

    def __post_init__(self) -> None:
        if not fits_u64(self.at):
            raise ValueError("invalid number: more than 64 bits")
        if self.at is not None and self.since is not None:
            raise ValueError("`at` and `since` exclude one another")


class ScreenResult(msgspec.Struct, rename="camel", omit_defaults=True):
    # Grows with every change; `process/screen` and `process/waitFor` take it.
    version: int
    lines: list[ScreenRow]
    cursor: CursorPlace
    # False if `lines` has only the rows that changed. Then size, title, engine and key modes are
    # there only if they changed.
    full: bool = False
    rows: int | UnsetType = UNSET
    columns: int | UnsetType = UNSET
    title: str | UnsetType = UNSET
    # True while the alternate screen is shown, as by an editor.
    alternate: bool = False
    # True if output was missed, because it came too fast, or was not kept until the model was made.
    inexact: bool = False
    # How often the model was made again, because its process had ended.
    rebuilt: int = 0
    engine: str | UnsetType = UNSET
    key_modes: KeyModesInForce | UnsetType = UNSET
    history: list[str] | UnsetType = UNSET
    command: LastCommand | UnsetType = UNSET


class WaitCondition(msgspec.Struct, rename="camel", omit_defaults=True):
    kind: ConditionKind
    # For "text" and "gone".
    text: ShortText | None = None
    # For "regex", in the syntax of Python; ^ and $ match at rows.
    pattern: Pattern | None = None
    # For "still": so many milliseconds without output.
    ms: Count | None = None

    def __post_init__(self) -> None:
        needed = {"text": self.text, "gone": self.text, "regex": self.pattern, "still": self.ms}
        if needed.get(self.kind, True) is None:
            raise ValueError(f"the condition `{self.kind}` lacks its value")
        if not fits_u64(self.ms):
            raise ValueError("invalid number: more than 64 bits")


Conditions = Annotated[list[WaitCondition], msgspec.Meta(min_length=1, max_length=16)]


class WaitForParams(msgspec.Struct, rename="camel", omit_defaults=True):
    process_id: str
    # The first one that holds ends the wait.
    conditions: Conditions
    timeout_ms: Count | None = None
    # Text that was already there at this version does not count, nor does an earlier prompt.
    after: Count | None = None

    def __post_init__(self) -> None:
        if not fits_u64(self.timeout_ms, self.after):
            raise ValueError("invalid number: more than 64 bits")


class WaitForResult(msgspec.Struct, rename="camel", omit_defaults=True):
    version: int
    # The condition that held, by its place in the list; None if the time was over.
    matched: int | None = None
    kind: ConditionKind | None = None
    # What was found, and where on the screen, if it is still there.
    text: str | None = None
    row: int | None = None
    column: int | None = None
    exit_code: int | None = None
    inexact: bool = False


# Returns what a terminal shows: rows, cursor, title; or what changed since a version.
SCREEN = Method("process/screen", ScreenParams, ScreenResult, family="exec")
# Waits until a terminal shows something, shows it no more, is still, or its program has ended.
WAIT_FOR = Method("process/waitFor", WaitForParams, WaitForResult, family="exec")
