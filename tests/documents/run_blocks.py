"""Run the blocks of code of the documents: ``make docs-check``, ``ARGS=docs/cli.md`` for one page.

The blocks of a page are one session, in order, in a sandbox of bubblewrap: the machine can only be
read, the home is empty, the network is a loopback of its own. A block that is not run has a comment
above it, ``<!-- not run: why -->``. What pages take for granted, such as names of
servers and a project in /srv/app, is made first.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support import doc_pages
from tests.support.doc_pages import Block
from tests.support.source_tree import REPOSITORY

HOME = "/home/you"
URL = "ws://127.0.0.1:8765"
# Names of servers, ports of servers, and a project, which pages take for granted.
ENVIRONMENTS = ("build", "build-box", "big", "NAME")
PORTS = (8765, 41181)
_PROJECT = """\
mkdir -p src /srv/app/src
printf 'all install test world:\\n\\t@echo made\\n' | tee Makefile src/Makefile >/srv/app/Makefile
echo 'class WrongError(Exception): pass' | tee src/wrong.py >/srv/app/src/wrong.py
echo 'level = 1' >/srv/app/config.toml
"""
_SECONDS = 180
_PROMPT = re.compile(r"^(?:\w+)?\$ (.*)$")
_RESULT = re.compile(r"^@@(\d+) begin\n(.*?)^@@\1 end (\d+)\n", re.MULTILINE | re.DOTALL)
_BACKGROUND = re.compile(r"&\s*(#.*)?$", re.MULTILINE)
_NAMES = "".join(f'[[environments]]\nid = "{name}"\nurl = "{URL}"\n' for name in ENVIRONMENTS)


class Step(NamedTuple):
    """A command of a block, and what it should print; None if the page does not show it."""

    block: Block
    command: str
    printed: str | None


def steps_of(block: Block) -> Iterator[Step]:
    """The commands of *block*; one of a shell without prompts is one command."""
    if block.language == "console":
        commands: list[tuple[str, list[str]]] = []
        for line in block.text.splitlines():
            match = _PROMPT.match(line)
            if match:
                commands.append((match[1], []))
            elif commands and (commands[-1][0].endswith("\\") or line.startswith("> ")):
                command, printed = commands[-1]
                commands[-1] = (f"{command}\n{line.removeprefix('> ')}", printed)
            elif commands:
                commands[-1][1].append(line)
        for command, lines in commands:
            yield Step(block, command, "\n".join(lines).rstrip() + "\n" if any(lines) else None)
    else:
        yield Step(block, block.text, None)


def is_as_shown(seen: str, shown: str) -> bool:
    """True if *seen* is what the page shows, in which ``...`` stands for any text."""
    pattern = re.escape(shown.rstrip()).replace(re.escape("..."), "(?:.|\n)*")
    return re.fullmatch(pattern, seen.rstrip()) is not None


def script_of(steps: list[Step], folder: Path) -> str:
    """A script of bash that does *steps* and marks the output of each."""
    lines = [f"cd {HOME}", "PS1='$ '"]
    for number, (block, command, _) in enumerate(steps):
        file = folder / f"step-{number}"
        file.write_text(command + "\n")
        lines.append(f"printf '\\n@@{number} begin\\n'; __failed=0")
        if block.language == "python":
            lines.append(f"__python {file} || __failed=$?")
        elif _BACKGROUND.search(command):
            # What it prints must not get between the output of later commands.
            lines += [f". {file} >~/.log-{number} 2>&1", f"__printed ~/.log-{number}"]
        else:
            lines += ["trap '__failed=$?' ERR", f". {file}", "trap - ERR"]
        lines.append(f"printf '\\n@@{number} end %d\\n' $__failed")
    return "\n".join(lines) + "\n"


_PRELUDE = """\
__printed() {
    for _ in $(seq 600); do
        if [ -s "$1" ]; then head -n 1 "$1"; return; fi
        sleep 0.1
    done
    echo "the program in the background printed nothing"
}
"""


def run_page(page: Path, blocks: list[Block]) -> list[str]:
    """Run *blocks* of one page; returns what went wrong."""
    steps = [step for block in blocks for step in steps_of(block)]
    with tempfile.TemporaryDirectory(prefix="doc-blocks-") as name:
        folder = Path(name)
        (folder / "exec-server").write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -m exec_server "$@"\n'
        )
        (folder / "exec-server").chmod(0o755)
        (folder / "environments.toml").write_text(_NAMES)
        prelude = (
            _PRELUDE
            + f'__python() {{ "{sys.executable}" {Path(__file__).parent}/run_python.py "$1"; }}\n'
        )
        prelude += f"mkdir {HOME}/.codex; cp {folder}/environments.toml {HOME}/.codex/\n"
        prelude += _PROJECT
        for port in PORTS:
            url = f"ws://127.0.0.1:{port}"
            if not any(f"--listen {url}" in step.command for step in steps):
                prelude += (
                    f"exec-server --listen {url} >~/.log{port} 2>&1 &\n__printed ~/.log{port}\n"
                )
        (folder / "script").write_text(prelude + script_of(steps, folder))
        output = _confined(folder)
    return [*_problems(steps, output)]


def _problems(steps: list[Step], output: str) -> Iterator[str]:
    results = {int(number): (text, int(status)) for number, text, status in _RESULT.findall(output)}
    for number, (block, command, shown) in enumerate(steps):
        first = command.splitlines()[0]
        if number not in results:
            yield f"{block.where}: `{first}` did not end; the last output was:\n{output[-800:]}"
            return
        text, status = results[number]
        if status:
            yield f"{block.where}: `{first}` failed with {status}:\n{text[-800:]}"
        elif shown is not None and not is_as_shown(text, shown):
            yield f"{block.where}: `{first}` printed\n{text[-800:]}\nand not\n{shown}"


def _confined(folder: Path) -> str:
    command = ["bwrap", "--unshare-all", "--uid", "1000", "--gid", "1000", "--die-with-parent"]
    command += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    command += ["--tmpfs", "/srv"]
    command += [
        "--tmpfs",
        "/home",
        "--dir",
        HOME,
        "--tmpfs",
        "/run",
        "--ro-bind",
        str(folder),
        str(folder),
    ]
    command += ["--clearenv", "--setenv", "HOME", HOME, "--setenv", "LANG", "C.UTF-8"]
    command += [
        "--setenv",
        "PATH",
        f"{folder}:/usr/local/bin:/usr/bin:/bin",
        "--setenv",
        "TERM",
        "dumb",
    ]
    command += ["--setenv", "PYTHONPATH", str(REPOSITORY / "src"), "--chdir", HOME]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [str(word) for word in [*command, "bash", "--norc", folder / "script"]],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return (folder / "output").read_text(encoding="utf-8", errors="replace")


def main(words: list[str]) -> int:
    if shutil.which("bwrap") is None:
        print("docs-check: bubblewrap is not installed, and blocks are not run without it")
        return 1
    wanted = [Path(word).resolve() for word in words] or doc_pages.pages()
    failed = ran = marked = 0
    for page in wanted:
        programs = [b for b in doc_pages.blocks(page) if b.language in doc_pages.PROGRAMS]
        todo = [block for block in programs if block.reason is None]
        marked += len(programs) - len(todo)
        if todo:
            problems = run_page(page, todo)
            ran += len(todo)
            failed += len(problems)
            for problem in problems:
                print(f"FAILED {problem}", flush=True)
            if not problems:
                print(f"ok     {page.relative_to(REPOSITORY)}: {len(todo)} blocks", flush=True)
    print(f"{ran} blocks were run, {marked} say why they are not; {failed} commands failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
