"""Lines of a log: with `--log-format json` every one of them is an object."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from exec_server.cli.log_setup import JsonFormatter, TextFormatter
from tests.requirements import requirement
from tests.support import cli

PROGRAM = """
import logging, threading, warnings
from exec_server.cli import log_setup

class Broken:
    def __del__(self):
        raise OSError("in vain")

log_setup.configure("info", "json")
logging.getLogger("x").info("two\\nlines \\udc80")
logging.getLogger("x").info("%d", "no number")
warnings.warn("old", stacklevel=1)
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
del thread
Broken()
raise KeyError("the end")
"""


def objects(text):
    assert text.endswith("\n")
    return [json.loads(line) for line in text[:-1].split("\n")]


@requirement("hub/logs:json")
def test_whatever_python_says_is_a_line_of_json():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=False
    )
    lines = objects(done.stderr)
    assert lines[0]["message"] == "two\nlines \\udc80"
    assert "no number" not in lines[1]["message"] and "%d" in lines[1]["message"]
    assert "UserWarning: old" in lines[2]["message"]
    assert "ZeroDivisionError" in lines[3]["traceback"]
    assert "OSError: in vain" in lines[4]["traceback"]
    assert "KeyError: 'the end'" in lines[5]["traceback"]
    assert len(lines) == 6 and done.returncode == 1


@requirement("hub/logs:json")
def test_times_are_those_of_greenwich():
    record = logging.LogRecord("x", logging.INFO, "", 0, "hello", None, None)
    record.created = 1_700_000_000.5
    moment = json.loads(JsonFormatter().format(record))["time"]
    assert moment == "2023-11-14T22:13:20.500Z"
    assert datetime.fromisoformat(moment).astimezone(UTC).timestamp() == record.created


@requirement("hub/logs:json")
@pytest.mark.one_loop
async def test_the_life_of_a_registry_in_json(tmp_path):
    words = ("registry", "--state", str(tmp_path / "state"), "--log-format", "json")
    async with cli.running(*words, "--log-level", "debug") as process:
        assert (await cli.line(process)).startswith(b"http://")
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            _, stderr = await process.communicate()
    lines = objects(stderr.decode())
    assert any("there are no tokens yet" in line["message"] for line in lines)
    assert process.returncode == 0
    refused = await cli.finished(*words, "--listen", "ws://0.0.0.0:0")
    (line,) = objects(refused.stderr)
    assert (line["level"], refused.status) == ("critical", 1)
    assert "--tls-cert" in line["message"]


FORGED = "x\n2026-01-01 00:00:00,000 INFO exec_server: forged\r\x1b[2J\u202e\u2028 \udc80"


def lines_of(*, exc=None, message="name %s", args=(FORGED,)):
    info = (type(exc), exc, None) if exc is not None else None
    record = logging.LogRecord("x", logging.INFO, __file__, 1, message, args, info)
    return TextFormatter().format(record).split("\n")


@requirement("security/logs:no-forged-lines")
def test_a_text_log_has_one_line_for_each_message():
    (line,) = lines_of()
    assert line.isprintable()
    assert "x\\n2026-01-01" in line
    (line,) = lines_of(message="%d", args=("no number",))
    assert line.isprintable()


@requirement("security/logs:no-forged-lines")
def test_the_text_of_an_exception_begins_no_line_of_its_own():
    first, *rest = lines_of(exc=ValueError(FORGED))
    assert first.isprintable()
    assert rest and all(line.startswith("    ") and line.isprintable() for line in rest)
