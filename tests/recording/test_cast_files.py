"""Writing and reading recordings."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from exec_server.recording.cast_format import CastError, CastHeader, decode_event, decode_header
from exec_server.recording.cast_reader import CastReader
from exec_server.recording.cast_writer import PAGE, CastWriter
from exec_server.recording.export import converted
from tests.requirements import requirement
from tests.support.casts import events, output, program_output, write_cast
from tests.support.terminal_output import session
from tests.support.tiny_disk import tiny_disk


@requirement("recording:format")
@pytest.mark.parametrize("version", [2, 3])
def test_what_is_read_is_what_was_written(version, tmp_path):
    header = CastHeader(
        version=version, columns=90, rows=30, started=5.0, command="a b", term="xterm", owner="eve"
    )
    writer = CastWriter(tmp_path / "a.cast", header)
    writer.output(0.5, b"one\r\n")
    writer.resized(1.0, 100, 40)
    writer.mark(1.25, "eve drives")
    writer.output(2.0, b"two")
    writer.exited(3.0, 7)
    writer.close(3.0)
    reader = CastReader(tmp_path / "a.cast")
    assert reader.header == header
    found = [tuple(event) for event in events(tmp_path / "a.cast")]
    wanted = [
        (0.5, "o", "one\r\n"),
        (1.0, "r", "100x40"),
        (1.25, "m", "eve drives"),
        (2.0, "o", "two"),
        (3.0, "x", "7"),
    ]
    assert found == (wanted if version == 3 else wanted[:-1])
    assert reader.duration() == found[-1][0]
    lines = (tmp_path / "a.cast").read_text().splitlines()
    times = [json.loads(line)[0] for line in lines[1:]]
    assert times[:3] == ([0.5, 0.5, 0.25] if version == 3 else [0.5, 1.0, 1.25])


@requirement("recording:format")
def test_characters_that_are_split_and_bytes_that_are_none(tmp_path):
    data = "漢字 é 😀".encode() + b"\xff\x80ok"
    path = write_cast(tmp_path / "a.cast", [data[n : n + 1] for n in range(len(data))])
    assert output(path) == data.decode("utf-8", "replace")


@requirement("recording:format")
def test_times_do_not_drift(tmp_path):
    path = write_cast(tmp_path / "a.cast", [b"x"] * 3000, step=1 / 3)
    assert abs(events(path)[-1].time - 1000) < 1e-5


@requirement("recording:whole-lines", "recording:format")
def test_no_line_crosses_the_end_of_a_page(tmp_path):
    choose = random.Random(3)
    text = "".join(choose.choice('ab\\"\x1b\x00\n\t é漢😀') for _ in range(40_000))
    sizes = [choose.choice((1, 7, 300, 5000)) for _ in range(60)]
    chunks, start = [], 0
    for size in sizes:
        chunks.append(text[start : start + size].encode())
        start += size
    path = write_cast(tmp_path / "a.cast", chunks, step=0.001)
    data = path.read_bytes()
    for end in range(PAGE, len(data), PAGE):
        assert data[end - 1 : end] == b"\n"
        assert all(json.loads(line) for line in data[:end].splitlines())
    assert output(path) == text[:start]


@requirement("recording:whole-lines", "recording:format")
def test_a_flood_fills_pages_wherever_it_begins(tmp_path):
    text = 'ab\\\\"\x1b[1m\n\ré漢😀' * 1500
    for shift in range(40):
        path = write_cast(tmp_path / f"{shift}.cast", [b"x" * (shift + 1), text.encode()])
        data = path.read_bytes()
        ends = range(PAGE, len(data), PAGE)
        assert len(ends) > 5 and all(data[end - 1 : end] == b"\n" for end in ends)
        assert output(path) == "x" * (shift + 1) + text


_WRITES = """
import sys, os
from exec_server.recording.cast_format import CastHeader
from exec_server.recording.cast_writer import CastWriter
writer = CastWriter(sys.argv[1], CastHeader())
print("ready", flush=True)
number = 0
while writer.size < 200 << 20:
    writer.output(number / 1000, b"\\x1b[31mline %d\\x1b[m \\r\\n" % number * (number % 4000))
    number += 1
"""


@requirement("recording:whole-lines")
def test_it_is_valid_after_kill_at_any_moment(tmp_path):
    for number in range(6):
        path = tmp_path / f"{number}.cast"
        words = [sys.executable, "-c", _WRITES, str(path)]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as writing:
            assert writing.stdout is not None and writing.stdout.readline() == b"ready\n"
            while path.stat().st_size < 100_000 * (number + 1):
                assert writing.poll() is None
            writing.send_signal(signal.SIGKILL)
        data = path.read_bytes()
        assert data.endswith(b"\n")
        for line in data.splitlines():
            json.loads(line)


@requirement("recording:cut")
def test_a_full_disk_leaves_whole_lines(tmp_path):
    with tiny_disk(64 << 10, tmp_path / "disk") as disk:
        writer = CastWriter(disk / "a.cast", CastHeader())
        with pytest.raises(OSError, match="space"):
            for number in range(100):
                writer.output(float(number), b"0123456789abcde\n" * 256)
        try:
            writer.close(100.0)
        except OSError:
            pass
        data = (disk / "a.cast").read_bytes()
        assert len(data) > 30_000 and data.endswith(b"\n")
        assert all(json.loads(line) for line in data.splitlines())


@requirement("recording:cut")
def test_a_cut_recording_is_read_up_to_there(tmp_path):
    path = write_cast(tmp_path / "a.cast", [b"un ", b"deux ", b"trois"])
    data = path.read_bytes()
    for end in range(data.index(b"\n") + 1, len(data)):
        path.write_bytes(data[:end])
        assert "un deux trois".startswith(output(path))
    path.write_bytes(data.replace(b'"deux "', b'"deux '))
    with pytest.raises(CastError, match="not an event"):
        events(path)


@requirement("recording:private")
def test_it_is_private_and_replaces_nothing(tmp_path):
    before = os.umask(0)
    try:
        path = write_cast(tmp_path / "a.cast", [b"x"])
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        CastWriter(path, CastHeader())


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b'{"version":1}',
        b'{"version":3}',
        b'{"version":3,"term":{"cols":0,"rows":2}}',
        b'{"version":2,"width":"a","height":2}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_what_is_no_header_is_refused(line):
    with pytest.raises(CastError):
        decode_header(line)


@pytest.mark.parametrize("line", [b"{}", b"[1]", b'[-1,"o",""]', b'[1,2,"x"]', b"[" * 100_000])
def test_what_is_no_event_is_refused(line):
    with pytest.raises(CastError):
        decode_event(line)


@requirement("recording:secrets")
def test_secrets_are_not_in_the_header_or_in_marks(tmp_path):
    header = CastHeader(command="login hunter2hunter2", title="hunter2hunter2", owner="eve")
    writer = CastWriter(tmp_path / "a.cast", header, secrets=["hunter2hunter2"])
    writer.mark(1.0, "hunter2hunter2 drives")
    writer.output(1.0, b"hunter2")
    writer.resized(1.0, 70, 20)
    writer.output(2.0, b"hunter2\r\n")
    writer.close(3.0)
    assert b"hunter2" not in (tmp_path / "a.cast").read_bytes()


@requirement("recording:format", "recording:export")
def test_asciinema_takes_version_2(tmp_path):
    asciinema = shutil.which("asciinema")
    if asciinema is None:
        pytest.skip("asciinema is not installed")
    data = session(1, 24, 80)
    three = write_cast(tmp_path / "3.cast", [data[n : n + 997] for n in range(0, len(data), 997)])
    two = tmp_path / "2.cast"
    two.write_bytes(b"".join(converted(three, 2)))
    direct = write_cast(tmp_path / "direct.cast", [data], header=CastHeader(version=2))
    for path in (two, direct):
        # It wants a terminal, which adds returns.
        shown = b"".join(program_output([asciinema, "cat", str(path)], [], home=tmp_path))
        assert re.sub(rb"\r+\n", b"\n", shown) == re.sub(rb"\r+\n", b"\n", data)


@requirement("recording:export")
def test_conversion_there_and_back(tmp_path):
    three = write_cast(tmp_path / "3.cast", [b"a", b"b" * 9000, b"c"], step=0.1)
    two, again = tmp_path / "2.cast", tmp_path / "again.cast"
    two.write_bytes(b"".join(converted(three, 2)))
    again.write_bytes(b"".join(converted(two, 3)))

    def facts(path: Path) -> list[tuple[float, str, str]]:
        return [(round(e.time, 5), e.code, e.data) for e in events(path) if e.code != "x"]

    assert facts(three) == facts(two) == facts(again)
