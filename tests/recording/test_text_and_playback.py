"""The text of recordings, jumps, pictures; and that a replay ends in the live screen."""

from __future__ import annotations

import math
import random
import re
import shutil
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exec_server.recording import text_index
from exec_server.recording.cast_format import OUTPUT, CastEvent, CastHeader
from exec_server.recording.cast_writer import CastWriter
from exec_server.recording.export import gif_of, screen_at, svg_at, whole_text
from exec_server.recording.playback import Playback
from exec_server.recording.screen_text import ScreenText
from exec_server.recording.text_index import TextIndex, open_index
from exec_server.terminal import TerminalEngine, open_engine
from tests.requirements import requirement
from tests.support.casts import COLUMNS, ROWS, program_output, write_cast
from tests.support.terminal_output import session


def found(path: Path, regex: str, flags: int = 0) -> list[tuple[float, int, str]]:
    with open_index(path) as index:
        return [(seen.time, seen.row, seen.text) for seen in index.find(re.compile(regex, flags))]


def state(engine: TerminalEngine) -> tuple[object, ...]:
    return engine.cells(), engine.cursor, engine.title, engine.is_alternate


# Text.


@pytest.mark.parametrize("columns", [80, 300, 500])
def test_no_line_of_a_flood_on_a_wide_terminal_is_missed(columns):
    followed = ScreenText(columns, 50)
    seen: set[str] = set()
    for number in range(20):
        lines = "".join(f"line {n}\r\n" for n in range(number * 500, number * 500 + 500))
        event = CastEvent(0.01 * number, OUTPUT, lines)
        seen.update(line.text for line in followed.feed(event))
    seen.update(line.text for line in followed.look())
    assert {f"line {n}" for n in range(10_000)} <= seen
    followed.close()


@requirement("recording:index")
def test_text_is_found_with_its_time_and_row(tmp_path):
    chunks = [
        b"$ ls\r\nfile one\r\n",
        b"\x1b[?1049h\x1b[2J\x1b[5;3Hon\x1b[31mly\x1b[m here\x1b[?1049l",
        b"$ \x1b[1mdone\x1b[m 50%\r$ done 99%\r\n",
    ]
    path = write_cast(tmp_path / "a.cast", chunks)
    assert found(path, "file one") == [(0.0, 1, "file one")]
    # It was drawn in parts, and erased in the same chunk.
    assert found(path, r"only here$") == [(1.0, 4, "  only here")]
    assert found(path, r"^\$ done") == [(2.0, 2, "$ done 99%")]
    assert found(path, "FILE", re.IGNORECASE) == [(0.0, 1, "file one")]
    assert found(path, "absent") == []


@requirement("recording:index")
def test_everything_that_scrolls_by_is_found_once(tmp_path):
    lines = [f"line {number:05} of many" for number in range(3000)]
    data = "\r\n".join(lines).encode() + b"\r\n"
    chunks = [data[n : n + 7777] for n in range(0, len(data), 7777)]
    path = write_cast(tmp_path / "a.cast", chunks, step=0.001)
    seen = [text for _, _, text in found(path, r"line \d+ of many$")]
    assert seen == lines
    # Rows of many widths, more than the engine keeps.
    for columns in (20, 300):
        words = [f"{number:06}" + "y" * (columns - 6) for number in range(900)]
        header = CastHeader(columns=columns, rows=ROWS)
        path = write_cast(tmp_path / f"{columns}.cast", ["".join(words).encode()], header=header)
        whole = "".join(text for _, _, text in found(path, "."))
        assert all(word[:6] in whole for word in words)
    long = "x" * 100 + " the end of a long text"
    path = write_cast(tmp_path / "b.cast", [long.encode()])
    assert [text for _, _, text in found(path, "x the end")] == [long]


@requirement("recording:index")
def test_text_beyond_ascii_and_patterns_that_could_match_line_ends(tmp_path):
    path = write_cast(tmp_path / "a.cast", ["naïve 漢字\r\nplain\r\n".encode()])
    assert [text for _, _, text in found(path, r"na\wve")] == ["naïve 漢字"]
    path = write_cast(tmp_path / "b.cast", [b"one\r\ntwo\r\nthree\r\n"])
    assert [text for _, _, text in found(path, r"o[^x]*")] == ["one", "two"]
    assert [text for _, _, text in found(path, r"e\s*t")] == []
    assert len(found(path, "")) == 3


@requirement("recording:index", "recording:private")
def test_the_index_is_made_once_and_again_when_the_recording_has_grown(tmp_path):
    writer = CastWriter(tmp_path / "a.cast", CastHeader())
    writer.output(0.0, b"first\r\n")
    path = Path(writer.path)
    assert found(path, "first") and not found(path, "second")
    beside = tmp_path / "a.cast.index"
    made = beside.stat()
    assert stat.S_IMODE(made.st_mode) == 0o600
    assert found(path, "first")
    assert beside.stat().st_ino == made.st_ino
    writer.output(1.0, b"second\r\n")
    writer.close(1.0)
    assert found(path, "second")
    beside.write_bytes(b"broken")
    assert found(path, "second")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.cast", "a.cast.index"]


def _plant(path: Path, **changes: Any) -> None:
    """Put an index beside *path* whose description was changed; a sparse end makes it large."""
    with open_index(path) as index:
        parts = index.parts
    beside = path.with_name(path.name + ".index")
    data = beside.read_bytes()
    length = int.from_bytes(data[-8:], "little")
    body = data[: len(data) - 8 - length]
    encoded = msgspec.msgpack.encode(msgspec.structs.replace(parts, **changes))
    with beside.open("wb") as file:
        file.write(body)
        file.truncate(64 << 20)
        file.seek(64 << 20)
        file.write(encoded + len(encoded).to_bytes(8, "little"))


@requirement("recording:index")
@pytest.mark.parametrize(
    "changes",
    [
        {"keyframes": [text_index.Keyframe(0.0, 100, 80, 24, 1000, 1 << 40)]},
        {"keyframes": [text_index.Keyframe(0.0, 100, 80, 24, 1000, 32 << 20)]},
        {"keyframes": [text_index.Keyframe(0.0, 100, 80, 24, -5, 10)]},
        {"keyframes": [text_index.Keyframe(0.0, 1 << 40, 80, 24, 1000, 10)]},
        {"keyframes": [text_index.Keyframe(0.0, 100, 0, -3, 1000, 10)]},
        {"lines": 1 << 60},
        {"lines": -1},
        {"text_bytes": 1 << 50},
        {"text_bytes": -1},
        {"duration": math.nan},
        {"duration": math.inf},
        {"duration": -1.0},
    ],
    ids=str,
)
def test_an_index_that_was_planted_is_made_again(changes, tmp_path):
    path = write_cast(tmp_path / "a.cast", [b"first\r\n", b"second\r\n"])
    _plant(path, **changes)
    assert text_index.made_index(path) is None
    assert found(path, "second")
    with open_index(path) as index, Playback(path, index) as playback:
        playback.seek(0.5)
        assert "first" in str(state(playback.engine))
    assert path.with_name("a.cast.index").stat().st_size < 10_000


@requirement("recording:index")
def test_fewer_lines_than_an_index_says_are_no_endless_list(tmp_path):
    path = write_cast(tmp_path / "a.cast", ["é first\r\n".encode()])
    _plant(path, lines=1000, keyframes=[])
    with open_index(path) as index:
        assert [seen.text for seen in index.lines()] == ["é first"]


@requirement("recording:index")
@pytest.mark.parametrize(
    "line", [b"\x1b]52;c;eA==\x07 first", b"\xff first", "\x9b31m first".encode()]
)
@pytest.mark.parametrize("is_ascii", [True, False])
def test_the_text_of_a_planted_index_controls_no_terminal(line, is_ascii, tmp_path):
    path = write_cast(tmp_path / "a.cast", [b"first\r\n".rjust(len(line) + 2)])
    with open_index(path) as index:
        size = index.parts.text_bytes
    beside = path.with_name("a.cast.index")
    text = line.rjust(size - 1)[: size - 1] + b"\n"
    beside.write_bytes(text + beside.read_bytes()[size:])
    _plant(path, is_ascii=is_ascii, keyframes=[])
    with open_index(path) as index:
        seen = [each.text for each in index.find(re.compile("first"))]
        assert seen == [each.text for each in index.lines()] and len(seen) == 1
        assert seen[0].isprintable()


# Jumps.


def _with_keyframes(tmp_path: Path) -> Path:
    choose = random.Random(5)
    writer = CastWriter(tmp_path / "long.cast", CastHeader(columns=COLUMNS, rows=ROWS))
    moment = 0.0
    while writer.size < 200 << 10:
        moment += choose.random()
        data = session(choose.randrange(50), ROWS, COLUMNS)
        start = choose.randrange(len(data))
        writer.output(moment, data[start:])
        if choose.random() < 0.05:
            writer.resized(moment, choose.randrange(60, 100), choose.randrange(20, 30))
    writer.close(moment)
    return tmp_path / "long.cast"


@requirement("recording:seek")
def test_jumps_show_the_screen_of_the_moment(tmp_path, monkeypatch):
    monkeypatch.setattr(text_index, "_KEYFRAME_BYTES", 50_000)
    path = _with_keyframes(tmp_path)
    choose = random.Random(6)
    with open_index(path) as index:
        assert len(index.parts.keyframes) >= 2
        moments = [choose.random() * index.duration for _ in range(8)]
        moments += [index.parts.keyframes[1].time, index.duration, 0.0]
        with Playback(path, index) as jumping:
            for moment in moments:
                jumping.seek(moment)
                with Playback(path) as straight:
                    straight.seek(moment)
                    assert state(jumping.engine) == state(straight.engine)
                    assert jumping.time == straight.time or moment == 0.0


@requirement("recording:export")
def test_exports(tmp_path):
    path = write_cast(
        tmp_path / "a.cast", [b"one\r\n", b"\x1b[32mtwo\x1b[m\r\n", b"\x1b[2J\x1b[Hlast"]
    )
    with open_index(path) as index:
        assert list(whole_text(index)) == ["one\n", "two\n", "last\n"]
        assert screen_at(path, index, 1.5) == "one\ntwo\n"
        assert b">last<" in svg_at(path, index, index.duration)
        assert b">two<" in svg_at(path, index, 1.0)
    pytest.importorskip("PIL")
    from PIL import Image

    (tmp_path / "a.gif").write_bytes(gif_of(path))
    with Image.open(tmp_path / "a.gif") as picture:
        assert getattr(picture, "n_frames", 1) >= 3


# Real programs.

PROGRAMS = {
    "vim": (
        ["vim", "-u", "NONE", "-N", "FILE"],
        [(b"line 7", b"/line 40\r"), (b"line 40", b"ihello \x1b"), (b"hello", b":q!\r")],
    ),
    "less": (["less", "FILE"], [(b"line 7", b"/line 44\r"), (b"line 44", b"q")]),
    "htop": (["htop"], [(b"Quit", b"q")]),
}


@requirement("recording:screen", "recording:index")
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_replay_ends_in_the_live_screen(name, tmp_path):
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    text = tmp_path / "text"
    text.write_text("".join(f"line {number} ünïcode\n" for number in range(60)))
    words, keys = PROGRAMS[name]
    argv = [word.replace("FILE", str(text)) for word in words]
    chunks = program_output(argv, keys, home=tmp_path)
    path = write_cast(tmp_path / "a.cast", chunks, step=0.01)
    live = open_engine(COLUMNS, ROWS)
    with Playback(path) as playback:
        for number, chunk in enumerate(chunks):
            live.feed(chunk)
            playback.seek(number * 0.01 + 0.005)
            is_whole = not any(byte >= 0x80 for byte in chunk[-3:])
            if is_whole and chunk[-1:] not in b"e":
                assert state(playback.engine) == state(live)
        playback.seek(1e9)
        assert state(playback.engine) == state(live)
    live.close()
    if name == "vim":
        # This was on the alternate screen only.
        assert found(path, "hello line 40 ünïcode")


def test_what_is_no_index_is_refused(tmp_path):
    for data in (b"x", b"x" * 100, b"\xff" * 100):
        (tmp_path / "x").write_bytes(data)
        with open(tmp_path / "x", "rb") as file, pytest.raises(ValueError):
            TextIndex(file)
