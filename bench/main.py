"""One run of the benchmark: measure or read, then show, keep and publish."""

from __future__ import annotations

import compileall
import gc
import resource
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import msgspec

from bench import machine
from bench.chart import chart
from bench.floors import FLOORS
from bench.measure import Measurement, VerifyFailed
from bench.options import OURS, REFERENCE, ROOT, Options, parse
from bench.report import CHART, markdown, replace_generated, terminal_table
from bench.results import Results

# Two thousand pipes of the crowd, with room to spare.
_DESCRIPTORS = 16_384


def main(argv: Sequence[str]) -> int:
    """The exit status: 0 only when everything that was to be measured was."""
    options = parse(argv)
    try:
        results = _read(options.read) if options.read else _measure(options)
    except VerifyFailed as error:
        print(f"VERIFY FAILED, nothing else is worth measuring: {error}", file=sys.stderr)
        return 1
    print(terminal_table(results))
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))
    if options.write:
        _publish(results, options.write)
    return 1 if results.errors else 0


def _measure(options: Options) -> Results:
    prepare()
    names = [command.name for command in options.commands if command.name not in FLOORS]
    results = Results(
        baseline=REFERENCE if REFERENCE in names else names[0],
        subject=OURS if OURS in names else names[-1],
        servers={
            command.name: "" if command.name in FLOORS else machine.describe(command.line)
            for command in options.commands
        },
        command=options.command,
        rounds=options.rounds,
        scale=options.scale,
        machine={"Date": time.strftime("%Y-%m-%d", time.gmtime()), **machine.facts()},
    )
    Measurement(options.commands, results).run(options.parts)
    return results


def prepare() -> None:
    """Make ready what every measurement needs: bytecode, descriptors, an end by signals."""
    # A collection in the client would look like a pause of the server.
    gc.disable()
    # Where PYTHONDONTWRITEBYTECODE is set, every start of ours would measure the compiler.
    compileall.compile_dir(ROOT / "src", quiet=1)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Unwind, which stops every server; a second signal is not to interrupt that."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    print("interrupted: stopping the servers", file=sys.stderr)
    raise SystemExit(128 + number)


def _read(path: Path) -> Results:
    return msgspec.json.decode(path.read_bytes(), type=Results)


def _publish(results: Results, folder: Path) -> None:
    if results.baseline == results.subject:
        print("not published: there is no reference to compare with", file=sys.stderr)
        return
    document = folder / "performance.md"
    document.write_text(replace_generated(document.read_text(), markdown(results)))
    (folder / CHART).write_text(chart(results))
