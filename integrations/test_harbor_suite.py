"""Harbor's own runner with its oracle and nop agents, on small tasks.

The server runs in a root directory of its own (bubblewrap), because tasks use fixed places.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from integrations.conftest import IMPATIENT
from integrations.lifetimes import COMMAND
from integrations.lifetimes import check as ends_with

TASK = """\
version = "1.0"
[verifier]
timeout_sec = 60
[agent]
timeout_sec = 60
[environment]
"""
TASKS = {
    "hello": ("echo hello > /tmp/hello.txt", "grep -q hello /tmp/hello.txt"),
    "server": ("sleep 600 & echo up > /tmp/up.txt", "grep -q up /tmp/up.txt"),
    "modes": ("install -m 750 /dev/null /tmp/tool", 'test "$(stat -c %a /tmp/tool)" = 750'),
}


@pytest.fixture(scope="module")
def box():
    """The URL of a server for trials."""
    if shutil.which("bwrap") is None or os.geteuid() != 0:
        pytest.skip("bubblewrap and root are needed for a server of its own")
    with served("-m", "exec_server") as url:
        yield url


@contextlib.contextmanager
def served(*program: str) -> Iterator[str]:
    """A server whose root directory, /tmp and fixed places are its own."""
    words = ["bwrap", "--die-with-parent", "--tmpfs", "/"]
    for entry in sorted(os.listdir("/")):
        if entry not in ("tmp", "proc", "logs", "tests", "solution"):
            words += ["--dev-bind", f"/{entry}", f"/{entry}"]
    words += ["--tmpfs", "/tmp", "--proc", "/proc", sys.executable, *program]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    yield process.stdout.readline().decode().strip()
    process.terminate()
    process.communicate(timeout=30)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    for name, (solution, check) in TASKS.items():
        for part in ("environment", "solution", "tests"):
            (folder / name / part).mkdir(parents=True)
        (folder / name / "task.toml").write_text(TASK)
        (folder / name / "instruction.md").write_text("Do it.\n")
        (folder / name / "environment/Dockerfile").write_text("FROM scratch\n")
        (folder / name / "solution/solve.sh").write_text(f"#!/bin/bash\n{solution}\n")
        reward = f"if {check}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt"
        (folder / name / "tests/test.sh").write_text(f"#!/bin/bash\n{reward}\n")
    return folder


@pytest.mark.parametrize(("agent", "reward"), [("nop", 0.0), ("oracle", 1.0)])
def test_trials_have_the_reward_of_their_agent(box, tasks, tmp_path, agent, reward):
    words = ["-m", "harbor.cli.main", "run", "-p", str(tasks), "-a", agent, "-n", "1"]
    plug = "exec_server.integrations.harbor:ExecServerEnvironment"
    words += ["-e", plug, "--ek", f"pool={box}", "--ek", "disposable=true", "-o", str(tmp_path)]
    env = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run(
        [sys.executable, *words], env=env, capture_output=True, text=True, timeout=240
    )
    results = [json.loads(path.read_text()) for path in tmp_path.glob("*/*/result.json")]
    rewards = [(each.get("verifier_result") or {}).get("rewards") for each in results]
    assert rewards == [{"reward": reward}] * len(TASKS), f"{done.stdout}{done.stderr}"


LIFETIME = """
import sys
from harbor.cli.main import app
url, _, tasks, folder = sys.argv[1:]
sys.argv = ["harbor", "run", "-p", tasks, "-a", "oracle", "-n", "1", "-o", folder,
    "-e", "exec_server.integrations.harbor:ExecServerEnvironment",
    "--ek", f"pool={url}", "--ek", "disposable=true"]
app()
"""


def test_nothing_is_left_when_the_program_ends(box, tasks, tmp_path, ending):
    # Not in /tmp, which the server has for itself.
    with tempfile.TemporaryDirectory(dir=Path(__file__).parents[1] / "build") as name:
        folder = Path(name)
        shutil.copytree(tasks / "hello", folder / "tasks/hello")
        command = COMMAND.format(file=folder / "pid")
        (folder / "tasks/hello/solution/solve.sh").write_text(f"#!/bin/bash\n{command}\n")
        with served("-c", IMPATIENT) as url:
            ends_with(LIFETIME, url, folder, ending, str(folder / "tasks"), str(tmp_path))
