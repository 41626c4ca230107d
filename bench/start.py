"""Measure what starts cost in processor time: the program, the server, and `run` at a prompt.

    make start-bench ARGS='--rounds 15'
    make start-bench ARGS='--beside ../old/src'
    make start-bench ARGS='--instructions --beside ../old/src'

Each row is the least and the median of several starts. Processor time, user and system, is that of
the started program with all that it waited for; of a server also that of its keeper, from its start
to its first answer to `initialize`. Floors are measured in the same rounds: Python alone, and
Python with the libraries that a server needs: as they are, and lean, as our program loads them
(what they rarely use is late, and no garbage is collected). With --beside, the same commands also
run from another source tree, in turns. At the end stands the private memory at rest, after the
first answer, of the server and its keeper, beside that of the same floors. With --instructions,
valgrind counts the instructions of each start once, outside of the kernel and without the keeper.
They are the same on a busy machine; those of the server have its end as well.
"""

from __future__ import annotations

import argparse
import compileall
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import machine, proc
from bench.client import Client

_ROOT = Path(__file__).resolve().parent.parent
_PROGRAM = [sys.executable, str(Path(sys.executable).with_name("exec-server"))]
# The libraries of a server as our program loads them, without a line of ours that is not for this.
_LEAN = f"""
import sys
sys.path.insert(0, {str(_ROOT / "src")!r})
from exec_server.cli import late_modules, lean_libraries
from exec_server.cli.loading import loading
late_modules.use()
with loading():
    lean_libraries.load_msgspec()
    import asyncio, uvloop
"""
_FLOORS = {
    "floor: python alone": ["-c", "pass"],
    "floor: python -I -S, as the keeper": ["-I", "-S", "-c", "pass"],
    "floor: import asyncio": ["-c", "import asyncio"],
    "floor: and uvloop, msgspec": ["-c", "import asyncio, uvloop, msgspec"],
    "floor: and picows": ["-c", "import asyncio, uvloop, msgspec, picows"],
    "floor: asyncio, uvloop, msgspec, lean": ["-c", _LEAN],
    "floor: and the part of picows, lean": [
        "-c",
        f"{_LEAN}    from exec_server.transport import picows_names",
    ],
}

# After its first answer a keeper may still be loading.
_SETTLE_SECONDS = 0.5

Environment = dict[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what starts cost in processor time.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--beside", type=Path, metavar="SRC", help="another source tree")
    parser.add_argument("--instructions", action="store_true", help="count them with valgrind")
    options = parser.parse_args()
    trees = {"ours": _ROOT / "src"}
    if options.beside is not None:
        trees = {"beside": options.beside.resolve(), **trees}
    for tree in trees.values():
        compileall.compile_dir(tree, quiet=2)
    for name, value in machine.facts().items():
        print(f"{name}: {value}")
    if options.instructions:
        _print_instructions(trees)
        return
    with tempfile.TemporaryDirectory(prefix="start-") as home:
        found = _measure(_rows(trees, home), options.rounds)
        memory = _memory(trees, home)
    print(f"{'processor time':40}{'least ms':>10}{'median ms':>11}")
    for name, seconds in found.items():
        print(f"{name:40}{min(seconds) * 1e3:10.1f}{statistics.median(seconds) * 1e3:11.1f}")
    print(f"{'private memory at rest':40}{'MB':>10}")
    for name, size in memory.items():
        print(f"{name:40}{size / 1e6:10.1f}")
    print(f"load average: {machine.load():.1f}")


def _print_instructions(trees: dict[str, Path]) -> None:
    print(f"{'instructions':40}{'millions':>10}")
    with tempfile.TemporaryDirectory(prefix="start-") as home:
        report = Path(home, "callgrind.out")
        counting = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={report}"]
        for name, start in _counted(trees, home, counting):
            start()
            total = next(
                line.split()[1]
                for line in report.read_text("latin-1").splitlines()
                if line.startswith("totals:")
            )
            print(f"{name:40}{int(total) / 1e6:10.1f}", flush=True)


def _counted(
    trees: dict[str, Path], home: str, counting: list[str]
) -> Iterator[tuple[str, Callable[[], object]]]:
    # The order of sets is that of the hashes of their texts.
    fixed = {"PYTHONHASHSEED": "0"}
    for name, words in _FLOORS.items():
        program = [*counting, sys.executable, *words]
        yield name, partial(_program, program, {**_plain_env(), **fixed})
    for tree, path in trees.items():
        env = {**_env(path, home), **fixed}
        for word in ("--version", "--help"):
            yield f"{tree}: {word}", partial(_program, [*counting, *_PROGRAM, word], env)
        yield f"{tree}: server, first answer, end", partial(_answer_once, env, counting)
        yield f"{tree}: run URL -- true", partial(_run_beside_server, env, counting)


def _answer_once(env: Environment, counting: list[str]) -> None:
    with _serving(env, counting) as server:
        _initialize(_url(server))


def _run_beside_server(env: Environment, counting: list[str]) -> None:
    with _serving(env) as server:
        _program([*counting, *_PROGRAM, "run", _url(server), "--", "true"], env)


def _measure(rows: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(rounds):
        for name, row in rows.items():
            found[name].append(row())
    return found


def _rows(trees: dict[str, Path], home: str) -> dict[str, Callable[[], float]]:
    rows: dict[str, Callable[[], float]] = {}
    for name, words in _FLOORS.items():
        rows[name] = partial(_program, [sys.executable, *words], _plain_env())
    for tree, path in trees.items():
        env = _env(path, home)
        rows[f"{tree}: --version"] = partial(_program, [*_PROGRAM, "--version"], env)
        rows[f"{tree}: --help"] = partial(_program, [*_PROGRAM, "--help"], env)
        rows[f"{tree}: server, first answer"] = partial(_server, env)
        rows[f"{tree}: run URL -- true"] = partial(_run, env)
    return rows


def _plain_env() -> Environment:
    return {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}


def _env(tree: Path, home: str) -> Environment:
    """Starts run from *tree* and keep their files in *home*."""
    return {
        **_plain_env(),
        "XDG_STATE_HOME": home,
        "CODEX_HOME": home,
        "PYTHONPATH": str(tree),
    }


def _memory(trees: dict[str, Path], home: str) -> dict[str, int]:
    """The private memory of the floors, and of servers with their keepers, in bytes."""
    found = {name: _floor_memory(words) for name, words in _FLOORS.items()}
    for tree, path in trees.items():
        with _serving(_env(path, home)) as server:
            _initialize(_url(server))
            time.sleep(_SETTLE_SECONDS)
            own, *keeper = proc.family(server.pid)
            found[f"{tree}: server"] = proc.memory([own]).private
            found[f"{tree}: its keeper"] = proc.memory(keeper).private
    return found


def _floor_memory(words: list[str]) -> int:
    *options, code = words
    waiting = f"{code}\nimport os\nos.write(1, b'.')\nos.read(0, 1)"
    with subprocess.Popen(
        [sys.executable, *options, waiting],
        env=_plain_env(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as program:
        assert program.stdin is not None and program.stdout is not None
        program.stdout.read(1)
        size = proc.memory(proc.family(program.pid)).private
        program.stdin.close()
    return size


def _program(words: list[str], env: Environment) -> float:
    """The processor time of a program that ends with success."""
    quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    pid = os.posix_spawnp(words[0], words, env, file_actions=quiet)
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        raise SystemExit(f"{' '.join(words)} failed: status {status}")
    return usage.ru_utime + usage.ru_stime


def _server(env: Environment) -> float:
    """The processor time of a server and its keeper until the first answer."""
    with _serving(env) as server:
        _initialize(_url(server))
        return proc.cpu_seconds(proc.family(server.pid))


def _run(env: Environment) -> float:
    with _serving(env) as server:
        url = _url(server)
        # The server is warm; its time does not count.
        _program([*_PROGRAM, "run", url, "--", "true"], env)
        return _program([*_PROGRAM, "run", url, "--", "true"], env)


class _serving:
    """A server, which is ended with the block."""

    def __init__(self, env: Environment, before: Sequence[str] = ()) -> None:
        self._env = env
        # The words of a program that runs the server.
        self._before = before

    def __enter__(self) -> subprocess.Popen[bytes]:
        self._server = subprocess.Popen(
            [*self._before, *_PROGRAM, "--listen", "ws://127.0.0.1:0"],
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return self._server

    def __exit__(self, *_: object) -> None:
        self._server.terminate()
        self._server.communicate()


def _url(server: subprocess.Popen[bytes]) -> str:
    assert server.stdout is not None
    return server.stdout.readline().decode().strip()


def _initialize(url: str) -> None:
    host, _, port = url.removeprefix("ws://").partition(":")
    client = Client(host, int(port))
    client.initialize()
    client.close()


if __name__ == "__main__":
    main()
