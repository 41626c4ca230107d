"""`run --max-output`: the beginning and the end of a long output, and what was dropped."""

from __future__ import annotations

import json

import pytest

from exec_server.cli.process.own_terminal.shortened_output import ShortenedOutput
from exec_server.cli.process.run_options import byte_count, parse_run
from tests.requirements import requirement
from tests.support.cli import finished

pytestmark = pytest.mark.usefixtures("no_leaks")

RUN = ("run", "--no-stdin")


def sh(script: str) -> tuple[str, ...]:
    return "--", "sh", "-c", script


@requirement("cli/run:max-output")
async def test_the_beginning_and_the_end_are_shown_with_what_is_missing(server):
    done = await finished(*RUN, "--max-output=20", server.url, *sh("seq 100000; echo err >&2"))
    line = b"[... 588875 bytes of output are missing here ...]\n"
    assert done.stdout == b"1\n2\n3\n4\n5\n" + line + b"99\n100000\n"
    assert (done.status, done.stderr) == (0, "err\n")


@requirement("cli/run:max-output")
async def test_an_output_that_fits_is_shown_as_it_is(server):
    done = await finished(*RUN, "--max-output", "1K", server.url, *sh("printf abc; printf d >&2"))
    assert (done.stdout, done.stderr) == (b"abc", "d")


@requirement("cli/run:max-output")
async def test_json_tells_what_is_missing(server):
    done = await finished(
        *RUN, "-o", "json", "--max-output=20", server.url, *sh("seq 100000; kill -TERM $$")
    )
    facts = json.loads(done.stdout)
    assert (facts["exitCode"], facts["signal"]) == (143, "SIGTERM")
    assert (facts["truncated"], facts["droppedBytes"]) == (True, 588875)
    lines = facts["stdout"].splitlines()
    assert lines[0] == "1" and lines[-1] == "100000"
    assert "[... 588875 bytes of output are missing here ...]" in lines


@requirement("cli/run:max-output", "cli/run:timeout")
async def test_a_timeout_shows_the_end_so_far(server):
    script = "seq 1000; exec sleep 300"
    done = await finished(*RUN, "--max-output=20", "--timeout=3", server.url, *sh(script))
    assert done.status == 124
    assert done.stdout.startswith(b"1\n2\n") and done.stdout.endswith(b"\n999\n1000\n")


@requirement("cli/run:max-output")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--max-output=x"], "invalid value 'x'"),
        (["--max-output=-1"], "invalid value '-1'"),
        (["--max-output=1T"], "such as 500, 64K or 10M"),
        (["--max-output=1", "--tty"], "'--max-output <BYTES>' cannot be used with '--tty'"),
        (["--max-output=1", "-d"], "'--max-output <BYTES>' cannot be used with '--detach'"),
    ],
)
def test_wrong_options_are_refused(capsys, words, said):
    with pytest.raises(SystemExit) as caught:
        parse_run([*words, "ws://127.0.0.1:1", "--", "true"])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


@requirement("cli/run:max-output")
def test_sizes_have_units():
    sizes = [byte_count(text) for text in ("0", "500", "2K", "2k", "3M", "1G")]
    assert sizes == [0, 500, 2048, 2048, 3 << 20, 1 << 30]


@requirement("cli/run:max-output")
@pytest.mark.parametrize("limit", range(8))
@pytest.mark.parametrize("size", range(10))
def test_every_byte_is_shown_once_or_counted(limit, size):
    data = bytes(range(97, 97 + size))
    short = ShortenedOutput(limit)
    shown = b"".join(short.show(data[n : n + 3]) for n in range(0, size, 3)) + short.rest()
    if size <= limit:
        assert shown == data
        return
    head, tail = limit - limit // 2, limit // 2
    line = b"[... %d bytes of output are missing here ...]\n" % (size - limit)
    newline = b"\n" if head else b""
    assert shown == data[:head] + newline + line + data[size - tail :]
