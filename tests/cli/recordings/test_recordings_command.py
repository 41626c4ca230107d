"""`exec-server recordings` and `exec-server replay`."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from exec_server.cli.recordings.recordings_command import recordings_command
from exec_server.cli.recordings.replay_command import replay_command
from exec_server.recording.cast_format import CastHeader
from tests.requirements import requirement
from tests.support.casts import write_cast
from tests.support.cli import Finished, MakeTerminal

pytestmark = [pytest.mark.one_loop, pytest.mark.usefixtures("home")]

CHUNKS = [
    b"$ make\r\nall is fin\r\n",
    b"\x1b[?1049h\x1b[2J\x1b[5;3Honly in vim\x1b[?1049l",
    b"last row\r\n",
]


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Finished]:
    """Runs a command in this process."""

    def run(command: Callable[[list[str]], int], *words: str) -> Finished:
        try:
            status = command(list(words))
        except SystemExit as exc:
            status = int(exc.code or 0)
        return Finished(status, *capfdbinary.readouterr())

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "casts"
    folder.mkdir()
    header = CastHeader(columns=80, rows=24, started=1_700_000_000.0, command="bash", owner="eve")
    write_cast(folder / "20260101T000000-bash.cast", CHUNKS, header=header)
    write_cast(folder / "20260102T000000-sh.cast", [b"other text\r\n"])
    (folder / "20260103T000000-broken.cast").write_text("not a recording\n")
    return folder


@requirement("cli/recordings")
def test_list_and_find(folder, run):
    done = run(recordings_command, "--dir", str(folder))
    lines = done.stdout.decode().splitlines()
    assert [line.split()[0] for line in lines] == [
        "NAME",
        "20260102T000000-sh",
        "20260101T000000-bash",
    ]
    assert "eve" in lines[2] and "bash" in lines[2]
    done = run(recordings_command, "list", "-o", "json", "--dir", str(folder))
    assert [each["owner"] for each in json.loads(done.stdout)] == [None, "eve"]
    done = run(recordings_command, "--dir", str(folder), "find", "only in v.m")
    assert done.status == 0
    assert done.stdout.decode().splitlines()[1].split(None, 3) == [
        "20260101T000000-bash",
        "0:01.000",
        "5",
        "only in vim",
    ]
    words = ("find", "-i", "-o", "json", "OTHER|last")
    done = run(recordings_command, "--dir", str(folder), *words)
    facts = [
        (each["recording"][-4:], each["time"], each["row"]) for each in json.loads(done.stdout)
    ]
    assert facts == [("0-sh", 0.0, 1), ("bash", 2.0, 3)]
    done = run(recordings_command, "--dir", str(folder), "find", "absent")
    assert done.status == 1 and "is in none of 2 recordings" in done.stderr


@requirement("cli/recordings")
def test_wrong_words_are_told(folder, run):
    for words, status, text in [
        (("find", "("), 2, "<REGEX>"),
        (("find",), 2, "<REGEX>"),
        (("export",), 2, "NAME"),
        (("list", "x"), 2, "unexpected"),
        (("open", "absent"), 1, "there is no recording `absent`"),
        (("find", "x", str(folder / "20260103T000000-broken.cast")), 1, "not an asciicast"),
    ]:
        done = run(recordings_command, "--dir", str(folder), *words)
        assert (done.status, text in done.stderr) == (status, True), (words, done.stderr)
    done = run(replay_command, str(folder / "20260103T000000-broken.cast"))
    assert done.status == 1 and "not an asciicast" in done.stderr


@requirement("recording:export", "cli/replay:print")
def test_exports_and_printing(folder, tmp_path, run):
    name = ("--dir", str(folder), "export", "20260101")
    done = run(recordings_command, *name)
    assert done.stdout.decode().split("\n")[:3] == ["$ make", "all is fin", "  only in vim"]
    target = tmp_path / "x.svg"
    done = run(recordings_command, *name, "--format", "svg", "--to", str(target))
    assert done.status == 0 and target.read_bytes().startswith(b"<svg")
    done = run(recordings_command, *name, "--format", "v2")
    assert json.loads(done.stdout.splitlines()[0])["version"] == 2
    done = run(replay_command, str(folder / "20260101T000000-bash.cast"))
    assert done.stdout == b"".join(CHUNKS)
    done = run(replay_command, "--dir", str(folder), "--at", "0:00.5", "20260101")
    assert done.stdout == b"$ make\nall is fin\n"


@requirement("cli/replay:keys")
async def test_keys(folder, terminal: MakeTerminal):
    screen = terminal("replay", "--paused", str(folder / "20260101T000000-bash.cast"))
    await screen.until(b"paused  0:00.000 / 0:03.000")
    assert screen.is_raw
    screen.type(b"/only in\r")
    await screen.until(b"match 1 of 1, row 5")
    screen.type(b"n")
    await screen.until(b"no more matches")
    screen.type(b"g")
    await screen.until(b"paused  0:00.000")
    screen.type(b".")
    await screen.until(b"only in vim")
    screen.type(b"G")
    await screen.until(b"last row")
    screen.type(b"/(\r")
    await screen.until(b"no regular expression")
    screen.type(b"?")
    await screen.until(b"q quit")
    screen.type(b"+")
    await screen.until(b"2x")
    screen.type(b"q")
    assert await screen.status() == 0
    assert screen.attributes == screen.before


@requirement("cli/replay:keys")
@pytest.mark.parametrize("way", ["ctrl-c", "SIGTERM", "end"])
async def test_the_terminal_is_restored(way, tmp_path, terminal: MakeTerminal):
    chunks = [b"\x1b[?1049h\x1b[?25l\x1b[?1000h\x1b[6n now it is", b"shown\x1b[?2004h", b"!"]
    path = write_cast(tmp_path / "a.cast", chunks, step=0.01 if way == "end" else 1000)
    screen = terminal("replay", str(path))
    await screen.until(b"now it is")
    if way == "ctrl-c":
        screen.type(b"\x03")
    elif way == "SIGTERM":
        screen.process.send_signal(signal.SIGTERM)
    status = {"ctrl-c": 130, "SIGTERM": 143, "end": 0}[way]
    assert await screen.status() == status
    assert screen.attributes == screen.before
    assert b"\x1b[6n" not in screen.all
    for sequence in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l"):
        assert sequence in screen.all


@requirement("cli/replay:harmless")
async def test_a_recording_reaches_nothing_but_the_screen(tmp_path, terminal: MakeTerminal):
    chunks = [
        b"\x1b]52;c;",
        b"eA==",
        b"\x07begin\x1b[8;9;9t\x1bP1;1|17/6c73\x1b\\",
        b" the end\r\n",
    ]
    screen = terminal("replay", str(write_cast(tmp_path / "a.cast", chunks, step=0.01)))
    assert await screen.status() == 0
    assert b"begin the end" in screen.all
    for sequence in (b"\x1b]52", b"eA==", b"\x1b[8;9;9t", b"6c73"):
        assert sequence not in screen.all
